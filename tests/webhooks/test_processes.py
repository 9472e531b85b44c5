"""Deliverers are processes: one that is killed loses nothing, and the next one keeps the order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stepwell import SQLiteCheckpointStorage
from stepwell.cli.app import stepwell
from stepwell.storage.encryption import Seal
from stepwell.webhooks import add_webhook, list_deliveries
from tests.support.launching import dying_with_us
from tests.webhooks.conftest import delivering, eventually_received
from tests.webhooks.receiver import Receiver, receiving
from tests.worker.samples import asking, counting

pytestmark = pytest.mark.process

SHOP = """
from stepwell import WorkflowBuilder, WorkflowContext, executor

@executor(id="count")
async def count(number: int, ctx: WorkflowContext[int, int]) -> None:
    await ctx.yield_output(number)

workflow = WorkflowBuilder(name="counting", start_executor=count).build()
"""


@contextmanager
def worker(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "shop.py").write_text(SHOP)
    command = [sys.executable, "-m", "stepwell.cli", "--store", str(folder / "runs.db"), "worker", "shop:workflow"]
    process = subprocess.Popen(
        dying_with_us(command), cwd=folder, stderr=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(folder)}
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_a_deliverer_that_is_killed_in_the_middle_loses_nothing(tmp_path: Path, receiver: Receiver) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    await add_webhook(storage, receiver.url)
    for run_id in ("a", "b"):
        await counting(storage, 1).run(1, run_id=run_id)
    victims: list[int] = []

    def kill_the_sender(message: dict[str, Any]) -> int:
        if victims:
            os.kill(victims.pop(), signal.SIGKILL)
        return 200

    receiver.answer = kill_the_sender
    with worker(tmp_path) as first:
        victims.append(first.pid)
        assert first.wait(30) == -signal.SIGKILL
    accepted = len(receiver.messages)
    assert len(await list_deliveries(storage)) == 2  # it was accepted, and that could not be noted any more
    with worker(tmp_path):
        await eventually_received(receiver, accepted + 2)
    ids = [message["id"] for message in receiver.messages]
    assert len(set(ids)) == 2  # the receiver knows by the id that it has one of them already
    await storage.close()


async def test_on_a_sealed_store_messages_and_secrets_are_sealed(tmp_path: Path, receiver: Receiver) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db", seal=Seal({"k": bytes(32)}, "k"))
    webhook = await add_webhook(storage, receiver.url)
    await asking(storage).run("a private question", run_id="r")
    async with delivering(storage):
        await eventually_received(receiver, 1)
    assert receiver.messages[0]["data"]["request"]["question"] == "a private question"
    await storage.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("runs.db*"))
    assert b"a private question" not in stored
    assert receiver.url.encode() not in stored
    assert webhook.secrets[0].encode() not in stored


def say(store: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(stepwell, ["--store", str(store), "webhooks", *words], prog_name="stepwell")
    return done.exit_code, done.output


def test_the_command_line(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    with receiving(Receiver()) as receiver:
        code, shown = say(store, "add", receiver.url, "--kind", "run.failed")
        assert code == 0
        id, secret = shown.split()[-2:]
        assert say(store, "list")[1].split()[6:] == [id, receiver.url, "all", "run.failed", "0", "active"]
        assert "accepted msg_" in say(store, "test", id)[1]
        receiver.verify_all(secret)
        assert say(store, "rotate", id)[0] == 0
        receiver.answer = lambda message: 500
        code, shown = say(store, "test", id)
        assert (code, "HTTP 500" in shown) == (1, True)
    assert "everything is delivered" in say(store, "deliveries")[1]
    assert "0 messages of webhook" in say(store, "retry", id)[1]
    assert say(store, "remove", id)[0] == 0
    assert say(store, "remove", id)[0] == 3
    assert say(store, "add", "http://example.com")[0] == 2
    assert "no webhooks" in say(store, "list")[1]
