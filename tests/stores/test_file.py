"""What is special about the store in a directory."""

import asyncio
import fcntl
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell.errors import CheckpointCorrupt, DurabilityError, RunBusy, StoreUnavailable
from stepwell.storage import durable_files
from stepwell.storage.lease import this_process
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, Record
from stepwell.stores.files.layout import run_name
from stepwell.stores.files.store import FileStore
from stepwell.stores.runs import transactions
from stepwell.testing.store_rules.samples import (
    ODD_IDS,
    fill,
    head,
    id_of,
    logged,
    meaning,
    numbers,
    places,
    record,
    signals_of,
    text,
)

RACE = """
import asyncio, sys, time
from stepwell.errors import CommitConflict
from stepwell.stores.files.store import FileStore
from stepwell.testing.store_rules.samples import head, record

async def main():
    store, won = FileStore({path!r}), []
    while time.time() < {start}: pass
    for number in range({count}):
        try:
            await store.append(record("r", number, body={name!r}, checkpoint_id=f"{name}-{{number}}"))
            won.append(number)
        except CommitConflict:
            newest = await head(store, "r")
            assert newest.entry.number >= number, (newest, number)
    await store.close()
    print(*won)

asyncio.run(main())
"""

ENDLESS = """
import asyncio, sys
from stepwell.storage.stored_values import CommitEffects
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


def file_of(root: Path, run_id: str = "r") -> Path:
    return root / "runs" / run_name(run_id)


def every_file(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


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
        assert len(await store.checkpoints()) == len(kept)
        await store.append(record("r", len(kept)), CommitEffects(drop_log_through=len(kept)))
        assert (await store.open("r")).log == []
        await store.close()
        shutil.rmtree(root)


# -------------------------------------------------------------------- people


async def test_a_person_finds_and_reads_a_run(store: FileStore, root: Path) -> None:
    await store.append(record("refund-3", 0, workflow="billing", body={"b": [1], "a": 2}))
    await store.send("refund-3", "answer", text("yes"))
    (path,) = root.glob("runs/*/refund-3~*.jsonl")
    header, commit, body, signal_line, answer = path.read_text().splitlines()
    assert json.loads(header)["run_id"] == "refund-3"
    assert json.loads(commit)["entry"]["workflow"] == "billing"
    assert body == '{"b":[1],"a":2}'
    assert (json.loads(signal_line)["line"], json.loads(signal_line)["key"], answer) == (
        "signal",
        "answer",
        '{"said":"yes"}',
    )
    assert json.loads((root / "stepwell.json").read_text()) == {"format": 1}


async def test_a_body_of_several_lines_is_stored_as_one(store: FileStore, root: Path) -> None:
    await store.append(Record(record("r", 0).entry, b'{\n  "a": [1,\n 2],\n  "b": "x\\ny"\n}'))
    assert [each.body for each in await store.read("r")] == [b'{"a":[1,2],"b":"x\\ny"}']
    assert len(file_of(root).read_bytes().splitlines()) == 3
    with pytest.raises(ValueError, match=r"."):
        await store.append(Record(record("r", 1).entry, b'{\n"a":'))
    await store.append(record("r", 1))


async def test_no_name_leads_out_of_the_root(store: FileStore, root: Path) -> None:
    for name in ODD_IDS:
        await store.append(record(name, 0, workflow=name, checkpoint_id=name))
        await store.write_log(name, 1, name, b"1")
        await store.acquire(name, this_process("mine"), seconds=60)
    assert os.listdir(root.parent) == [root.name]
    assert {len(path.relative_to(root).parts) for path in root.rglob("*.jsonl")} == {3}
    assert len(list(root.rglob("*.jsonl"))) == len(ODD_IDS)


def test_two_runs_never_have_one_file() -> None:
    names = [*ODD_IDS, *(run_name(name) for name in ODD_IDS)]
    made = [run_name(name).casefold() for name in dict.fromkeys(names)]
    assert len(set(made)) == len(made)
    for name in made:
        folder, _, file = name.partition("/")
        assert len(folder) == 2
        assert len(file) <= 100
        assert "/" not in file
        assert not file.startswith(".")


async def test_a_foreign_file_is_left_alone(store: FileStore, root: Path) -> None:
    await fill(store, "r", 1)
    mine = [root / "notes.txt", root / "data.json", root / "runs" / "notes", file_of(root).with_name("notes.jsonl")]
    for path in mine:
        path.write_text("mine")
    (root / "photos" / "2020").mkdir(parents=True)
    (root / "photos" / "2020" / "index.json").write_text("{}")
    await store.append(record("r", 1))
    assert numbers(await store.history("r")) == [0, 1]
    assert places(await store.checkpoints()) == [("r", 0), ("r", 1)]
    assert [path.read_text() for path in mine] == ["mine"] * 4


async def test_a_file_that_was_moved_to_the_place_of_another_is_named(store: FileStore, root: Path) -> None:
    await fill(store, "r", 1)
    await fill(store, "s", 2)
    shutil.copy(file_of(root, "s"), file_of(root, "r"))
    for call in (store.read("r"), store.runs(), store.append(record("r", 1)), store.locate(id_of("r", 0))):
        with pytest.raises(CheckpointCorrupt, match=f"{file_of(root, 'r')} belongs to run 's'; move it back"):
            await call
    assert numbers(await store.history("s")) == [0, 1]


async def test_lines_of_another_run_are_damage(store: FileStore, root: Path) -> None:
    for run_id in ("r", "s"):
        for number in range(2):
            await store.append(record(run_id, number))
    mine, theirs = file_of(root, "r").read_bytes(), file_of(root, "s").read_bytes()
    assert len(mine) == len(theirs)
    start = mine.index(b'{"line":"commit"')
    file_of(root, "r").write_bytes(mine[:start] + theirs[start:])
    other = FileStore(root)
    with pytest.raises(CheckpointCorrupt, match=str(file_of(root, "r"))):
        await other.read("r")
    await other.close()


async def test_a_run_deleted_by_hand_is_gone(store: FileStore, root: Path) -> None:
    await fill(store, "r", 3)
    await store.send("r", "k", text(1))
    file_of(root).unlink()
    assert await store.read("r") == []
    assert await store.runs() == []
    assert await store.send("r", "k", text(2))
    await fill(store, "r", 1)
    shutil.rmtree(root)
    assert await store.runs() == []
    await fill(store, "r", 1)
    assert (root / "stepwell.json").exists()


async def test_a_copy_without_time_stamps_reads_the_same(store: FileStore, root: Path) -> None:
    for run_id, number in [("b", 0), ("a", 0), ("b", 1), ("a", 1), ("b", 2)]:
        await store.append(record(run_id, number))
    copy = root.with_name("copy")
    shutil.copytree(root, copy, copy_function=shutil.copyfile)
    other = FileStore(copy)
    assert await other.checkpoints() == await store.checkpoints()
    await other.append(record("a", 2))
    assert numbers(await store.history("a")) == [0, 1]
    await other.close()


async def test_a_run_with_a_second_name_is_still_replaced(store: FileStore, root: Path) -> None:
    """Some backups are made of hard links."""
    other = FileStore(root)
    await fill(store, "r", 3)
    assert numbers(await other.history("r")) == [0, 1, 2]
    os.link(file_of(root), root.with_name("backup.jsonl"))
    await store.rewrite("r", remove=[0])
    await other.append(record("r", 3))
    assert numbers(await store.history("r")) == [1, 2, 3]
    await other.close()


async def test_a_file_that_was_replaced_before_it_was_locked_is_opened_again(
    store: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, "r", 3)
    other, flock = FileStore(root), fcntl.flock
    done: list[str] = []

    def replace_and_lock(handle: int, operation: int) -> None:
        if not done:
            done.append("replaced")
            run = other._get_locked().run("r")
            with run.writing():
                transactions.rewrite(run, None, [], [0], NO_EFFECTS)
        flock(handle, operation)

    for call in (lambda: store.append(record("r", 3)), lambda: store.history("r")):
        monkeypatch.setattr(fcntl, "flock", replace_and_lock)
        await call()
        monkeypatch.setattr(fcntl, "flock", flock)
        assert numbers(await store.history("r")) == numbers(await other.history("r")) == [1, 2, 3]
    await other.close()


# -------------------------------------------------------------------- damage


async def test_a_damaged_body_is_named_when_it_is_read(store: FileStore, root: Path) -> None:
    for number in range(4):
        await store.append(record("r", number, body=f"number {number}"))
    path = file_of(root)
    path.write_bytes(path.read_bytes().replace(b"number 1", b"numbre 1"))
    assert [run.number for run in await store.runs()] == [3]
    assert len(await store.checkpoints()) == 4
    assert numbers(await store.read("r")) == [3]
    assert numbers(await store.history("r", after=1)) == [2, 3]
    for call in (store.history("r"), store.read("r", 1)):
        with pytest.raises(CheckpointCorrupt, match=rf"{path} is damaged: commit 1 of run 'r' is not what was written"):
            await call
    assert await store.rewrite("r", remove=[1]) == 1
    assert numbers(await store.history("r")) == [0, 2, 3]


async def test_damage_in_old_history_does_not_stop_the_run(store: FileStore, root: Path) -> None:
    for number in range(200):
        await store.append(record("r", number, body="x" * 500))
    await store.close()
    path = file_of(root)
    content = path.read_bytes()
    at = content.index(b'"number":20,')
    path.write_bytes(content[:at] + b'"number":21,' + content[at + 12 :])
    other = FileStore(root)
    assert numbers((await other.open("r")).records) == [199]
    await other.append(record("r", 200))
    assert await other.numbers("r") == [n for n in range(201) if n != 20]
    assert numbers(await other.history("r", after=20, upto=23)) == [21, 22, 23]
    assert await other.locate(id_of("r", 19)) == record("r", 19).entry
    for call in (
        other.history("r"),
        other.history("r", after=19, upto=20),
        other.read("r", 20),
        other.checkpoints(),
        other.locate(id_of("r", 20)),
        other.rewrite("r", remove=[3]),
        other.compact(),
    ):
        with pytest.raises(CheckpointCorrupt, match=f"{path} is damaged at byte"):
            await call
    survey = await other.survey()
    assert ([run.run_id for run in survey.runs], list(survey.damaged)) == (["r"], [])
    await other.close()


async def test_a_survey_names_the_files_that_cannot_be_read(store: FileStore, root: Path) -> None:
    for run_id in ("fine", "garbled", "headless", "folder"):
        await fill(store, run_id, 2)
    await store.close()
    garbled, headless, folder = (file_of(root, name) for name in ("garbled", "headless", "folder"))
    garbled.write_bytes(garbled.read_bytes().replace(b'"number":1', b'"number":7'))
    headless.write_bytes(b"x" + headless.read_bytes())
    folder.unlink()
    folder.mkdir()
    other = FileStore(root)
    survey = await other.survey()
    assert [run.run_id for run in survey.runs] == ["fine"]
    found = {damaged.run_id: damaged.why for damaged in survey.damaged if damaged.run_id is not None}
    assert set(found) == {"garbled"}
    assert str(garbled) in found["garbled"]
    whys = " ".join(damaged.why for damaged in survey.damaged)
    assert str(headless) in whys
    assert str(folder) in whys
    with pytest.raises(DurabilityError, match=str(root)):
        await other.runs()
    assert numbers(await other.history("fine")) == [0, 1]
    await other.close()


# -------------------------------------------------------------------- the place


async def test_a_newer_format_is_refused_and_left_alone(store: FileStore, root: Path) -> None:
    await fill(store, "r", 1)
    (root / "stepwell.json").write_text('{"format": 2, "more": true}')
    before = every_file(root)
    other = FileStore(root)
    for call in (other.append(record("r", 1)), other.read("r"), other.runs(), other.write_log("r", 1, "k", b"1")):
        with pytest.raises(StoreUnavailable, match="newer"):
            await call
    await other.close()
    assert every_file(root) == before


async def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "store"):
        store = FileStore(path)
        for call in (store.append(record("r", 0)), store.runs()):
            with pytest.raises(DurabilityError, match=str(tmp_path / "file")):
                await call
        await store.close()


async def test_reading_creates_nothing(store: FileStore, root: Path) -> None:
    mine = this_process("mine")
    assert [*await store.runs(), *await store.checkpoints(), *await store.read("r"), *await store.numbers("r")] == []
    assert await store.drop("r") is False
    assert await store.rewrite("r", remove=[1]) == 0
    await store.release("r", mine)
    await store.compact()
    report = await asyncio.to_thread(store.renew, {"r": 1}, seconds=1)
    assert (*report.lost, *report.signalled) == ()
    assert not root.exists()
    with pytest.raises(DurabilityError):
        await store.append(record("r", 1))
    assert not list(root.rglob("*.jsonl"))


async def test_a_released_run_without_records_leaves_no_file(store: FileStore, root: Path) -> None:
    await store.acquire("r", this_process("mine"), seconds=60)
    assert file_of(root).exists()
    await store.release("r", this_process("mine"))
    assert not file_of(root).exists()


async def test_a_full_disk_is_reported_and_leaves_nothing(
    store: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, "r", 1)
    before = every_file(root)
    pwrite = os.pwrite

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    def half(handle: int, data: memoryview, offset: int) -> int:
        if len(data) < 20:
            full(handle)
        return pwrite(handle, data[: len(data) // 2], offset)

    for name, failing in (("fsync", full), ("pwrite", half)):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            with pytest.raises(StoreUnavailable, match=f"{root}.*No space left"):
                await store.append(record("r", 1))
        assert every_file(root) == before
    await store.append(record("r", 1))


async def test_a_lock_that_is_never_given_back_is_reported(
    store: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, "r", 1)
    monkeypatch.setattr(durable_files, "PATIENCE", 0.1)
    other = FileStore(root)
    with other._get_locked().run("r").writing():
        for call in (store.append(record("r", 1)), store.read("r")):
            with pytest.raises(StoreUnavailable, match=f"has held the lock on {file_of(root)}"):
                await call
    assert numbers(await store.history("r")) == [0]
    await store.append(record("r", 1))
    await other.close()


# -------------------------------------------------------------------- several of us


async def test_two_stores_on_one_directory_see_each_other(store: FileStore, root: Path) -> None:
    other = FileStore(root)
    for number in range(10):
        await (store, other)[number % 2].append(record("r", number))
        assert meaning(await head((other, store)[number % 2], "r")) == meaning(record("r", number))
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
                await store.rewrite("r", remove=[0], effects=NO_EFFECTS)
            except DurabilityError as error:
                assert "cannot be added" in str(error) or "belongs to" in str(error)  # noqa: PT017

    stores = [FileStore(root) for _ in range(4)]
    await asyncio.gather(*(hammer(store, f"w{n}") for n, store in enumerate(stores)))
    await stores[0].drop("r")
    assert not list(root.rglob("*.part"))
    await stores[0].append(record("r", 0))
    assert places(await stores[1].checkpoints()) == [("r", 0)]
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


def test_a_store_outlives_the_event_loops_that_use_it(root: Path) -> None:
    store = FileStore(root)
    for number in range(3):
        asyncio.run(store.append(record("r", number)))
    assert numbers(asyncio.run(store.history("r"))) == [0, 1, 2]
    asyncio.run(store.close())


async def test_the_number_of_a_lease_is_kept_when_it_is_released(store: FileStore, root: Path) -> None:
    await fill(store, "r", 1)
    fence = await store.acquire("r", this_process("mine"), seconds=60)
    size = file_of(root).stat().st_size
    for _ in range(5):
        await asyncio.to_thread(store.renew, {"r": fence}, seconds=60)
    assert file_of(root).stat().st_size == size, "a renewed lease takes no more room"
    await store.release("r", this_process("mine"))
    other = FileStore(root)
    assert await other.acquire("r", this_process("other"), seconds=60) == fence + 1
    await other.close()


async def test_signals_and_log_of_a_run_without_records_survive(store: FileStore, root: Path) -> None:
    await store.send("r", "k", text(1))
    await store.write_log("r", 0, "k", text(2))
    await store.close()
    other = FileStore(root)
    assert await signals_of(other, "r") == [("k", text(1))]
    assert await logged(other, "r", 0) == {"k": text(2)}
    assert await other.runs() == []
    await other.close()


async def test_a_damaged_run_does_not_cost_others_their_leases(store: FileStore, root: Path) -> None:
    fences = {}
    for run_id in ("a", "b", "c"):
        await fill(store, run_id, 2)
        fences[run_id] = await store.acquire(run_id, this_process("mine"), seconds=0)
    content = file_of(root, "b").read_bytes()
    file_of(root, "b").write_bytes(content.replace(b'"number":1', b'"number":8'))
    other = FileStore(root)
    report = await asyncio.to_thread(other.renew, fences, seconds=600)
    assert list(report.lost) == []
    for run_id in ("a", "c"):
        with pytest.raises(RunBusy):
            await other.acquire(run_id, this_process("other"), seconds=60)
    await other.close()
