"""`stepwell --server URL`: the same commands on a server instead of a store."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepwell import SQLiteCheckpointStorage
from tests.server.flows import counting_down, refunds
from tests.server.processes import TOKEN, server
from tests.support.command_line import ran

AGE = r"\d+ (s|min)\b|\"age_seconds\": \d+"  # differs from call to call
pytestmark = pytest.mark.process


async def fill(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        await counting_down.run(2, run_id="numbers", checkpoint_storage=storage)
        await refunds.run(400, run_id="refund", checkpoint_storage=storage, tags={"shop": "north"})


def test_commands_say_the_same_of_a_server_as_of_its_store(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    asyncio.run(fill(store))
    with server(str(store)) as one:
        address = f"{one.address}/login?token={TOKEN.replace(' ', '%20')}"

        def both(*command: str) -> Any:
            here, there = (ran(*command, *where) for where in (("--server", address), ("--store", str(store))))
            assert (here.returncode, here.stderr) == (0, there.stderr)
            # An age of 9 s and one of 10 s make columns of different widths.
            assert re.sub(AGE, "", here.stdout).split() == re.sub(AGE, "", there.stdout).split()
            return here.stdout

        assert "refund" in both("list")
        assert "refund 400?" in both("requests")
        both("list", "--tag", "shop=north", "--json")
        both("list", "--status", "failed")
        both("workers")
        for name in ("numbers", "refund"):
            for json_option in ((), ("--json",)):
                assert both("events", name, *json_option)
                both("tail", name, "-n", "3", *json_option)
        assert both("tail", "numbers", "--follow", "-n", "2").count("\n") == 2
        waiting = ran("tail", "refund", "--follow", "--server", address)
        assert (waiting.returncode, waiting.stderr) == (4, "run 'refund' is waiting\n")
        for words in (("numbers", "--utc"), ("refund",), ("refund@0", "--full")):
            here, there = (ran("show", *words, *where) for where in (("--server", address), ("--store", str(store))))
            assert (here.returncode, here.stderr) == (0, "")
            # The command to type next names the store, if it was named.
            assert re.sub(AGE, "", here.stdout) == re.sub(AGE, "", there.stdout.replace(f" --store {store}", ""))
        shown = json.loads(ran("show", "refund", "--json", "--server", address).stdout)
        stored = json.loads(ran("show", "refund", "--json", "--store", str(store)).stdout)
        assert {name: shown[name] for name in stored} == stored

        sent = ran("respond", "refund", "approval", "--response", "true", "--server", address)
        assert sent.stdout == "responded to approval of refund\n"
        assert "nobody drives the runs of 'refunds'" in sent.stderr
        late = ran("respond", "refund", "approval", "--response", "false", "--server", address)
        assert (late.returncode, "answered already by 'operator'" in late.stderr) == (3, True)
        assert ran("cancel", "refund", "--server", address).returncode == 0
        assert ran("retry", "refund", "--server", address).stdout == "refund\n"
        assert ran("show", "missing", "--server", address).returncode == 3
        refused = ran("list", "--server", one.address)
        assert (refused.returncode, "STEPWELL_TOKEN" in refused.stderr) == (1, True)
        assert ran("doctor", "--server", address).returncode == 2


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
