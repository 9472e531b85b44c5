"""How the store in a directory lists runs and pages, keeps only the latest, and remembers several things at once."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import CheckpointCorrupt, CommitConflict, StoreUnavailable
from stepwell.storage.lease import this_process
from stepwell.storage.port import CommitEffects
from stepwell.stores.files import layout as file_layout
from stepwell.stores.files import lock as file_lock
from stepwell.stores.files import run_folder as file_run
from stepwell.stores.files.store import FileStore
from stepwell.testing.store_rules.samples import fill, meaning, numbers, places, record, run_entry, run_metadata
from tests.support.spies import first, spy


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
def touched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the folders that are listed and of the records that are opened from now on."""
    found: list[str] = []
    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, spy(getattr(os, name), found, lambda path: Path(path).name))
    for name in ("read_cover", "read_record"):
        monkeypatch.setattr(file_layout, name, spy(getattr(file_layout, name), found, lambda path: path.name))
    return found


def kill_somebody_in(folder: Path) -> None:
    """What whoever is killed there has done at least."""
    with file_lock.lock_folder(folder) as lock:
        assert lock is not None
        file_lock.write_token(lock)


# -------------------------------------------------------------------- what is known without listing


async def test_where_a_run_is_is_known_without_listing_its_records(other: FileStore, touched: list[str]) -> None:
    store = FileStore(other._root)
    await fill(store, "r", 7)
    await store.close()
    for call in (other.head("r"), other.newest(run_id="r"), other.newest(), other.runs(), other.entries(limit=1)):
        touched.clear()
        assert await call
        assert "r" not in touched
        assert [name for name in touched if name.startswith("0")] == ["000006-r-6.json"]


async def test_a_claim_or_mail_of_somebody_else_does_not_make_anybody_list(
    store: FileStore, other: FileStore, touched: list[str]
) -> None:
    await fill(store, "r", 3)
    touched.clear()
    fence = await other.acquire("r", this_process("mine"), seconds=60)
    await other.send("r", "k", b"1")
    await store.append(record("r", 3), CommitEffects(fence=fence))
    assert meaning(await other.head("r")) == meaning(record("r", 3))
    assert "r" not in touched


async def test_a_hint_from_before_the_machine_was_started_is_not_believed(
    store: FileStore, other: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, "r", 2)
    lock = (tmp_path / "w" / "r" / ".lock").read_bytes()
    await store.append(record("r", 2))
    (tmp_path / "w" / "r" / ".lock").write_bytes(lock)  # the disk had not kept what was written last
    monkeypatch.setattr(file_run, "_boot", lambda: "another")
    monkeypatch.setattr(file_run, "_change_times", lambda folder: (0, 0))
    assert meaning(await other.head("r")) == meaning(record("r", 2))
    await other.append(record("r", 3))
    assert meaning(await store.head("r")) == meaning(record("r", 3))


async def test_where_nobody_knows_when_the_machine_was_started_there_are_no_hints(
    store: FileStore, other: FileStore, touched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_run, "_boot", lambda: "")
    await fill(store, "r", 3)
    touched.clear()
    assert meaning(await other.head("r")) == meaning(record("r", 2))
    assert "r" in touched


async def test_after_somebody_was_killed_the_records_are_listed(
    store: FileStore, other: FileStore, tmp_path: Path
) -> None:
    await fill(store, "r", 3)
    before = (tmp_path / "w" / "r" / ".lock").read_bytes()
    kill_somebody_in(tmp_path / "w" / "r")
    assert file_lock.hint_in(tmp_path / "w" / "r") is None
    assert len((tmp_path / "w" / "r" / ".lock").read_bytes()) == len(before)
    assert meaning(await other.head("r")) == meaning(record("r", 2))
    assert await other.runs() == [run_entry(record("r", 2))]


# -------------------------------------------------------------------- lists and pages


async def test_a_page_reads_little_more_than_itself(store: FileStore, touched: list[str]) -> None:
    for number in range(60):
        await store.append(record("r", number))
    touched.clear()
    assert places(await store.entries(run_id="r", limit=3)) == [("r", 57), ("r", 58), ("r", 59)]
    assert places(await store.entries(run_id="r", limit=3, before="r-20")) == [("r", 17), ("r", 18), ("r", 19)]
    assert len([name for name in touched if name.startswith("0")]) < 30


async def test_of_a_large_record_only_the_beginning_is_read_to_list_it(store: FileStore, tmp_path: Path) -> None:
    await fill(store, "r", 1)
    await store.append(
        record("r", 1, body=["x" * 100] * 1000), CommitEffects(metadata=run_metadata(team='\n  "body": '))
    )
    path = tmp_path / "w" / "r" / "000001-r-1.json"
    half = len(path.read_bytes()) // 2
    text = path.read_bytes()
    path.write_bytes(text[:half] + b"\xff" + text[half + 1 :])
    assert places(await store.entries()) == [("r", 0), ("r", 1)]
    assert [run.number for run in await store.runs(tags={"team": '\n  "body": '})] == [1]
    with pytest.raises(CheckpointCorrupt, match=str(path)):
        await store.head("r")
    path.write_bytes(text[:half])
    for call in (store.entries(), store.runs(), store.newest()):
        with pytest.raises(CheckpointCorrupt, match=str(path)):
            await call


async def test_a_large_record_that_somebody_wrote_in_another_way_is_listed(store: FileStore, tmp_path: Path) -> None:
    await store.append(record("r", 0, body=["x" * 100] * 1000))
    path = tmp_path / "w" / "r" / "000000-r-0.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content, sort_keys=True))
    assert await store.entries() == [record("r", 0).entry]


async def test_what_is_known_of_a_run_survives_every_record_that_said_it(store: FileStore) -> None:
    await store.append(record("r", 0, at="2026-01-01"), CommitEffects(metadata=run_metadata(team="red")))
    await store.append(record("r", 1, at="2026-01-02"))
    await store.put(record("r", 0, at="2026-01-03"), CommitEffects(metadata=run_metadata(team="blue")))
    await store.append(record("r", 2, at="2026-01-04"), CommitEffects(metadata=run_metadata("caller", team="green")))
    expected = {"began": "2026-01-01", "metadata": run_metadata("caller", team="green")}
    for number in (2, 0):
        assert await store.remove("r", number)
        newest = record("r", 1, at="2026-01-02")
        assert await store.runs(inner=True) == [run_entry(newest, **expected)]  # type: ignore[arg-type]
    last = record("r", 2, at="2026-01-05")
    await store.append(last, CommitEffects(drop_below=2))
    assert await store.runs(inner=True) == [run_entry(last, **expected)]  # type: ignore[arg-type]


# -------------------------------------------------------------------- keeping only the latest


async def test_a_run_that_keeps_only_its_latest_is_not_listed_to_drop(store: FileStore, touched: list[str]) -> None:
    for number in range(3):
        await store.append(record("r", number, outputs=number == 1), CommitEffects(drop_below=number))
    touched.clear()
    for number in range(3, 9):
        await store.append(record("r", number), CommitEffects(drop_below=number))
    assert touched == []
    assert numbers(await store.history("r")) == [1, 8]


async def test_a_dropped_run_leaves_no_files(store: FileStore, tmp_path: Path) -> None:
    await fill(store, "r", 2)
    await store.send("r", "k", b"1")
    await store.write_log("r", 1, "k", b"1")
    (tmp_path / "w" / "r" / "notes.txt").write_text("a person's own, in a folder that is ours")
    assert await store.drop("r")
    assert os.listdir(tmp_path / "w") == []
    assert os.listdir(tmp_path / ".gone") == []


async def test_runs_of_one_name_are_dropped_one_after_the_other(store: FileStore, other: FileStore) -> None:
    for _ in range(3):
        for each in (store, other):
            await each.append(record("r", 0))
            assert (await asyncio.gather(store.drop("r"), other.drop("r"))).count(True) == 1
    assert await store.runs() == []


# -------------------------------------------------------------------- remembering together


def fsyncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    done: list[int] = []
    monkeypatch.setattr(os, "fsync", spy(os.fsync, done, first))
    return done


async def rested(store: FileStore) -> None:
    """Until the thread that wrote for run r has found that nobody waits any more."""
    while "r" in store._workers().group_commit._waiting:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)


async def begun(store: FileStore) -> None:
    """Until a thread has begun to write for those who want to remember something in run r, and nobody else waits."""
    together = store._workers().group_commit
    while together._waiting.get("r") != []:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)


async def waiting(store: FileStore, count: int) -> None:
    """Until so many wait for the thread that writes."""
    while len(store._workers().group_commit._waiting["r"]) < count:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)


async def test_what_finishes_together_is_remembered_together(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, "r", 1)
    await store.write_log("r", 0, "before", b"0")
    await rested(store)
    done = fsyncs(monkeypatch)
    wanted = {f"k{n}": str(n).encode() for n in range(10)}
    with file_lock.lock_folder(tmp_path / "w" / "r"):
        first = asyncio.ensure_future(store.write_log("r", 0, "first", b"1"))
        await begun(store)
        rest = [asyncio.ensure_future(store.write_log("r", 0, key, body)) for key, body in wanted.items()]
        await waiting(store, 10)
    assert await first
    assert all(await asyncio.gather(*rest))
    assert len(done) == 4, "a file and a folder, twice"
    assert await store.read_log("r", 0) == {"before": b"0", "first": b"1", **wanted}
    assert sorted(os.listdir(tmp_path / "w" / "r" / "memory")) == [
        "000000-before.json",
        "000000-first.json",
        "000000-k0.json",
    ]


async def test_those_who_remember_together_each_hear_what_became_of_theirs(store: FileStore, tmp_path: Path) -> None:
    await fill(store, "r", 1)
    await store.write_log("r", 0, "old", b"0")
    late = await store.acquire("r", this_process("mine"), seconds=60)
    fence = await store.acquire("r", this_process("mine"), seconds=60)
    with file_lock.lock_folder(tmp_path / "w" / "r"):
        first = asyncio.ensure_future(store.write_log("r", 0, "first", b"1"))
        await begun(store)
        calls = [
            store.write_log("r", 0, "a", b"1", fence=fence),
            store.write_log("r", 0, "a", b"2", fence=fence),
            store.write_log("r", 0, "old", b"3"),
            store.write_log("r", 0, "b", b"4", fence=late),
            store.write_log("r", 0, "c", b"no json"),
            store.write_log("r", 1, "a", b"5"),
        ]
        tasks = [asyncio.ensure_future(call) for call in calls]
        cancelled = asyncio.ensure_future(store.write_log("r", 0, "d", b"6"))
        await waiting(store, 7)
        cancelled.cancel()
        await asyncio.wait([cancelled])
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert await first
    assert found[:3] == [True, False, False]
    assert isinstance(found[3], CommitConflict)
    assert isinstance(found[4], ValueError)
    assert found[5]
    assert await store.read_log("r", 0) == {"old": b"0", "first": b"1", "a": b"1"}
    assert await store.read_log("r", 1) == {"a": b"5"}


async def test_a_disk_that_is_full_is_told_to_all_who_remember(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, "r", 1)

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(file_layout, "write", full)
        found = await asyncio.gather(
            *(store.write_log("r", 0, f"k{n}", b"1") for n in range(5)), return_exceptions=True
        )
    assert [type(each) for each in found] == [StoreUnavailable] * 5
    assert await store.read_log("r", 0) == {}
    assert await store.write_log("r", 0, "k0", b"1")


async def test_a_file_of_several_things_is_found_by_another_store(
    store: FileStore, other: FileStore, tmp_path: Path
) -> None:
    await fill(store, "r", 1)
    with file_lock.lock_folder(tmp_path / "w" / "r"):
        tasks = [asyncio.ensure_future(store.write_log("r", 0, "a", b"1"))]
        await begun(store)
        tasks += [asyncio.ensure_future(store.write_log("r", 0, key, b"1")) for key in "bcd"]
        await waiting(store, 3)
    assert all(await asyncio.gather(*tasks))
    assert sorted(os.listdir(tmp_path / "w" / "r" / "memory")) == ["000000-a.json", "000000-b.json"]
    for key in "abcd":
        assert not await other.write_log("r", 0, key, b"2")
    assert await other.read_log("r", 0) == dict.fromkeys("abcd", b"1")
    await other.append(record("r", 1), CommitEffects(drop_log_through=0))
    assert await store.read_log("r", 0) == {}
    assert os.listdir(tmp_path / "w" / "r" / "memory") == []


async def test_memory_that_a_person_deleted_is_remembered_again(store: FileStore, tmp_path: Path) -> None:
    await fill(store, "r", 1)
    assert await store.write_log("r", 0, "a", b"1")
    (tmp_path / "w" / "r" / "memory" / "000000-a.json").unlink()
    os.utime(tmp_path / "w" / "r" / "memory", (1, 1))  # whatever the clock of this file system is like
    assert await store.write_log("r", 0, "a", b"2")
    assert await store.read_log("r", 0) == {"a": b"2"}


# -------------------------------------------------------------------- claims


async def test_the_number_of_a_claim_is_kept_when_it_is_let_go(store: FileStore, tmp_path: Path) -> None:
    await fill(store, "r", 1)
    fence = await store.acquire("r", this_process("mine"), seconds=60)
    await store.release("r", this_process("mine"))
    kept = json.loads((tmp_path / "w" / "r" / "owner.json").read_text())
    assert (kept["until"], kept["fence"]) == (None, fence)
    assert await store.acquire("r", this_process("other"), seconds=60) == fence + 1
