"""What the store in a directory costs: what is read of a long run, what a file keeps, and who shares a sync."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import CommitConflict, StoreUnavailable
from stepwell.storage.filters import CheckpointFilter, ReadyFilter
from stepwell.storage.lease import this_process
from stepwell.storage.stored_values import CommitEffects
from stepwell.stores.files import lines, run_file
from stepwell.stores.files.layout import run_name
from stepwell.stores.files.store import FileStore
from stepwell.testing.store_rules.samples import (
    fill,
    head,
    id_of,
    logged,
    meaning,
    numbers,
    places,
    record,
    run_ids,
    run_metadata,
    signals_of,
    text,
)
from tests.support.spies import first, spy

LONG = 600  # records


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileStore]:
    made = FileStore(tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[FileStore]:
    """Another process, as far as the store can tell."""
    made = FileStore(tmp_path)
    yield made
    await made.close()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of the lines that are read from now on."""
    found: list[int] = []
    monkeypatch.setattr(lines, "read_line", spy(lines.read_line, found, lambda data, offset, run_id: offset))
    return found


@contextmanager
def calls_of(monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[list[str]]:
    """The calls of these functions of the system inside the block."""
    done: list[str] = []
    with monkeypatch.context() as patch:
        for name in names:
            patch.setattr(os, name, spy(getattr(os, name), done, lambda *args, name=name: name))
        yield done


def file_of(root: Path, run_id: str = "r") -> Path:
    return root / "runs" / run_name(run_id)


async def fill_long(store: FileStore, monkeypatch: pytest.MonkeyPatch, run_id: str = "r") -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        for number in range(LONG):
            await store.append(record(run_id, number, is_snapshot=number % 20 == 0, body="x" * 400))


# -------------------------------------------------------------------- what is read


async def test_of_a_long_run_only_the_end_is_read(
    store: FileStore, other: FileStore, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_long(store, monkeypatch)
    calls: list[Callable[[FileStore], Awaitable[object]]] = [
        lambda fresh: fresh.open("r"),
        lambda fresh: fresh.open("r", owner=this_process("mine"), seconds=60),
        lambda fresh: fresh.read("r"),
        lambda fresh: fresh.runs(),
        lambda fresh: fresh.requests(),
        lambda fresh: fresh.ready(ReadyFilter("2026")),
        lambda fresh: fresh.locate(id_of("r", LONG - 1)),
        lambda fresh: fresh.history("r", after=LONG - 2),
        lambda fresh: fresh.history("r", outputs_only=True),
        lambda fresh: fresh.checkpoints(CheckpointFilter(run_id="r"), limit=3),
        lambda fresh: fresh.send("r", "k", text(1)),
    ]
    for call in calls:
        read.clear()
        fresh = FileStore(store._root)
        await call(fresh)
        assert len(read) < 100
        await fresh.close()
    read.clear()
    assert len(await other.history("r")) == LONG
    assert len(read) > LONG
    read.clear()
    assert len(await other.history("r")) == LONG
    assert numbers(await other.read("r", 55)) == list(range(40, 56))
    assert read == []


async def test_what_another_process_wrote_is_all_that_is_read(
    store: FileStore, other: FileStore, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_long(store, monkeypatch)
    assert len(await other.history("r")) == LONG
    read.clear()
    fence = await other.acquire("r", this_process("mine"), seconds=60)
    await other.send("r", "k", text(1))
    assert read == []
    await store.append(record("r", LONG), CommitEffects(fence=fence))
    assert len(set(read)) <= 3
    read.clear()
    assert meaning(await head(other, "r")) == meaning(record("r", LONG))
    assert len(set(read)) <= 2


async def test_an_append_syncs_once_and_lists_nothing(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, "r", 3)
    await store.write_log("r", 2, "k", text(1))
    with calls_of(monkeypatch, "fsync", "pwrite", "replace", "listdir", "scandir", "open", "mkdir") as done:
        for number in range(3, 10):
            await store.append(record("r", number))
    assert done == ["open", "pwrite", "fsync"] * 7


async def test_a_large_state_is_not_written_again_and_again(store: FileStore, tmp_path: Path) -> None:
    await fill(store, "r", 1)
    for number in range(1, 200):  # every key is kept for ever
        await store.send("r", f"key {number} {'x' * 100}", text(1))
        fence = await store.acquire("r", this_process("mine"), seconds=60)
        effects = CommitEffects(consumed=(f"key {number} {'x' * 100}",), fence=fence, release=True)
        await store.append(record("r", number), effects)
    content = file_of(tmp_path).read_bytes()
    states = [line for line in content.splitlines() if line.startswith(b'{"line":"state"')]
    assert len(states) > 3
    assert sum(map(len, states)) < len(content) / 3


async def test_lists_look_into_few_runs_for_the_newest_checkpoint(
    store: FileStore, tmp_path: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        await fill_long(store, monkeypatch, name)
    await store.append(record("b", LONG, at="2027-01-01T00:00:00Z"))
    await store.close()
    read.clear()
    assert places(await store.checkpoints(limit=1)) == [("b", LONG)]
    assert LONG < len(read) < 2 * LONG
    read.clear()
    assert await store.locate(id_of("nobody", 3)) is None
    assert await store.locate("made elsewhere") is None
    assert read == []


# -------------------------------------------------------------------- what stays in a file


async def test_the_body_of_a_consumed_signal_leaves_the_file(store: FileStore, tmp_path: Path) -> None:
    await fill(store, "r", 1)
    for key in ("k", "later"):
        await store.send("r", key, text(f"secret {key}"))
    await store.write_log("r", 0, "step", text("secret step"))
    await store.write_log("r", 1, "step", text("secret of the next"))
    await store.append(record("r", 1), CommitEffects(consumed=("k",), drop_log_through=0))
    content = file_of(tmp_path).read_bytes()
    assert b"secret k" not in content
    assert b"secret step" not in content
    assert await signals_of(store, "r") == [("later", text("secret later"))]
    other = FileStore(tmp_path)
    assert await logged(other, "r", 1) == {"step": text("secret of the next")}
    assert numbers(await other.history("r")) == [0, 1]
    await other.close()


async def test_what_a_killed_writer_did_not_blank_the_next_one_does(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, "r", 1)
    fence = await store.acquire("r", this_process("mine"), seconds=60)
    await store.send("r", "k", text("secret " * 400))
    with monkeypatch.context() as patch:
        patch.setattr(run_file.RunFile, "_blank", lambda run, before: None)
        await store.append(record("r", 1), CommitEffects(consumed=("k",), fence=fence, release=True))
    assert b"secret" in file_of(tmp_path).read_bytes()
    assert file_of(tmp_path).read_bytes().splitlines()[-1].startswith(b'{"line":"state"')
    other = FileStore(tmp_path)
    await other.append(record("r", 2))
    assert b"secret" not in file_of(tmp_path).read_bytes()
    await other.close()


async def test_dropped_records_leave_the_file(store: FileStore, tmp_path: Path) -> None:
    for number in range(30):
        snapshot = number % 10 == 0
        effects = CommitEffects(drop_below=number if snapshot else None)
        await store.append(
            record("r", number, body=f"secret-{number}", is_snapshot=snapshot, latest_only=True), effects
        )
    kept = {n for n in range(30) if f'secret-{n}"'.encode() in file_of(tmp_path).read_bytes()}
    assert kept == set(range(20, 30))
    assert numbers(await store.history("r")) == list(range(20, 30))
    assert file_of(tmp_path).stat().st_size < 6000
    assert await store.drop("r")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "stepwell.json"]


async def test_compacting_gives_back_the_room_of_what_was_dropped(store: FileStore, tmp_path: Path) -> None:
    await store.append(record("r", 0), CommitEffects(metadata=run_metadata(team="red")))
    for number in range(1, 20):
        await store.write_log("r", number - 1, "k", text("x" * 5000))
        await store.append(record("r", number), CommitEffects(drop_log_through=number - 1))
    await fill(store, "small", 3)
    before = file_of(tmp_path).stat().st_size
    small = file_of(tmp_path, "small").read_bytes()
    assert await store.compact() == before - file_of(tmp_path).stat().st_size > 19 * 5000
    assert await store.compact() == 0
    assert file_of(tmp_path, "small").read_bytes() == small
    assert numbers(await store.history("r")) == list(range(20))
    assert await run_ids(store, tags={"team": "red"}) == ["r"]


async def test_inserting_records_one_after_the_other_does_not_write_the_file_anew(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, "r", 1)
    with calls_of(monkeypatch, "replace") as done:
        for number in (3, 4, 5, 8):
            await store.rewrite("r", insert=record("r", number), effects=CommitEffects(wake="2026"))
        assert done == []
        await store.rewrite("r", insert=record("r", 6))
        assert done == ["replace"]
    assert await store.numbers("r") == [0, 3, 4, 5, 6, 8]


# -------------------------------------------------------------------- what is written together


async def begun(store: FileStore) -> None:
    """Until a thread has begun to write for run r, and nobody else waits."""
    while store._get_locked()._waiting.get("r") != []:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)


async def waiting(store: FileStore, count: int) -> None:
    """Until so many wait for the thread that writes."""
    while len(store._get_locked()._waiting["r"]) < count:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)


async def test_what_finishes_together_is_synced_together(
    store: FileStore, other: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, "r", 1)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", spy(os.fsync, synced, first))
    wanted = {f"k{n}": text(n) for n in range(10)}
    with other._get_locked().run("r").writing():
        earlier = asyncio.ensure_future(store.write_log("r", 0, "first", text(0)))
        await begun(store)
        rest = [asyncio.ensure_future(store.write_log("r", 0, key, body)) for key, body in wanted.items()]
        await waiting(store, 10)
    assert await earlier
    assert all(await asyncio.gather(*rest))
    assert len(synced) <= 2
    assert await logged(other, "r", 0) == {"first": text(0), **wanted}


async def test_those_who_are_written_together_each_hear_what_became_of_theirs(
    store: FileStore, other: FileStore
) -> None:
    await fill(store, "r", 1)
    await store.write_log("r", 0, "old", text(0))
    late = await store.acquire("r", this_process("mine"), seconds=60)
    fence = await store.acquire("r", this_process("mine"), seconds=60)
    with other._get_locked().run("r").writing():
        earlier = asyncio.ensure_future(store.write_log("r", 0, "first", text(1)))
        await begun(store)
        given: list[Any] = [
            store.write_log("r", 0, "a", text(1), fence=fence),
            store.write_log("r", 0, "a", text(2), fence=fence),
            store.write_log("r", 0, "old", text(3)),
            store.write_log("r", 0, "b", text(4), fence=late),
            store.write_log("r", 0, "c", b"{\nno json"),
            store.append(record("r", 1), CommitEffects(fence=fence, drop_log_through=0)),
            store.append(record("r", 1)),
            store.rewrite("r", remove=[0]),
            store.write_log("r", 1, "a", text(5)),
            store.drop("r"),
            store.append(record("r", 0, workflow="another")),
            store.open("r", owner=this_process("other"), seconds=60),
        ]
        tasks = [asyncio.ensure_future(call) for call in given]
        cancelled = asyncio.ensure_future(store.write_log("r", 7, "d", text(6)))
        await waiting(store, len(tasks) + 1)
        cancelled.cancel()
    found: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(cancelled, return_exceptions=True)
    assert await earlier
    assert found[:3] == [True, False, False]
    assert isinstance(found[3], CommitConflict)
    assert not isinstance(found[4], bool)
    assert found[5] is None
    assert isinstance(found[6], CommitConflict)
    assert found[7:11] == [1, True, True, None]
    assert (numbers(found[11].records), found[11].fence) == ([0], 1)
    assert await logged(other, "r", 7) == {"d": text(6)}, "a write that was begun is completed"
    assert await run_ids(other, workflow="another") == ["r"]


async def test_a_full_disk_is_told_to_all_who_are_written_together(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, "r", 1)

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        found = await asyncio.gather(
            *(store.write_log("r", 0, f"k{n}", text(1)) for n in range(5)), return_exceptions=True
        )
    assert [type(each) for each in found] == [StoreUnavailable] * 5
    assert len({id(each) for each in found}) == 5
    assert await logged(store, "r", 0) == {}
    assert await store.write_log("r", 0, "k0", text(1))
