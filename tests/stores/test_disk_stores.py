"""What is true of every store that outlives its process: mail and questions under several hands, and under the axe."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stepwell.storage.port import Store
from stepwell.stores.files.store import FileStore
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing.store_rules.samples import names, signals_of

pytestmark = pytest.mark.process

STORES: dict[str, Callable[[Path], Store]] = {
    "SQLiteStore": lambda folder: SQLiteStore(folder / "store"),
    "FileStore": lambda folder: FileStore(folder / "store"),
}

BEGIN = """
import asyncio, json, sys, time
from stepwell.errors import CommitConflict
from stepwell.storage.stored_values import CommitEffects
from stepwell.stores.files.store import FileStore
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing.store_rules.samples import question, record

store = {kind}({path!r})
"""

RACE = """
async def main():
    while time.time() < {start}: pass
    won = [n for n in range(40) if await store.send("r", str(n), b'"{name}"')]
    await store.close()
    print(*won)

asyncio.run(main())
"""

POST = """
async def main():
    for n in range(10**9):
        assert await store.send("r", f"{name}-{{n}}", b"1")
        print(f"{name}-{{n}}", flush=True)

asyncio.run(main())
"""

CONSUME = """
async def main():
    run = await store.run("r")
    number = run.number + 1 if run else 0
    while True:
        keys = [signal.key for signal in await store.pending_signals("r")]
        asked, closed = (question("r", str(number)),), (str(number - 1),)
        effects = CommitEffects(consumed=tuple(keys), asked=asked, closed=closed, wake=str(number))
        await store.append(record("r", number, body=keys), effects)
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def python(code: str, folder: Path, kind: str, **values: object) -> subprocess.Popen[str]:
    told = {"path": str(folder / "store"), "kind": kind, **values}
    return subprocess.Popen([sys.executable, "-c", (BEGIN + code).format(**told)], stdout=subprocess.PIPE, text=True)


def test_of_processes_that_post_the_same_keys_at_once_one_is_told_it_was_first(kind: str, tmp_path: Path) -> None:
    start = time.time() + 0.8
    racers = [python(RACE, tmp_path, kind, start=start, name=name) for name in "abc"]
    won = [racer.communicate()[0].split() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert sorted(int(key) for keys in won for key in keys) == list(range(40))

    async def left() -> list[tuple[str, bytes]]:
        store = STORES[kind](tmp_path)
        try:
            return await signals_of(store, "r")
        finally:
            await store.close()

    winners = {key: json.dumps(name).encode() for name, keys in zip("abc", won, strict=True) for key in keys}
    assert dict(asyncio.run(left())) == winners


async def test_killed_posters_and_consumers_lose_nothing_and_consume_nothing_twice(kind: str, tmp_path: Path) -> None:
    told: list[str] = []
    for turn in range(4):
        poster = python(POST, tmp_path, kind, name=turn)
        consumer = python(CONSUME, tmp_path, kind)
        for process, lines in ((consumer, 15), (poster, 5))[:: 1 if turn % 2 else -1]:
            assert process.stdout is not None
            first = [process.stdout.readline().strip() for _ in range(lines)]
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().split("\n")[:-1]  # the last line may be cut off
            process.wait()
            process.stdout.close()
            told += [*first, *rest] if process is poster else []

        store = STORES[kind](tmp_path)
        records = await store.history("r")
        consumed = [key for record in records for key in json.loads(record.body)["said"]]
        waiting = [signal.key for signal in await store.pending_signals("r")]
        assert [record.entry.number for record in records] == list(range(len(records)))
        assert len(set(consumed)) == len(consumed)
        assert not set(consumed) & set(waiting)
        assert set(told) <= set(consumed) | set(waiting)
        for key in (*consumed, *waiting):
            assert not await store.send("r", key, b"2")
        assert names(await store.requests()) == [("r", str(len(records) - 1))]
        assert [run.wake for run in await store.runs()] == [str(len(records) - 1)]
        await store.close()
    assert len(told) >= 20
