"""A directory that a person can read: one folder per run, one JSON file per record."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec

from ..core.errors import CheckpointCorrupt, CommitConflict, StoreUnavailable
from ..durable.ownership import Owner
from ..durable.ports import Entry, Record, needs_follower
from ..durable.storage import BuiltInStorage
from . import file_layout as disk
from .file_layout import FORMAT, LOCK, MARK, MEMORY, NEW, OWNER, Mark, Memo, Sheet

THREADS = 8
ATTEMPTS = 20  # at reading a folder that is being changed meanwhile
COARSE = 2_000_000_000  # ns: the least exact time stamps a file system may have

P = ParamSpec("P")
T = TypeVar("T")


class FileStore:
    """Keeps everything in the directory `path`, which is created at the first write, with the folders above it.

    Any number of processes of one machine may use it at once. A store of a newer Holdfast is refused and
    left as it is. A file that cannot be trusted is named in CheckpointCorrupt and never passed over.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root = Path(os.path.abspath(path))
        self._is_known = False  # the mark of the root was seen
        self._homes: dict[str, Path] = {}  # where runs were found; checked before use
        self._last_seq = 0
        self._pool: tuple[int, ThreadPoolExecutor] | None = None  # with the process that it belongs to

    async def append(self, record: Record, *, settled: int | None = None) -> None:
        await self._off_loop(self._append, record, settled)

    async def put(self, record: Record) -> None:
        await self._off_loop(self._put, record)

    async def remove(self, run_id: str, number: int, *, follower: Record | None = None) -> bool:
        return await self._off_loop(self._remove, run_id, number, follower)

    async def head(self, run_id: str) -> Record | None:
        return await self._off_loop(self._reading, self._head, run_id)

    async def chain(self, run_id: str, number: int) -> list[Record]:
        return await self._off_loop(self._reading, self._chain, run_id, number)

    async def history(self, run_id: str, *, upto: int | None = None, outputs_only: bool = False) -> list[Record]:
        return await self._off_loop(self._reading, self._history, run_id, upto, outputs_only)

    async def locate(self, checkpoint_id: str) -> Entry | None:
        return await self._off_loop(self._reading, self._locate, checkpoint_id)

    async def entries(self, *, workflow: str | None = None, run_id: str | None = None) -> list[Entry]:
        return await self._off_loop(self._reading, self._entries, workflow, run_id)

    async def newest(self, *, workflow: str | None = None, run_id: str | None = None) -> Entry | None:
        return await self._off_loop(self._reading, self._newest, workflow, run_id)

    async def remember(self, run_id: str, place: int, key: str, body: bytes) -> bool:
        return await self._off_loop(self._remember, run_id, place, key, body)

    async def recall(self, run_id: str, place: int) -> dict[str, bytes]:
        return await self._off_loop(self._reading, self._recall, run_id, place)

    async def claim(self, run_id: str, owner: Owner, *, seconds: float) -> None:
        await self._off_loop(self._claim, run_id, owner, seconds)

    def renew(self, run_ids: list[str], owner: Owner, *, seconds: float) -> None:
        for run_id in run_ids:
            self._translating(self._renew, run_id, owner, seconds)

    async def release(self, run_id: str, owner: Owner) -> None:
        await self._off_loop(self._release, run_id, owner)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None and pool[0] == os.getpid():
            await asyncio.to_thread(pool[1].shutdown)

    # ---------------------------------------------------------------- threads and errors

    async def _off_loop(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.wrap_future(self._executor().submit(lambda: self._translating(work, *args, **kwargs)))

    def _executor(self) -> ThreadPoolExecutor:
        pool = self._pool
        if pool is None or pool[0] != os.getpid():  # threads do not follow into a forked child
            pool = self._pool = (os.getpid(), ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-file"))
        return pool[1]

    def _translating(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return work(*args, **kwargs)
        except OSError as error:
            where = error.filename2 or error.filename or self._root
            raise StoreUnavailable(f"the store {self._root} cannot be used: {error.strerror} ({where})") from error

    def _reading(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read without a lock: if a file was taken away between listing and opening, look again."""
        self._check_mark()
        for _ in range(ATTEMPTS):
            try:
                return work(*args, **kwargs)
            except FileNotFoundError as error:
                missing = error
        raise CheckpointCorrupt(f"{missing.filename} cannot be read: it is listed in its folder but is not there")

    # ---------------------------------------------------------------- folders

    def _check_mark(self) -> bool:
        """True if there is a store. Raises if it is not one we know."""
        if not self._is_known:
            try:
                disk.read(self._root / MARK, Mark)
            except FileNotFoundError:
                return False
            self._is_known = True
        return True

    def _find(self, run_id: str) -> Path | None:
        """The folder of a run."""
        known = self._homes.get(run_id)
        if known is not None and known.is_dir():
            return known
        name = disk.safe_name(run_id)
        if (self._root / NEW / name).is_dir():  # first: from there it may be moved to a workflow while we look
            return self._root / NEW / name
        for workflow in self._workflows():
            if (workflow / name).is_dir():
                self._homes[run_id] = workflow / name
                return workflow / name
        return None

    def _workflows(self) -> list[Path]:
        try:
            with os.scandir(self._root) as found:
                return sorted(Path(e.path) for e in found if e.is_dir() and not e.name.startswith("."))
        except FileNotFoundError:
            return []

    def _runs(self, workflow: str | None, run_id: str | None) -> list[Path]:
        """The folders of all runs that match."""
        if run_id is not None:
            home = self._find(run_id)
            return [home] if home and (workflow is None or home.parent.name == disk.safe_name(workflow)) else []
        above = self._workflows() if workflow is None else [self._root / disk.safe_name(workflow)]
        return [run for folder in above if folder.is_dir() for run in sorted(folder.iterdir()) if run.is_dir()]

    @contextmanager
    def _held(self, run_id: str, *, create: bool) -> Iterator[Path | None]:
        """The folder of a run, locked; None if there is none and none is to be created."""
        if not self._check_mark() and create:
            disk.make_folder(self._root)
            disk.write(self._root / MARK, Mark(FORMAT))  # two at once write the same
        while True:
            folder = self._find(run_id) or (self._make(run_id) if create else None)
            if folder is None:
                yield None
                return
            with disk.locked(folder) as is_there:
                if is_there:
                    yield folder
                    return

    def _make(self, run_id: str) -> Path:
        with disk.locked(self._root):  # so that no run ever gets two folders
            folder = self._find(run_id) or self._root / NEW / disk.safe_name(run_id)
            disk.make_folder(folder)
        return folder

    def _move(self, folder: Path, entry: Entry) -> Path:
        """Bring a folder without records to the workflow of its first one."""
        home = self._root / disk.safe_name(entry.workflow) / disk.safe_name(entry.run_id)
        if folder != home:
            with disk.locked(self._root):
                disk.make_folder(home.parent)
                os.rename(folder, home)
                disk.sync_folder(home.parent)
                disk.sync_folder(folder.parent)
            self._homes[entry.run_id] = home
        return home

    def _discard(self, folder: Path) -> None:
        """Delete the folder of a run that has no records, unless someone holds a claim on it."""
        disk.sweep(folder, {})
        disk.forget(folder)
        claim = disk.claim_in(folder)
        if claim is not None and not claim.lease.is_over():
            return
        (folder / OWNER).unlink(missing_ok=True)
        (folder / LOCK).unlink()  # who waits for it looks for the folder anew
        with suppress(OSError):  # or has made a new lock already, and goes on with an empty folder
            folder.rmdir()

    # ---------------------------------------------------------------- writing

    def _append(self, record: Record, settled: int | None) -> None:
        entry = record.entry
        with self._held(entry.run_id, create=entry.number == 0) as folder:
            stored = disk.records_in(folder) if folder else {}
            latest = max(stored, default=-1)
            if folder is None or entry.number != latest + 1:
                raise CommitConflict(
                    f"run {entry.run_id!r} is at commit {latest}, so commit {entry.number} cannot be added: "
                    f"another process has moved the run; stop driving it here"
                )
            folder = self._commit(folder, stored, record)
            if settled is not None:  # the commit is made; what a crash leaves here, the next append forgets
                disk.forget(folder, settled)

    def _put(self, record: Record) -> None:
        with self._held(record.entry.run_id, create=True) as folder:
            assert folder is not None
            self._commit(folder, disk.records_in(folder), record)

    def _commit(self, folder: Path, stored: dict[int, Path], record: Record) -> Path:
        """Write a record as the last one committed, in place of one of its number. The folder it is in now."""
        entry = record.entry
        if not stored:
            folder = self._move(folder, entry)
        _refuse_other_workflow(folder, stored, entry)
        disk.sweep(folder, stored)
        latest = stored[max(stored)].stat().st_mtime_ns if stored else 0  # files carry the time of their commit
        seq = max(time.time_ns(), self._last_seq + 1, latest + 1)
        self._last_seq = seq
        _replace(folder, stored, disk.sheet_of(record, seq))
        return folder

    def _remove(self, run_id: str, number: int, follower: Record | None) -> bool:
        with self._held(run_id, create=False) as folder:
            stored = disk.records_in(folder) if folder else {}
            if folder is None or number not in stored:
                return False
            disk.sweep(folder, stored)
            after = stored.get(number + 1)
            if after is not None and follower is None and not disk.read_sheet(after).frame:
                raise needs_follower(run_id, number)
            if after is not None and follower is not None:
                # in this order a crash in between leaves both records, and each can be read
                _refuse_other_workflow(folder, stored, follower.entry)
                self._put_in_place(folder, stored, follower)
            stored[number].unlink()
            disk.sync_folder(folder)
            left = disk.records_in(folder)
            disk.forget(folder, after=max(left, default=-1))
            if not left:
                self._discard(folder)
            return True

    def _put_in_place(self, folder: Path, stored: dict[int, Path], record: Record) -> None:
        """Write a record where the one of its number stands, without moving it in the order of commits."""
        old = stored[record.entry.number]
        _replace(folder, stored, disk.sheet_of(record, disk.read_sheet(old).seq))

    def _remember(self, run_id: str, place: int, key: str, body: bytes) -> bool:
        memo = Memo(FORMAT, key, msgspec.Raw(disk.compact(body)))
        with self._held(run_id, create=True) as folder:
            assert folder is not None
            path = folder / MEMORY / disk.memo_name(place, key)
            if path.exists():
                return False
            disk.make_folder(path.parent)
            disk.write(path, memo)
            return True

    # ---------------------------------------------------------------- reading

    def _records(self, run_id: str) -> dict[int, Path]:
        folder = self._find(run_id)
        return disk.records_in(folder) if folder else {}

    def _head(self, run_id: str) -> Record | None:
        stored = self._records(run_id)
        return disk.read_sheet(stored[max(stored)]).record if stored else None

    def _chain(self, run_id: str, number: int) -> list[Record]:
        stored = self._records(run_id)
        if number not in stored:
            return []
        links = [disk.read_sheet(stored[number]).record]
        while not links[-1].entry.frame:
            before = links[-1].entry.number - 1
            if before not in stored:
                raise CheckpointCorrupt(
                    f"{stored[before + 1]} cannot be read: it tells only what changed since commit {before} "
                    f"of run {run_id!r}, which is not stored"
                )
            links.append(disk.read_sheet(stored[before]).record)
        return links[::-1]

    def _history(self, run_id: str, upto: int | None, outputs_only: bool) -> list[Record]:
        asked = [path for number, path in self._records(run_id).items() if upto is None or number <= upto]
        sheets = [disk.read_sheet(path) for path in asked]
        return [sheet.record for sheet in sheets if sheet.outputs or not outputs_only]

    def _locate(self, checkpoint_id: str) -> Entry | None:
        ending = disk.record_name(0, checkpoint_id)[6:]
        files = [path for run in self._runs(None, None) for path in disk.records_in(run).values()]
        sheets = [disk.read_sheet(path) for path in files if path.name.lstrip("0123456789") == ending]
        return max(sheets, key=disk.order).entry if sheets else None

    def _entries(self, workflow: str | None, run_id: str | None) -> list[Entry]:
        runs = self._runs(workflow, run_id)
        sheets = [disk.read_sheet(path) for run in runs for path in disk.records_in(run).values()]
        return [sheet.entry for sheet in sorted(sheets, key=disk.order)]

    def _newest(self, workflow: str | None, run_id: str | None) -> Entry | None:
        best: Sheet | None = None
        touched = [(run.stat().st_mtime_ns, run) for run in self._runs(workflow, run_id)]
        for at, run in sorted(touched, reverse=True):
            if best is not None and at + COARSE < best.seq:  # this run and the rest were not touched since
                break
            sheet = disk.newest_in(run)
            if sheet is not None and (best is None or disk.order(sheet) > disk.order(best)):
                best = sheet
        return best.entry if best else None

    def _recall(self, run_id: str, place: int) -> dict[str, bytes]:
        folder = self._find(run_id)
        memos = [disk.read_memo(path, place) for path in disk.memos_in(folder, place)] if folder else []
        return {memo.key: disk.compact(memo.body) for memo in memos}

    # ---------------------------------------------------------------- claims

    def _claim(self, run_id: str, owner: Owner, seconds: float) -> None:
        with self._held(run_id, create=True) as folder:
            assert folder is not None
            claim = disk.claim_in(folder)
            if claim is not None and claim.lease.owner != owner and not claim.lease.is_over():
                raise claim.lease.refuse(run_id)
            disk.write(folder / OWNER, disk.claim_of(owner, time.time() + seconds))

    def _renew(self, run_id: str, owner: Owner, seconds: float) -> None:
        with self._held(run_id, create=False) as folder:
            claim = disk.claim_in(folder) if folder else None
            if folder is not None and claim is not None and claim.lease.owner == owner:
                disk.write(folder / OWNER, disk.claim_of(owner, time.time() + seconds))

    def _release(self, run_id: str, owner: Owner) -> None:
        with self._held(run_id, create=False) as folder:
            claim = disk.claim_in(folder) if folder else None
            if folder is not None and claim is not None and claim.lease.owner == owner:
                (folder / OWNER).unlink()
                if not disk.records_in(folder) and not disk.memos_in(folder):
                    self._discard(folder)


def _replace(folder: Path, stored: dict[int, Path], sheet: Sheet) -> None:
    """Write a record and delete the one of its number, if that has another name."""
    path = folder / disk.record_name(sheet.number, sheet.checkpoint_id)
    disk.write(path, sheet, stamp=sheet.seq)
    old = stored.get(sheet.number, path)
    if old != path:
        old.unlink()


def _refuse_other_workflow(folder: Path, stored: dict[int, Path], entry: Entry) -> None:
    if stored and folder.parent.name != disk.safe_name(entry.workflow):
        raise CommitConflict(
            f"run {entry.run_id!r} belongs to the workflow in {folder.parent} and cannot go on as one of "
            f"{entry.workflow!r}; give the new run another id"
        )


class FileCheckpointStorage(BuiltInStorage):
    """Runs kept in a directory a person can read: one JSON file per checkpoint. Several processes may share it."""

    def __init__(self, storage_path: str | os.PathLike[str]) -> None:
        super().__init__(FileStore(storage_path))
