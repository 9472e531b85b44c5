"""A disk that is full, can only be read, or tore a write: it is heard of, nothing is lost, and nothing is repeated."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stepwell.errors import CheckpointCorrupt, DurabilityError, StoreUnavailable
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import RequestFilter
from stepwell.storage.integrity import VerifiedStore
from stepwell.stores.files.layout import run_name
from stepwell.stores.files.store import FileStore
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing import ConfinedSQLiteStore, FailingDisk, Ledger, torn
from stepwell.testing.store_rules.samples import record
from tests.support.payments import EFFECTS, OUTPUTS, RUN, Payment

STEP_ONCE = [
    "book",
    "mail",
    "rate",
    "sum",
    "take",
]  # what must be done once, unless the disk failed at that very moment


async def operations(folder: Path, **how: Any) -> int:
    """How much a whole run does to the disk."""
    with FailingDisk(folder, **how) as disk:
        store = FileStore(folder / "counted")
        assert await Payment().drive(store) == OUTPUTS
        await store.close()
    return disk.operations


def repeated(ledger: Ledger) -> int:
    """How many calls were made again. Each failure may cost those whose outcome it kept from being written."""
    return sum(ledger.calls.values()) - len(STEP_ONCE)


@pytest.mark.long
@pytest.mark.parametrize(
    "how",
    [{}, {"once": True}, {"read_only": True}, {"read_only": True, "once": True}],
    ids=["full", "full-once", "read-only", "read-only-once"],
)
async def test_a_disk_that_fails_anywhere_is_heard_of_and_the_run_goes_on(tmp_path: Path, how: dict[str, bool]) -> None:
    total = await operations(tmp_path, **how)
    assert total > 25
    for at in range(1, total + 1):
        payment, place = Payment(), tmp_path / str(at)
        store = FileStore(place)
        with FailingDisk(tmp_path, at, **how) as disk:
            try:
                outputs = await payment.drive(store)
            except DurabilityError as error:  # whoever drives the run hears of it, and why
                assert "No space left" in told(error) or "Read-only" in told(error)  # noqa: PT017
            else:
                # only a claim that could not be let go, or what is tidied up after a commit, may fail in silence
                assert outputs == OUTPUTS
        assert disk.failures or disk.operations < at, at  # how many writes a run shares is up to the machine
        with FailingDisk(tmp_path):  # which has room again
            again = FileStore(place)
            assert await payment.drive(again if at % 2 else store) == OUTPUTS, at
            assert payment.ledger.effects == EFFECTS, at
            assert repeated(payment.ledger) <= 2, (at, payment.ledger.calls)
            head = await BuiltInStorage(again).get_latest(run_id=RUN)
            assert head is not None
            assert head.state["rates"] == [1]
            await again.close()
            await store.close()


def write_to(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def told(error: BaseException | None) -> str:
    """What an error says, with its causes."""
    return "" if error is None else f"{error}; {told(error.__cause__)}"


@pytest.mark.long
async def test_a_full_disk_of_a_sqlite_store_is_heard_of_and_the_run_goes_on(tmp_path: Path) -> None:
    sound = SQLiteStore(tmp_path / "sound.db")
    await Payment().drive(sound, "another")
    await sound.close()
    failures = 0
    for room in range(60):
        shutil.copy(tmp_path / "sound.db", tmp_path / f"{room}.db")
        pages = os.path.getsize(tmp_path / "sound.db") // 4096 + room
        payment, store = Payment(), ConfinedSQLiteStore(tmp_path / f"{room}.db", pages=pages)
        try:
            await payment.drive(store, "x" * 2000)  # long ids soon fill a page
        except StoreUnavailable as error:
            assert "database or disk is full" in told(error)  # noqa: PT017
            failures += 1
        else:
            break
        store.pages = None
        assert await payment.drive(store, "x" * 2000) == OUTPUTS
        assert payment.ledger.effects == EFFECTS
        assert repeated(payment.ledger) <= 2
        assert await Payment().drive(store, "another") == OUTPUTS
        await store.close()
    else:
        raise AssertionError("the file never had room enough")
    assert failures > 5


async def test_a_sqlite_store_that_can_only_be_read_is_heard_of_and_the_run_goes_on(tmp_path: Path) -> None:
    counted = ConfinedSQLiteStore(tmp_path / "counted.db")
    assert await Payment().drive(counted) == OUTPUTS
    await counted.close()
    for at in range(1, counted.writes + 1):
        payment, store = Payment(), ConfinedSQLiteStore(tmp_path / f"{at}.db", read_only_at=at)
        try:
            outputs = await payment.drive(store)
        except StoreUnavailable as error:
            assert "readonly" in told(error)  # noqa: PT017
        else:
            assert outputs == OUTPUTS
            assert at == counted.writes, "only to let the run go may fail in silence"
        store.read_only_at = None
        assert await payment.drive(store) == OUTPUTS
        assert payment.ledger.effects == EFFECTS
        assert repeated(payment.ledger) <= 2
        await store.close()


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process may become larger, really."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.long
async def test_a_file_that_the_system_lets_not_grow_is_heard_of_and_the_run_goes_on(tmp_path: Path) -> None:
    failures = 0
    for size in range(40_000, 400_000, 17_000):
        payment, store = Payment(), SQLiteStore(tmp_path / f"{size}.db")
        try:
            with largest_file(size):
                await payment.drive(store)
        except DurabilityError as error:
            assert str(tmp_path / f"{size}.db") in told(error)  # noqa: PT017
            failures += 1
        assert await payment.drive(store) == OUTPUTS
        assert payment.ledger.effects == EFFECTS
        assert repeated(payment.ledger) <= 2
        await store.close()
    assert failures > 3


@pytest.mark.long
async def test_a_torn_log_is_as_it_was_before_and_costs_nobody_else_anything(tmp_path: Path) -> None:
    path = await make_two_runs(tmp_path)
    store = FileStore(tmp_path)
    whole = await read_all(store)
    await store.close()
    seen = set()
    for size in torn(path, every=11):
        again = FileStore(tmp_path)
        found = await read_all(again)
        assert found["history"] == whole["history"][: len(found["history"])], size
        assert found["signals"] in ([], whole["signals"])
        seen.add(len(found["history"]))
        await again.close()
    assert seen == set(range(len(whole["history"]) + 1))
    again = FileStore(tmp_path)
    with FailingDisk(tmp_path):
        for size in torn(path, every=200):
            assert await Payment().drive(again, "other") == OUTPUTS, size
    assert await read_all(again) == whole
    await again.close()


@pytest.mark.long
@pytest.mark.parametrize("damage", [b"\0" * 8, b"x" * 8, b'"' * 3, b"\n"])
async def test_a_damaged_log_is_named_and_costs_nobody_else_anything(tmp_path: Path, damage: bytes) -> None:
    path = await make_two_runs(tmp_path)
    store = FileStore(tmp_path)
    whole = await read_all(store)
    await store.send(RUN, "last", b"{}")  # so that what is damaged before it cannot be the work of a crash
    whole["signals"] = await store.pending_signals(RUN)
    await store.close()
    content, named = path.read_bytes(), 0
    for start in range(0, len(content) - 150, 13):
        path.write_bytes(content[:start] + damage + content[start + len(damage) :])
        again = FileStore(tmp_path)
        try:
            assert await read_all(again) == whole  # what is damaged is not needed any more
        except CheckpointCorrupt as error:
            assert str(path) in str(error)  # noqa: PT017
            named += 1
        with FailingDisk(tmp_path):
            assert await Payment().drive(again, "other") == OUTPUTS
        await again.close()
    assert named > len(content) / 13 / 2


async def make_two_runs(root: Path) -> Path:
    """One that is completed, and one that waits. The log of the second one."""
    store = FileStore(root)
    await Payment().drive(store, "other")
    await Payment().wait(store)
    await store.send(RUN, "answer/0/late", b'{"a":1}')
    await store.write_log(RUN, 1, "9.9/step/0/x", b'{"b":2}')
    await store.close()
    return root / "runs" / run_name(RUN)


async def read_all(store: Any) -> dict[str, Any]:
    """Everything that is known of a run."""
    opened = await store.open(RUN)
    found = {
        "history": await store.history(RUN),
        "requests": await store.requests(RequestFilter(run_id=RUN)),
        "signals": await store.pending_signals(RUN),
        "records": opened.records,
        "log": opened.log,
        "run": await store.run(RUN),
    }
    await asyncio.to_thread(store.renew, {RUN: 1}, seconds=None)
    return found


@pytest.mark.long
async def test_a_torn_commit_of_a_sqlite_store_is_as_if_it_was_never_made(tmp_path: Path) -> None:
    store, log = SQLiteStore(tmp_path / "runs.db"), tmp_path / "runs.db-wal"
    for number in range(3):
        await store.append(record("r", number, body="x" * 3000))
    acknowledged = log.stat().st_size
    await store.append(record("r", 3, body="y" * 3000))
    (tmp_path / "copy").mkdir()
    for path in (tmp_path / "runs.db", log):  # as it lies there when the power fails
        shutil.copy(path, tmp_path / "copy")
    await store.close()
    for size in torn(tmp_path / "copy" / "runs.db-wal", start=acknowledged, every=499):
        shutil.copytree(tmp_path / "copy", tmp_path / str(size))
        found = SQLiteStore(tmp_path / str(size) / "runs.db")
        assert [one.entry.number for one in await found.history("r")] == [0, 1, 2], size
        await found.append(record("r", 3))
        await found.close()


async def test_a_torn_database_is_named_or_read_as_it_was(tmp_path: Path) -> None:
    store, path = SQLiteStore(tmp_path / "runs.db"), tmp_path / "runs.db"
    bodies = [record("r", number, body="x" * 3000) for number in range(20)]
    for one in bodies:
        await VerifiedStore(store).append(one)
    await store.close()
    named = 0
    for size in torn(path, start=2, every=2039):  # a file of one byte is an empty one to SQLite
        found = SQLiteStore(path)
        try:
            assert await VerifiedStore(found).history("r") == bodies, size
        except CheckpointCorrupt:
            named += 1
        except StoreUnavailable as error:
            assert str(path) in str(error)  # noqa: PT017
            named += 1
        await found.close()
        for beside in (tmp_path / "runs.db-wal", tmp_path / "runs.db-shm"):
            beside.unlink(missing_ok=True)
    assert named > 50
    found = SQLiteStore(path)
    assert await VerifiedStore(found).history("r") == bodies
    await found.close()


def test_a_failing_disk_leaves_other_folders_alone_and_everything_as_it_was(tmp_path: Path) -> None:
    real = (os.open, os.fsync, os.replace, open)
    (tmp_path / "a").mkdir()
    with FailingDisk(tmp_path / "a", at=1) as disk:
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "c").write_text("c")
        with pytest.raises(OSError, match="No space left") as caught, open(tmp_path / "a" / "c", "w"):
            pass
        assert caught.value.errno == errno.ENOSPC
        with pytest.raises(OSError, match="No space left"):
            (tmp_path / "a" / "d").mkdir()
    assert (disk.operations, disk.failures) == (2, 2)
    assert (os.open, os.fsync, os.replace, open) == real
    with FailingDisk(tmp_path / "a", at=2), pytest.raises(OSError, match="No space left"):
        write_to(tmp_path / "a" / "half", b"12345678")
    assert (tmp_path / "a" / "half").read_bytes() == b"1234"
