"""Deliverers are processes: one that is killed loses nothing, and the next one keeps the order."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict

from stepwell import PostgresCheckpointStorage, SQLiteCheckpointStorage
from stepwell.cli.app import stepwell
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.encryption import Seal
from stepwell.webhooks import add_webhook, list_deliveries
from tests.support.launching import dying_with_us
from tests.support.postgres_server import own_server
from tests.webhooks.conftest import delivering, eventually_received
from tests.webhooks.receiver import Receiver, receiving
from tests.worker.samples import asking, counting, eventually

pytestmark = pytest.mark.process

SHOP = """
from stepwell import WorkflowBuilder, WorkflowContext, executor

@executor(id="count")
async def count(number: int, ctx: WorkflowContext[int, int]) -> None:
    await ctx.yield_output(number)

workflow = WorkflowBuilder(name="counting", start_executor=count).build()
"""


@contextmanager
def worker(folder: Path, store: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "shop.py").write_text(SHOP)
    where = store or str(folder / "runs.db")
    command = [sys.executable, "-m", "stepwell.cli", "--store", where, "worker", "shop:workflow"]
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


async def test_messages_outlast_a_kill_of_their_sender_and_a_crash_of_postgresql(
    tmp_path: Path, receiver: Receiver
) -> None:
    """Both between a request and the note that it was accepted."""
    may_answer = threading.Event()
    victims: list[int] = []

    def answer_after_the_accident(message: dict[str, Any]) -> int:
        if victims:
            os.kill(victims.pop(), signal.SIGKILL)
        else:
            may_answer.wait(8)
        return 200

    receiver.answer = answer_after_the_accident
    with own_server() as server:
        parts = conninfo_to_dict(server.dsn)
        name = parts.pop("dbname")
        store = f"postgresql:///{name}?{urlencode(parts)}"
        async with PostgresCheckpointStorage(server.dsn) as storage:
            webhook = await add_webhook(storage, receiver.url)
            for number in range(3):
                await asking(storage).run("tea or coffee?", run_id=f"r{number}")
                await asking(storage).run(run_id=f"r{number}", responses={"q": "tea"})
            with worker(tmp_path, store) as first:
                victims.append(first.pid)
                assert await asyncio.to_thread(first.wait, 30) == -signal.SIGKILL
            attempted = len(receiver.attempts)
            with worker(tmp_path, store):
                await eventually(lambda: _as_awaitable(len(receiver.attempts) > attempted))
                server.stop("immediate")
                server.start()
                may_answer.set()
                await eventually(lambda: _is_delivered(storage), 60)
    receiver.verify_all(*webhook.secrets)
    by_run: dict[str, list[str]] = {}
    for message in {message["id"]: message for message in receiver.messages}.values():
        by_run.setdefault(message["data"]["run_id"], []).append(message["type"])
    assert by_run == {f"r{number}": ["request.asked", "run.completed"] for number in range(3)}


async def _as_awaitable(value: bool) -> bool:
    return value


async def _is_delivered(storage: BuiltInStorage) -> bool:
    return await list_deliveries(storage) == []


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
