"""What is special about the store in a directory."""

import asyncio
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stepwell.errors import CheckpointCorrupt, DurabilityError, RunBusy, StoreUnavailable
from stepwell.storage.lease import this_process
from stepwell.storage.port import CommitEffects
from stepwell.stores.files import layout as file_layout
from stepwell.stores.files import lock as file_lock
from stepwell.stores.files.layout import safe_name
from stepwell.stores.files.store import FileStore
from stepwell.testing.store_rules.samples import ODD_IDS, fill, meaning, numbers, places, record, text
from tests.support.spies import first, spy

RACE = """
import asyncio, sys, time
from stepwell.errors import CommitConflict
from stepwell.stores.files.store import FileStore
from stepwell.testing.store_rules.samples import record

async def main():
    store, won = FileStore({path!r}), []
    while time.time() < {start}: pass
    for number in range({count}):
        try:
            await store.append(record("r", number, body={name!r}, checkpoint_id=f"{name}-{{number}}"))
            won.append(number)
        except CommitConflict:
            head = await store.head("r")
            assert head.entry.number >= number, (head, number)
    await store.close()
    print(*won)

asyncio.run(main())
"""

ENDLESS = """
import asyncio, sys
from stepwell.storage.port import CommitEffects
from stepwell.stores.files.store import FileStore
from stepwell.testing.store_rules.samples import record

async def main():
    store = FileStore({path!r})
    number = 0
    while True:
        await store.write_log("r", number, "k", b"1")
        await store.append(record("r", number, body="x" * 50000), CommitEffects(drop_log_through=number))
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


def python(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
async def store(root: Path) -> AsyncIterator[FileStore]:
    made = FileStore(root)
    yield made
    await made.close()


def every_file(root: Path) -> dict[str, bytes]:
    """What is stored. What is in a lock is nothing that is stored."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.process
def test_processes_that_create_the_store_and_append_at_once_share_the_numbers(root: Path) -> None:
    for attempt in range(3):
        path = str(root / str(attempt))
        start = time.time() + 0.6
        racers = [python(RACE.format(path=path, start=start, count=25, name=name)) for name in "abcd"]
        won = [[int(number) for number in racer.communicate()[0].split()] for racer in racers]
        assert [racer.returncode for racer in racers] == [0, 0, 0, 0]
        assert sorted(number for each in won for number in each) == list(range(25))
        stored = asyncio.run(FileStore(path).history("r"))
        for name, numbers_won in zip("abcd", won, strict=True):
            assert [r.entry.number for r in stored if r.body == text(name)] == numbers_won


@pytest.mark.process
async def test_a_killed_writer_loses_nothing_it_was_told_is_stored(root: Path) -> None:
    for _ in range(4):
        writer = python(ENDLESS.format(path=str(root)))
        assert writer.stdout is not None
        told = [writer.stdout.readline() for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.read().splitlines()
        writer.wait()
        writer.stdout.close()
        store = FileStore(root)
        kept = numbers(await store.history("r"))
        assert kept == list(range(len(kept)))
        assert len(kept) >= len([line for line in told if line])
        assert len(await store.entries()) == len(kept)
        await store.append(record("r", len(kept)), CommitEffects(drop_log_through=len(kept)))
        assert await store.read_log("r", len(kept) - 1) == {}
        await store.close()
        assert not list(root.rglob(".tmp-*"))
        shutil.rmtree(root)


async def test_a_person_finds_and_reads_a_record(store: FileStore, root: Path) -> None:
    await store.append(record("run-1", 0, workflow="billing", body={"b": [1], "a": 2}))
    text = (root / "billing" / "run-1" / "000000-run-1-0.json").read_text()
    assert '\n  "workflow": "billing",\n' in text
    assert '\n  "body": {\n    "b": [\n      1\n    ],\n    "a": 2\n  }\n}\n' in text
    assert json.loads((root / "stepwell.json").read_text()) == {"format": 1}


async def test_no_name_leads_out_of_the_root(store: FileStore, root: Path) -> None:
    for name in ODD_IDS:
        await store.append(record(name, 0, workflow=name, checkpoint_id=name))
        await store.write_log(name, 1, name, b"1")
        await store.acquire(name, this_process("mine"), seconds=60)
    assert os.listdir(root.parent) == [root.name]
    depths = {len(path.relative_to(root).parts) for path in root.rglob("*.json")}
    assert depths == {1, 3, 4}


def test_two_names_never_become_one() -> None:
    names = [*ODD_IDS, *(safe_name(name) for name in ODD_IDS)]
    made = [safe_name(name).casefold() for name in dict.fromkeys(names)]
    assert len(set(made)) == len(made)
    for name in made:
        assert 0 < len(name) <= 100
        assert not name.startswith(".")
        assert "/" not in name


# -------------------------------------------------------------------- damage


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garble(path: Path) -> None:
    path.write_bytes(b"\xff\xfe not json")


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def spoil_a_text(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"n"', b'"\xff"'))


def rename_the_run(path: Path) -> None:
    path.write_text(path.read_text().replace('"run_id": "r"', '"run_id": "other"'))


def renumber(path: Path) -> None:
    path.write_text(path.read_text().replace('"number": 1', '"number": 7'))


def change_the_workflow(path: Path) -> None:
    path.write_text(path.read_text().replace('"workflow": "w"', '"workflow": "v"'))


def change_the_id(path: Path) -> None:
    path.write_text(path.read_text().replace("r-1", "r-2"))


def make_it_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_it_a_broken_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def drop_a_field(path: Path) -> None:
    path.write_text(path.read_text().replace('"status": "running",', ""))


DAMAGES = [truncate, empty, garble, zeros, spoil_a_text, rename_the_run, renumber, change_the_workflow, change_the_id]
DAMAGES += [make_it_a_folder, make_it_a_broken_link, drop_a_field]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_a_damaged_file_is_named(store: FileStore, root: Path, damage: Callable[[Path], None]) -> None:
    await fill(store, "r", 2)
    await fill(store, "fine", 1)
    path = root / "w" / "r" / "000001-r-1.json"
    damage(path)
    os.utime(path.parent, (time.time() + 1, time.time() + 1))
    for reading in (
        store.head("r"),
        store.chain("r", 1),
        store.history("r"),
        store.locate("r-1"),
        store.entries(),
        store.entries(workflow="w"),
        store.newest(),
        store.newest(workflow="w"),
        store.newest(run_id="r"),
    ):
        with pytest.raises(CheckpointCorrupt, match=str(path)):
            await reading
    assert numbers(await store.chain("r", 0)) == [0]
    assert numbers(await store.history("fine")) == [0]


async def test_history_past_a_number_reads_nothing_before_it(store: FileStore, root: Path) -> None:
    await fill(store, "r", 4)
    for number in (0, 1):
        truncate(root / "w" / "r" / f"00000{number}-r-{number}.json")
    assert numbers(await store.history("r", after=1)) == [2, 3]
    with pytest.raises(CheckpointCorrupt, match="000001-r-1"):
        await store.history("r", after=0)


async def test_a_file_with_the_name_of_nothing_is_named(store: FileStore, root: Path) -> None:
    await fill(store, "r", 2)
    path = root / "w" / "r" / "000001-r-1.json"
    path.rename(path.with_name("copy of 1.json"))
    with pytest.raises(CheckpointCorrupt, match=r"copy of 1\.json"):
        await store.head("r")


async def test_damaged_memory_and_claims_are_named(store: FileStore, root: Path) -> None:
    await fill(store, "r", 1)
    await store.write_log("r", 1, "k", b"1")
    await store.acquire("r", this_process("mine"), seconds=60)
    truncate(root / "w" / "r" / "memory" / "000001-k.json")
    (root / "w" / "r" / "owner.json").write_text("{}")
    with pytest.raises(CheckpointCorrupt, match=r"000001-k\.json"):
        await store.read_log("r", 1)
    with pytest.raises(CheckpointCorrupt, match=r"owner\.json"):
        await store.acquire("r", this_process("mine"), seconds=60)


async def test_a_foreign_file_is_left_alone(store: FileStore, root: Path) -> None:
    await fill(store, "r", 1)
    for path in (root / "notes.txt", root / "data.json", root / "w" / "notes", root / "w" / "r" / "notes.txt"):
        path.write_text("mine")
    (root / "photos" / "2020").mkdir(parents=True)
    (root / "photos" / "2020" / "index.json").write_text("{}")
    await store.append(record("r", 1))
    assert numbers(await store.history("r")) == [0, 1]
    assert places(await store.entries()) == [("r", 0), ("r", 1)]
    assert (root / "w" / "r" / "notes.txt").read_text() == "mine"


async def test_a_newer_format_is_refused_and_left_alone(store: FileStore, root: Path) -> None:
    await fill(store, "r", 1)
    (root / "stepwell.json").write_text('{"format": 2, "more": true}')
    before = every_file(root)
    other = FileStore(root)
    for call in (other.append(record("r", 1)), other.head("r"), other.entries(), other.write_log("r", 1, "k", b"1")):
        with pytest.raises(StoreUnavailable, match="newer"):
            await call
    await other.close()
    assert every_file(root) == before


async def test_a_record_of_a_newer_format_is_refused(store: FileStore, root: Path) -> None:
    await fill(store, "r", 1)
    path = root / "w" / "r" / "000000-r-0.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(StoreUnavailable, match="newer"):
        await store.head("r")


async def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "store"):
        store = FileStore(path)
        for call in (store.append(record("r", 0)), store.entries()):
            with pytest.raises(DurabilityError, match=str(tmp_path / "file")):
                await call
        await store.close()


async def test_a_full_disk_is_reported_and_leaves_nothing(
    store: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, "r", 1)
    before = every_file(root)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreUnavailable, match=f"{root}.*No space left"):
            await store.append(record("r", 1))
    assert every_file(root) == before
    await store.append(record("r", 1))


async def test_a_body_that_is_not_json_is_not_written(store: FileStore, root: Path) -> None:
    await fill(store, "r", 1)
    for body in (b"", b"{", b'1, "seq": 5', b"{} {}"):
        with pytest.raises(ValueError, match=r"."):
            await store.append(type(record("r", 1))(record("r", 1).entry, body))
    assert numbers(await store.history("r")) == [0]


# -------------------------------------------------------------------- what a crash leaves


async def test_half_written_files_are_ignored_and_cleaned_up(store: FileStore, root: Path) -> None:
    await fill(store, "r", 1)
    await store.write_log("r", 1, "k", b"1")
    for folder in (root / "w" / "r", root / "w" / "r" / "memory"):
        (folder / ".tmp-1-1").write_text('{"format"')
    with file_lock.lock_folder(root / "w" / "r") as lock:
        assert lock is not None
        file_lock.write_token(lock)  # whoever was killed there had begun with that
    assert numbers(await store.history("r")) == [0]
    assert await store.read_log("r", 1) == {"k": b"1"}
    other = FileStore(root)  # as a process that comes after the one that was killed
    await other.append(record("r", 1))
    await other.close()
    assert not list(root.rglob(".tmp-*"))


async def test_memory_of_a_settled_place_is_forgotten_by_the_next_append(store: FileStore, root: Path) -> None:
    await fill(store, "r", 1)
    await store.write_log("r", 1, "k", b"1")
    await store.append(record("r", 1))  # as if killed before it forgot place 1
    await store.append(record("r", 2), CommitEffects(drop_log_through=2))
    assert not list(root.rglob("000001-k.json"))


async def test_of_a_record_and_its_replacement_the_replacement_counts(store: FileStore, root: Path) -> None:
    await fill(store, "r", 2)
    old = root / "w" / "r" / "000001-r-1.json"
    content, at = old.read_bytes(), old.stat().st_mtime_ns
    await store.put(record("r", 1, checkpoint_id="new", body="new"))
    old.write_bytes(content)  # as if killed before it was deleted
    os.utime(old, ns=(at, at))
    assert meaning(await store.head("r")) == meaning(record("r", 1, checkpoint_id="new", body="new"))
    await store.append(record("r", 2))
    assert not old.exists()
    assert numbers(await store.history("r")) == [0, 1, 2]


async def test_a_released_run_without_records_leaves_no_folder(store: FileStore, root: Path) -> None:
    await store.acquire("r", this_process("mine"), seconds=60)
    await store.release("r", this_process("mine"))
    await store.close()
    assert os.listdir(root / ".new") == []


async def test_a_copy_without_time_stamps_reads_the_same(store: FileStore, root: Path) -> None:
    for run_id, number in [("b", 0), ("a", 0), ("b", 1), ("a", 1), ("b", 2)]:
        await store.append(record(run_id, number))
    copy = root.with_name("copy")
    shutil.copytree(root, copy, copy_function=shutil.copyfile)
    other = FileStore(copy)
    assert await other.entries() == await store.entries()
    assert await other.newest() == await store.newest()
    assert await other.newest(run_id="a") == await store.newest(run_id="a")
    await other.append(record("a", 2))
    assert await other.newest() == record("a", 2).entry
    await other.close()


async def test_a_clock_that_goes_back_does_not_change_the_order(
    store: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, "r", 2)
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    other = FileStore(root)
    await other.append(record("r", 2))
    await other.append(record("s", 0))
    assert places(await other.entries()) == [("r", 0), ("r", 1), ("r", 2), ("s", 0)]
    assert await other.newest() == record("s", 0).entry
    await other.close()


async def test_the_newest_is_found_without_reading_every_file(
    store: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        for run_id in ("a", "b", "c"):
            await store.append(record(run_id, number))
    read: list[Path] = []
    monkeypatch.setattr(file_layout, "read_cover", spy(file_layout.read_cover, read, first))
    assert await store.newest() == record("c", 4).entry
    assert len(read) <= 3
    read.clear()
    for run_id in ("a", "b"):
        os.utime(root / "w" / run_id, (1, 1))
    assert await store.newest(workflow="w") == record("c", 4).entry
    assert len(read) == 1


async def test_a_lock_that_is_never_given_back_is_reported(
    store: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, "r", 1)
    monkeypatch.setattr(file_lock, "PATIENCE", 0.1)
    with file_lock.lock_folder(root / "w" / "r"), pytest.raises(StoreUnavailable, match="held the lock"):
        await store.append(record("r", 1))
    assert numbers(await store.history("r")) == [0]
    await store.append(record("r", 1))


# -------------------------------------------------------------------- several of us


async def test_two_stores_on_one_directory_see_each_other(store: FileStore, root: Path) -> None:
    other = FileStore(root)
    for number in range(10):
        await (store, other)[number % 2].append(record("r", number))
        assert meaning(await (other, store)[number % 2].head("r")) == meaning(record("r", number))
    await store.acquire("r", this_process("mine"), seconds=60)
    with pytest.raises(RunBusy):
        await other.acquire("r", this_process("other"), seconds=60)
    await other.close()


async def test_a_run_that_comes_and_goes_under_many_hands_stays_whole(root: Path) -> None:
    async def hammer(store: FileStore, workflow: str) -> None:
        for n in range(15):
            try:
                await store.append(record("r", 0, workflow=workflow, checkpoint_id=f"{workflow}{n}"))
                await store.write_log("r", 1, workflow, b"1")
                await store.remove("r", 0)
            except DurabilityError as error:
                assert "cannot be added" in str(error) or "belongs to" in str(error)  # noqa: PT017

    stores = [FileStore(root) for _ in range(4)]
    await asyncio.gather(*(hammer(store, f"w{n}") for n, store in enumerate(stores)))
    assert len(list(root.glob("*/r"))) <= 1
    left = await stores[0].head("r")
    if left is not None:
        await stores[0].remove("r", 0)
    await stores[0].append(record("r", 0))
    assert places(await stores[1].entries()) == [("r", 0)]
    for store in stores:
        await store.close()


def fill_in_child(store: FileStore) -> None:
    asyncio.run(fill(store, "child", 5))


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_forked_child_uses_the_store_beside_its_parent(store: FileStore) -> None:
    await fill(store, "parent", 3)
    child = multiprocessing.get_context("fork").Process(target=fill_in_child, args=(store,))
    child.start()
    for number in range(3, 10):
        await store.append(record("parent", number))
    await asyncio.to_thread(child.join, 20)
    assert child.exitcode == 0
    assert numbers(await store.history("child")) == list(range(5))


def test_renewing_and_asking_for_mail_need_no_event_loop(root: Path) -> None:
    store = FileStore(root)
    assert store.renew({"r": 1}, seconds=1) == []
    assert store.runs_with_signals(["r"]) == []
    asyncio.run(store.close())
    assert not root.exists()


async def test_the_disk_is_never_touched_on_the_event_loop(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()

    def watched(handle: int) -> None:
        threads.add(threading.get_ident())

    monkeypatch.setattr(os, "fsync", watched)
    await store.acquire("r", this_process("mine"), seconds=60)
    await fill(store, "r", 3)
    await store.write_log("r", 2, "k", b"1")
    await store.send("r", "letter", b"1")
    await store.release("r", this_process("mine"))
    assert threads
    assert threading.get_ident() not in threads
