"""A directory that a person can read: one folder per run, one JSON file per record."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec

from ..core.errors import CheckpointCorrupt, CommitConflict, StoreUnavailable
from ..durable import clock
from ..durable.ownership import Owner
from ..durable.ports import NOTHING_ALONG, Along, Entry, Pending, Record, Wake, needs_follower
from ..durable.seal import Seal
from ..durable.storage import BuiltInStorage
from . import file_beside as beside
from . import file_layout as disk
from .file_folders import Folders
from .file_layout import FORMAT, LOCK, MEMORY, OWNER, Memo, Sheet
from .file_mail import has_letters
from .file_run import Newest, Run

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
        self._folders = Folders(self._root)
        self._last_seq = 0
        self._pool: tuple[int, ThreadPoolExecutor] | None = None  # with the process that it belongs to

    async def append(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        await self._off_loop(self._append, record, along)

    async def put(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        await self._off_loop(self._put, record, along)

    async def remove(
        self, run_id: str, number: int, *, follower: Record | None = None, asked: tuple[Pending, ...] = ()
    ) -> bool:
        return await self._off_loop(self._remove, run_id, number, follower, asked)

    async def head(self, run_id: str) -> Record | None:
        return await self._off_loop(self._reading, self._head, run_id)

    async def chain(self, run_id: str, number: int) -> list[Record]:
        return await self._off_loop(self._reading, self._chain, run_id, number)

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        return await self._off_loop(self._reading, self._history, run_id, after, upto, outputs_only)

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

    async def post(self, run_id: str, key: str, body: bytes) -> bool:
        return await self._off_loop(self._post, run_id, key, body)

    async def mail(self, run_id: str) -> list[tuple[str, bytes]]:
        return await self._off_loop(self._reading, self._mail, run_id)

    def mailed(self, run_ids: list[str]) -> list[str]:
        return [run_id for run_id in run_ids if self._translating(self._reading, self._has_mail, run_id)]

    async def pending(self, *, workflow: str | None = None, run_id: str | None = None) -> list[Pending]:
        return await self._off_loop(self._reading, self._pending, workflow, run_id)

    async def wakes(self, *, before: str | None = None, workflow: str | None = None) -> list[Wake]:
        return await self._off_loop(self._reading, self._wakes, before, workflow)

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
        self._folders.check_mark()
        for _ in range(ATTEMPTS):
            try:
                return work(*args, **kwargs)
            except FileNotFoundError as error:
                missing = error
                self._folders.forget_what_is_known()
        raise CheckpointCorrupt(f"{missing.filename} cannot be read: it is listed in its folder but is not there")

    # ---------------------------------------------------------------- writing

    def _append(self, record: Record, along: Along) -> None:
        entry = record.entry
        with self._folders.held(entry.run_id, create=entry.number == 0) as run:
            newest = run.newest() if run else None
            latest = newest.number if newest else -1
            if run is None or entry.number != latest + 1:
                raise CommitConflict(
                    f"run {entry.run_id!r} is at commit {latest}, so commit {entry.number} cannot be added: "
                    f"another process has moved the run; stop driving it here"
                )
            now = beside.recover(run)
            path = self._commit(run, newest, record, along, now, now.after(entry, along))
            run.appended(Newest(entry.number, path))

    def _put(self, record: Record, along: Along) -> None:
        entry = record.entry
        with self._folders.held(entry.run_id, create=True) as run:
            assert run is not None
            newest, now = run.newest(), beside.recover(run)
            is_newest = newest is None or entry.number >= newest.number
            after = beside.NOTHING_OPEN.after(entry, along) if is_newest else now
            self._commit(run, newest, record, along, now, after)
            run.changed()

    def _commit(
        self, run: Run, newest: Newest | None, record: Record, along: Along, now: beside.Open, after: beside.Open
    ) -> Path:
        """Write a record as the last one committed, in place of one of its number, with what goes along with it."""
        entry = record.entry
        if newest is None:
            self._folders.move(run, entry)
        else:
            _refuse_other_workflow(run.folder, entry)
        run.sweep()
        old = disk.records_in(run.folder).get(entry.number) if newest and entry.number <= newest.number else None
        if newest and old is None:
            disk.forget_at(run.folder, entry.number)  # a place that begins now has none: this is of one removed
        latest = newest.path.stat().st_mtime_ns if newest else 0  # files carry the time of their commit
        seq = max(time.time_ns(), self._last_seq + 1, latest + 1)
        self._last_seq = seq
        sheet = disk.sheet_of(record, seq)
        beside.announce(run.folder, entry, seq, now, after, along.consumed)
        path = _replace(run.folder, old, sheet)
        beside.finish(run, along)
        return path

    def _remove(self, run_id: str, number: int, follower: Record | None, asked: tuple[Pending, ...]) -> bool:
        with self._folders.held(run_id, create=False) as run:
            stored = disk.records_in(run.folder) if run else {}
            if run is None or number not in stored:
                return False
            run.sweep()
            folder, now = run.folder, beside.recover(run)
            after = stored.get(number + 1)
            if after is not None and follower is None and not disk.read_sheet(after).frame:
                raise needs_follower(run_id, number)
            if after is not None and follower is not None:
                # in this order a crash in between leaves both records, and each can be read
                _refuse_other_workflow(folder, follower.entry)
                beside.rest(folder, now)
                _replace(folder, after, disk.sheet_of(follower, disk.read_sheet(after).seq))  # where it was in order
            elif len(stored) == 1:
                beside.take_leave(folder, now)
            elif number == max(stored):
                beside.step_back(folder, stored[number], now, beside.Open(asked))
            else:
                beside.rest(folder, now)
            stored[number].unlink()
            disk.sync_folder(folder)
            run.changed()
            newest = run.newest()
            if newest is None:
                _discard(run)
            else:
                disk.forget_after(folder, newest.number)
            return True

    def _remember(self, run_id: str, place: int, key: str, body: bytes) -> bool:
        memo = Memo(FORMAT, key, msgspec.Raw(disk.compact(body)))
        with self._folders.held(run_id, create=True) as run:
            assert run is not None
            beside.recover(run)
            path = run.folder / MEMORY / disk.memo_name(place, key)
            if path.exists():
                return False
            disk.make_folder(path.parent)
            disk.write(path, memo)
            return True

    def _post(self, run_id: str, key: str, body: bytes) -> bool:
        content = msgspec.Raw(disk.compact(body))
        with self._folders.held(run_id, create=True) as run:
            assert run is not None
            beside.recover(run)
            return run.letters().post(run.folder, key, content)

    # ---------------------------------------------------------------- reading

    def _records(self, run_id: str) -> Mapping[int, Path]:
        folder = self._folders.find(run_id)
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

    def _history(self, run_id: str, after: int, upto: int | None, outputs_only: bool) -> list[Record]:
        stored = self._records(run_id)
        asked = [number for number in stored if after < number and (upto is None or number <= upto)]
        sheets = [disk.read_sheet(stored[number]) for number in asked]
        return [sheet.record for sheet in sheets if sheet.outputs or not outputs_only]

    def _locate(self, checkpoint_id: str) -> Entry | None:
        ending = _ending(disk.record_name(0, checkpoint_id))
        listed = [(run, disk.records_in(run).names) for run in self._folders.runs(None, None)]
        files = [run / name for run, names in listed for name in names.values() if _ending(name) == ending]
        sheets = [disk.read_sheet(path) for path in files]
        return max(sheets, key=disk.order).entry if sheets else None

    def _entries(self, workflow: str | None, run_id: str | None) -> list[Entry]:
        runs = self._folders.runs(workflow, run_id)
        sheets = [disk.read_sheet(path) for run in runs for path in disk.records_in(run).values()]
        return [sheet.entry for sheet in sorted(sheets, key=disk.order)]

    def _newest(self, workflow: str | None, run_id: str | None) -> Entry | None:
        best: Sheet | None = None
        touched = [(run.stat().st_mtime_ns, run) for run in self._folders.runs(workflow, run_id)]
        for at, run in sorted(touched, reverse=True):
            if best is not None and at + COARSE < best.seq:  # this run and the rest were not touched since
                break
            sheet = disk.newest_in(run)
            if sheet is not None and (best is None or disk.order(sheet) > disk.order(best)):
                best = sheet
        return best.entry if best else None

    def _recall(self, run_id: str, place: int) -> dict[str, bytes]:
        folder = self._folders.find(run_id)
        if folder is None or beside.look(folder).is_gone:
            return {}
        memos = [disk.read_memo(path, place) for path in disk.memos_in(folder, place)]
        return {memo.key: disk.compact(memo.body) for memo in memos}

    def _mail(self, run_id: str) -> list[tuple[str, bytes]]:
        folder = self._folders.find(run_id)
        return beside.unread(folder, lambda: self._folders.letters(run_id, folder)) if folder else []

    def _has_mail(self, run_id: str) -> bool:
        folder = self._folders.find(run_id)
        return folder is not None and bool(beside.waiting(folder, lambda: self._folders.letters(run_id, folder)))

    def _pending(self, workflow: str | None, run_id: str | None) -> list[Pending]:
        runs = self._folders.runs(workflow, run_id)
        found = [question for run in runs for question in beside.look(run).open.questions]
        return sorted(found, key=lambda question: (question.at, question.run_id))

    def _wakes(self, before: str | None, workflow: str | None) -> list[Wake]:
        found = [beside.look(run).open.wake for run in self._folders.runs(workflow, None)]
        due = [wake for wake in found if wake is not None and (before is None or wake.at <= before)]
        return sorted(due, key=lambda wake: (wake.at, wake.run_id))

    # ---------------------------------------------------------------- claims

    def _claim(self, run_id: str, owner: Owner, seconds: float) -> None:
        with self._folders.held(run_id, create=True) as run:
            assert run is not None
            claim = disk.claim_in(run.folder)
            if claim is not None and claim.lease.owner != owner and not claim.lease.is_over():
                raise claim.lease.refuse(run_id)
            disk.write(run.folder / OWNER, disk.claim_of(owner, clock.seconds() + seconds))

    def _renew(self, run_id: str, owner: Owner, seconds: float) -> None:
        with self._folders.held(run_id, create=False) as run:
            claim = disk.claim_in(run.folder) if run else None
            if run is not None and claim is not None and claim.lease.owner == owner:
                disk.write(run.folder / OWNER, disk.claim_of(owner, clock.seconds() + seconds))

    def _release(self, run_id: str, owner: Owner) -> None:
        with self._folders.held(run_id, create=False) as run:
            claim = disk.claim_in(run.folder) if run else None
            if run is not None and claim is not None and claim.lease.owner == owner:
                (run.folder / OWNER).unlink()
                if not (run.has_records() or disk.memos_in(run.folder) or has_letters(run.folder)):
                    _discard(run)


def _ending(name: str) -> str:
    """The name of a record's file without its number."""
    return name.lstrip("0123456789")


def _replace(folder: Path, old: Path | None, sheet: Sheet) -> Path:
    """Write a record and delete the file of its number, if that has another name. Its path."""
    path = folder / disk.record_name(sheet.number, sheet.checkpoint_id)
    disk.write(path, sheet, stamp=sheet.seq)
    if old is not None and old != path:
        old.unlink()
    return path


def _discard(run: Run) -> None:
    """Delete the folder of a run that has no records, unless someone holds a claim on it."""
    run.sweep()
    beside.forget(run)
    claim = disk.claim_in(run.folder)
    if claim is not None and not claim.lease.is_over():
        return
    (run.folder / OWNER).unlink(missing_ok=True)
    (run.folder / LOCK).unlink()  # who waits for it looks for the folder anew
    with suppress(OSError):  # or has made a new lock already, and goes on with an empty folder
        run.folder.rmdir()


def _refuse_other_workflow(folder: Path, entry: Entry) -> None:
    if folder.parent.name != disk.safe_name(entry.workflow):
        raise CommitConflict(
            f"run {entry.run_id!r} belongs to the workflow in {folder.parent} and cannot go on as one of "
            f"{entry.workflow!r}; give the new run another id"
        )


class FileCheckpointStorage(BuiltInStorage):
    """Runs kept in a directory a person can read: one JSON file per checkpoint. Several processes may share it."""

    def __init__(self, storage_path: str | os.PathLike[str], *, seal: Seal | None = None) -> None:
        super().__init__(FileStore(storage_path), seal=seal)
