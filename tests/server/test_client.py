"""`stepwell --server URL`: the same commands on a server instead of a store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell import SQLiteCheckpointStorage
from tests.server.flows import counting_down, refunds
from tests.server.processes import TOKEN, server
from tests.support.command_line import ran

pytestmark = pytest.mark.process


async def fill(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        await counting_down.run(2, run_id="numbers", checkpoint_storage=storage)
        await refunds.run(400, run_id="refund", checkpoint_storage=storage, tags={"shop": "north"})


def test_tail_follows_a_run_through_a_restart_of_the_server(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    asyncio.run(fill(store))
    with server(str(store), "--work", "tests.server.flows:refunds") as one:
        address = f"{one.address}/login?token={TOKEN.replace(' ', '%20')}"
        command = [sys.executable, "-m", "stepwell.cli", "tail", "refund", "--follow", "--wait", "--server", address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
            assert tail.stdout is not None
            first = tail.stdout.readline()
            one.kill()
            one.start()
            sent = ran("respond", "refund", "approval", "--response", "true", "--server", address)
            assert sent.returncode == 0, sent.stderr
            printed = first + tail.stdout.read()
            assert tail.wait(30) == 0
    stored = ran("events", "refund", "--store", str(store)).stdout
    assert "refunded" in stored
    lines = [line for line in stored.splitlines() if "  checkpoint" not in line]
    assert 3 < len(printed.splitlines()) <= len(lines)
    assert printed.splitlines() == lines[-len(printed.splitlines()) :]  # no gap and no repeat
