"""The store in a directory keeps in mind what it has just written, and never relies on it when it is not so."""

import asyncio
import multiprocessing
import os
import random
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import CheckpointCorrupt, CommitConflict, DurabilityError
from stepwell.storage.lease import this_process
from stepwell.storage.port import CommitEffects, Store
from stepwell.stores.files import folders as file_folders
from stepwell.stores.files import lock as file_lock
from stepwell.stores.files import run_folder as file_run
from stepwell.stores.files.store import FileStore
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing.store_rules.samples import fill, meanings, numbers, question, record, run_metadata
from tests.support.spies import spy


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
async def store(root: Path) -> AsyncIterator[FileStore]:
    made = FileStore(root)
    yield made
    await made.close()


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the folders that are listed from now on."""
    found: list[str] = []
    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, spy(getattr(os, name), found, lambda path: Path(path).name))
    return found


@pytest.fixture
def no_time_stamps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose times are so coarse that they tell nothing."""
    monkeypatch.setattr(file_run, "_change_times", lambda folder: (0, 0))


# -------------------------------------------------------------------- what it costs


def write_word_as_if_killed(folder: Path) -> None:
    with file_lock.lock_folder(folder) as lock:
        assert lock is not None
        file_lock.write_token(lock)


async def superstep(store: Store, number: int) -> None:
    """Everything that a run may do between two records."""
    await store.write_log("r", number - 1, "k", b"1")
    await store.send("r", f"mail {number}", b"1")
    assert [key for key, _ in await store.pending_signals("r")] == [f"mail {number}"]
    asked, closed = (question("r", f"q{number}"),), (f"q{number - 1}",)
    await store.append(record("r", number), CommitEffects(number - 1, (f"mail {number}",), asked, closed, "2026"))


async def test_a_superstep_lists_neither_the_records_nor_the_mail(store: FileStore, listed: list[str]) -> None:
    fence = await store.acquire("r", this_process("mine"), seconds=60)
    await fill(store, "r", 1)
    await superstep(store, 1)
    await superstep(store, 2)
    listed.clear()
    for number in range(3, 10):
        await superstep(store, number)
        await asyncio.to_thread(store.renew, {"r": fence}, seconds=60)
    await store.append(record("r", 10))
    assert set(listed) == {"memory"}
    assert numbers(await store.history("r")) == list(range(11))


async def test_after_another_store_was_there_nothing_is_listed(store: FileStore, root: Path, listed: list[str]) -> None:
    other = FileStore(root)
    await fill(store, "r", 3)
    listed.clear()
    await other.append(record("r", 3))
    await store.append(record("r", 4))
    assert "r" not in listed
    await other.close()


async def test_after_another_store_was_killed_there_everything_is_listed_once(
    store: FileStore, root: Path, listed: list[str]
) -> None:
    other = FileStore(root)
    await fill(store, "r", 4)
    write_word_as_if_killed(root / "w" / "r")
    listed.clear()
    await store.append(record("r", 4))
    assert "r" in listed
    listed.clear()
    await store.append(record("r", 5))
    assert "r" not in listed
    await other.close()


async def test_what_is_kept_in_mind_is_bounded(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_folders, "CACHED_RUNS", 3)
    for number in range(3):
        for run_id in "abcde":
            await store.append(record(run_id, number))
            assert len(store._folders._caches) <= 3
    for run_id in "abcde":
        assert numbers(await store.history(run_id)) == [0, 1, 2]


# -------------------------------------------------------------------- when it is not so


KEYS = [str(n) for n in range(40)]


class Operator:
    """Does the same at random to a model and to one of several stores on one directory."""

    def __init__(self, seed: int, model: MemoryStore, stores: list[FileStore]) -> None:
        self._random, self._model, self._stores = random.Random(seed), model, stores
        self._count = 0

    async def step(self) -> None:
        store = self._random.choice(self._stores)
        head = await self._model.head("r")
        latest = head.entry.number if head else -1
        act = self._action(latest)
        assert await outcome(act(store)) == await outcome(act(self._model))
        place = self._random.choice(self._stores)
        assert await facts(place) == await facts(self._model)

    def _action(self, latest: int) -> Callable[[Store], Awaitable[object]]:
        chosen = self._random
        self._count += 1
        key, drive = chosen.choice(KEYS), chosen.choice("xy")
        number, id = chosen.randrange(max(latest, 0) + 2), f"c{self._count}"
        asked = tuple(question("r", each) for each in "pq" if chosen.random() < 0.3)
        closed = tuple(each for each in "pq" if chosen.random() < 0.3)
        consumed = tuple(each for each in KEYS if chosen.random() < 0.05)
        told = run_metadata(team=chosen.choice("ab")) if chosen.random() < 0.2 else None
        below = chosen.randrange(latest + 1) if latest > 0 and chosen.random() < 0.2 else None
        drop_log_through, wake = latest if chosen.random() < 0.5 else None, chosen.choice(["2026", None])
        effects = CommitEffects(drop_log_through, consumed, asked, closed, wake, told, below)
        outputs = chosen.random() < 0.2
        actions: list[tuple[float, Callable[[Store], Awaitable[object]]]] = [
            (8, lambda store: store.append(record("r", latest + 1, checkpoint_id=id, outputs=outputs, at=id), effects)),
            (1, lambda store: store.append(record("r", number, checkpoint_id=id), effects)),
            (1, lambda store: store.put(record("r", number, checkpoint_id=id), effects)),
            (1, lambda store: store.remove("r", number, asked=asked)),
            (3, lambda store: store.remove("r", latest, asked=asked, wake=wake)),
            (0.3, lambda store: store.drop("r")),
            (4, lambda store: store.send("r", key, b"1")),
            (2, lambda store: store.write_log("r", max(latest, 0), key, b"1")),
            (1, lambda store: claimed(store, drive)),
            (1, lambda store: store.release("r", this_process(drive))),
        ]
        return chosen.choices([act for _, act in actions], [weight for weight, _ in actions])[0]


async def claimed(store: Store, drive: str) -> bool:
    return await store.acquire("r", this_process(drive), seconds=60) > 0


async def outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except DurabilityError as error:
        return type(error)


async def facts(store: Store) -> dict[str, Any]:
    head = await store.head("r")
    entries = await store.entries()
    before = entries[len(entries) // 2].checkpoint_id if entries else "none"
    return {
        "runs": await store.runs(),
        "page": await store.entries(limit=3),
        "page of the run": await store.entries(run_id="r", limit=2, before=before),
        "newest of the run": await store.newest(run_id="r"),
        "outputs": numbers(await store.history("r", outputs_only=True)),
        "history": meanings(await store.history("r")),
        "entries": entries,
        "newest": await store.newest(),
        "memory": await store.read_log("r", head.entry.number if head else 0),
        "pending": await store.pending(),
        "wakes": await store.wakes(),
        "mail": await store.pending_signals("r"),
        "mailed": await asyncio.to_thread(store.runs_with_signals, ["r"]),
    }


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.usefixtures("no_time_stamps")
async def test_stores_on_one_directory_never_differ_from_one_store(
    seed: int, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    stores = [FileStore(root) for _ in range(1 + seed % 3)]
    operator = Operator(seed, MemoryStore(), stores)
    for _ in range(120):
        await operator.step()
    for store in stores:
        await store.close()


@pytest.mark.usefixtures("no_time_stamps")
async def test_a_newest_record_that_a_person_took_away_is_not_built_upon(store: FileStore, root: Path) -> None:
    await fill(store, "r", 3)
    (root / "w" / "r" / "000002-r-2.json").unlink()
    with pytest.raises(CommitConflict):
        await store.append(record("r", 3))
    await store.append(record("r", 2))
    assert numbers(await store.history("r")) == [0, 1, 2]


async def test_what_a_person_put_there_is_noticed(store: FileStore, root: Path) -> None:
    await fill(store, "r", 1)
    folder = root / "w" / "r"
    await fill(other := FileStore(root.with_name("other")), "r", 2)
    shutil.copy(root.with_name("other") / "w" / "r" / "000001-r-1.json", folder)
    os.utime(folder, (1, 1))  # whatever the clock of this file system is like
    with pytest.raises(CommitConflict):
        await store.append(record("r", 1))
    await store.append(record("r", 2))
    (folder / "copy of 2.json").write_text("{}")
    os.utime(folder, (1, 1))
    with pytest.raises(CheckpointCorrupt, match="copy of 2"):
        await store.append(record("r", 3))
    await other.close()


@pytest.mark.usefixtures("no_time_stamps")
async def test_a_full_disk_does_not_prevent_a_removal_and_others_notice_it(
    store: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, data: bytes, offset: int) -> int:
        raise OSError(28, "No space left on device")

    other = FileStore(root)
    await fill(store, "r", 3)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        assert await other.remove("r", 2)
        await other.append(record("r", 2, checkpoint_id="others"))
    with pytest.raises(CommitConflict):
        await store.append(record("r", 2))
    await store.append(record("r", 3))
    assert numbers(await other.history("r")) == [0, 1, 2, 3]
    await other.close()


def append_in_child(store: FileStore) -> None:
    asyncio.run(fill_from(store, 3))


async def fill_from(store: FileStore, first: int) -> None:
    for number in range(first, first + 3):
        await store.append(record("r", number))
        await store.send("r", str(number), b"1")


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.usefixtures("no_time_stamps")
async def test_a_parent_notices_what_its_forked_child_has_done_and_the_other_way_round(store: FileStore) -> None:
    await fill(store, "r", 3)
    child = multiprocessing.get_context("fork").Process(target=append_in_child, args=(store,))
    child.start()
    await asyncio.to_thread(child.join, 20)
    assert child.exitcode == 0
    assert not await store.send("r", "4", b"1")
    with pytest.raises(CommitConflict):
        await store.append(record("r", 3))
    await fill_from(store, 6)
    assert numbers(await store.history("r")) == list(range(9))
    assert [key for key, _ in await store.pending_signals("r")] == [str(number) for number in range(3, 9)]
