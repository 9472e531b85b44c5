"""The store in a directory that people can read: one folder per run, one JSON file per record.

Writers lock the folder of their run; readers take no lock. `layout` describes the files, and
`open_page` how a commit of several files is made atomic.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec

from stepwell.errors import CheckpointCorrupt, CommitConflict, StoreUnavailable
from stepwell.model.checkpoint import FullHistory, Retention
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.encryption import Seal
from stepwell.storage.lease import LEASE, Owner
from stepwell.storage.permissions import OWNER_ONLY, validate_mode
from stepwell.storage.port import (
    ANY_RUN,
    NO_EFFECTS,
    CommitEffects,
    Entry,
    Pending,
    Record,
    RunEntry,
    RunFilter,
    Survey,
    Wake,
)
from stepwell.storage.posix import require_posix
from stepwell.stores.files import layout, lease, open_page, reader, superstep_log
from stepwell.stores.files.folders import Folders
from stepwell.stores.files.group_commit import GroupCommit, LogWrite, write_batch
from stepwell.stores.files.layout import Origin
from stepwell.stores.files.open_state import Open
from stepwell.stores.files.records import records_in
from stepwell.stores.files.removal import discard, refuse_other_workflow, remove, replace, thin_out
from stepwell.stores.files.run_folder import Newest, RunFolder, newest_path
from stepwell.stores.files.signals import has_signals
from stepwell.stores.files.survey import numbers, survey
from stepwell.stores.request_order import page_of

THREADS = 8
ATTEMPTS = 20  # to read a folder that others are changing

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Threads:
    """The threads of a store, and the process they belong to."""

    pid: int
    pool: ThreadPoolExecutor
    group_commit: GroupCommit


class FileStore:
    """A store in the directory `path`, which is created at the first write, with its parents.

    Any number of processes of one machine may use it at once. A store of a newer Stepwell is
    refused and left unchanged. A damaged file is named in CheckpointCorrupt and never skipped.
    """

    def __init__(self, path: str | os.PathLike[str], *, mode: int = OWNER_ONLY) -> None:
        self._root = Path(os.path.abspath(path))
        require_posix(f"the file store {str(self._root)!r}", "file locks")
        self._folders = Folders(self._root, validate_mode(mode))
        self._last_seq = 0
        self._threads: _Threads | None = None

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await self._off_loop(self._append, record, effects)

    async def put(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await self._off_loop(self._put, record, effects)

    async def remove(
        self,
        run_id: str,
        number: int,
        *,
        follower: Record | None = None,
        asked: tuple[Pending, ...] = (),
        wake: str | None = None,
    ) -> bool:
        return await self._off_loop(self._remove, run_id, number, follower, CommitEffects(asked=asked, wake=wake))

    async def thin_out(self, run_id: str, numbers: Sequence[int], *, rewritten: Sequence[Record] = ()) -> int:
        return await self._off_loop(self._thin_out, run_id, numbers, rewritten)

    async def drop(self, run_id: str) -> bool:
        return await self._off_loop(self._drop, run_id)

    async def runs(
        self,
        *,
        workflow: str | None = None,
        status: str | None = None,
        tags: Mapping[str, str] | None = None,
        inner: bool = False,
        run_filter: RunFilter = ANY_RUN,
        past: RunEntry | None = None,
        limit: int | None = None,
    ) -> list[RunEntry]:
        entries = await self._off_loop(self._retry_read, self._runs, workflow)
        wanted = (tags or {}).items()
        matching = [
            run
            for run in entries
            if status in (None, run.status)
            and (inner or run.metadata.caller is None)
            and wanted <= run.metadata.tags.items()
            and run_filter.matches(run)
            and (past is None or (run.began, run.run_id) < (past.began, past.run_id))
        ]
        return sorted(matching, key=lambda run: (run.began, run.run_id), reverse=True)[:limit]

    async def run(self, run_id: str) -> RunEntry | None:
        return await self._off_loop(self._retry_read, self._run, run_id)

    async def head(self, run_id: str) -> Record | None:
        return await self._off_loop(self._retry_read, self._head, run_id)

    async def chain(self, run_id: str, number: int) -> list[Record]:
        return await self._off_loop(self._retry_read, self._chain, run_id, number)

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        return await self._off_loop(self._retry_read, self._history, run_id, after, upto, outputs_only)

    async def locate(self, checkpoint_id: str) -> Entry | None:
        return await self._off_loop(self._retry_read, self._locate, checkpoint_id)

    async def checkpoints(self, prefix: str, *, limit: int) -> list[Entry]:
        return await self._off_loop(self._retry_read, self._checkpoints, prefix, limit)

    async def entries(
        self,
        *,
        workflow: str | None = None,
        run_id: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        return await self._off_loop(self._retry_read, self._entries, workflow, run_id, before, limit)

    async def newest(self, *, workflow: str | None = None, run_id: str | None = None) -> Entry | None:
        return await self._off_loop(self._retry_read, self._newest, workflow, run_id)

    async def write_log(self, run_id: str, place: int, key: str, body: bytes, *, fence: int | None = None) -> bool:
        log_write = LogWrite(place, key, body, fence)
        return await asyncio.wrap_future(self._workers().group_commit.write_log(run_id, log_write))

    async def read_log(self, run_id: str, place: int) -> dict[str, bytes]:
        return await self._off_loop(self._retry_read, self._read_log, run_id, place)

    async def send(self, run_id: str, key: str, body: bytes) -> bool:
        return await self._off_loop(self._send, run_id, key, body)

    async def pending_signals(self, run_id: str) -> list[tuple[str, bytes]]:
        return await self._off_loop(self._retry_read, self._pending_signals, run_id)

    def runs_with_signals(self, run_ids: list[str]) -> list[str]:
        return [run_id for run_id in run_ids if self._translate_errors(self._retry_read, self._has_signals, run_id)]

    async def pending(
        self,
        *,
        workflow: str | None = None,
        run_id: str | None = None,
        asked_by: str | None = None,
        due_by: str | None = None,
        past: Pending | None = None,
        limit: int | None = None,
    ) -> list[Pending]:
        requests = await self._off_loop(self._retry_read, self._pending, workflow, run_id)
        return page_of(requests, asked_by, due_by, past, limit)

    async def wakes(self, *, before: str | None = None, workflow: str | None = None) -> list[Wake]:
        return await self._off_loop(self._retry_read, self._wakes, before, workflow)

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        return await self._off_loop(self._acquire, run_id, owner, seconds)

    def renew(self, fences: Mapping[str, int], *, seconds: float) -> list[str]:
        return [
            run_id
            for run_id, fence in fences.items()
            if not self._translate_errors(self._renew, run_id, fence, seconds)
        ]

    async def release(self, run_id: str, owner: Owner) -> None:
        await self._off_loop(self._release, run_id, owner)

    async def survey(self) -> Survey:
        """Return all runs, including those that cannot be listed."""
        return await self._off_loop(self._retry_read, lambda: survey(self._folders.runs(None, None)))

    async def numbers(self, run_id: str) -> list[int]:
        """Return the numbers of the records of a run, even of those that cannot be read."""
        return await self._off_loop(self._retry_read, self._numbers, run_id)

    async def compact(self) -> int:
        await self._off_loop(self._folders.tidy)
        return 0  # a deleted file takes no space

    async def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None and threads.pid == os.getpid():
            await asyncio.to_thread(threads.pool.shutdown)

    # ---------------------------------------------------------------- threads and errors

    async def _off_loop(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.wrap_future(
            self._workers().pool.submit(lambda: self._translate_errors(work, *args, **kwargs))
        )

    def _workers(self) -> _Threads:
        threads = self._threads
        if threads is None or threads.pid != os.getpid():  # threads do not survive a fork
            pool = ThreadPoolExecutor(THREADS, thread_name_prefix="stepwell-file")
            group_commit = GroupCommit(
                pool.submit, lambda run_id, batch: self._translate_errors(self._write_log_batch, run_id, batch)
            )
            threads = self._threads = _Threads(os.getpid(), pool, group_commit)
        return threads

    def _translate_errors(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return work(*args, **kwargs)
        except OSError as error:
            where = error.filename2 or error.filename or self._root
            raise StoreUnavailable(f"the store {self._root} cannot be used: {error.strerror} ({where})") from error
        except RecursionError:
            raise CheckpointCorrupt(f"the store {self._root} is damaged: a file is nested too deep") from None

    def _retry_read(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read without a lock: if a file disappears between listing and opening, try again."""
        self._folders.check_mark()
        for _ in range(ATTEMPTS):
            try:
                return work(*args, **kwargs)
            except FileNotFoundError as error:
                missing = error
                self._folders.forget_caches()
        raise CheckpointCorrupt(f"{missing.filename} cannot be read: its folder lists it, but it does not exist")

    # ---------------------------------------------------------------- writing

    def _append(self, record: Record, effects: CommitEffects) -> None:
        entry = record.entry
        with self._folders.lock_run(entry.run_id, create=entry.number == 0) as run:
            newest = run.newest() if run else None
            latest = newest.number if newest else -1
            # The fence first: a driver that was replaced should learn that, not that the run has
            # moved.
            if run is not None:
                run.check_fence(entry.run_id, effects.fence)
            if run is None or entry.number != latest + 1:
                raise CommitConflict(
                    f"run {entry.run_id!r} is at commit {latest}, so commit {entry.number} cannot be added: "
                    f"another process has moved the run; stop driving it here"
                )
            now, origin = self._recover(run, newest)
            self._commit(run, newest, record, effects, now=now, after=now.after(entry, effects), origin_before=origin)

    def _put(self, record: Record, effects: CommitEffects) -> None:
        entry = record.entry
        with self._folders.lock_run(entry.run_id, create=True) as run:
            assert run is not None
            run.check_fence(entry.run_id, effects.fence)
            newest = run.newest()
            now, origin = self._recover(run, newest)
            if newest is None or entry.number >= newest.number:
                after = now.with_only(entry, effects)
            else:
                # An older record changes nothing that is open, but it is committed after newer
                # ones: from now on the numbers are not the order of commits.
                assert origin is not None
                after = msgspec.structs.replace(
                    now.with_origin(run.cover(), origin.with_metadata(effects.metadata)), shuffled=True
                )
            self._commit(run, newest, record, effects, now=now, after=after, origin_before=origin)

    def _recover(self, run: RunFolder, newest: Newest | None) -> tuple[Open, Origin | None]:
        """Finish what a killed writer began; return what is open in a run, and its origin."""
        run.sweep()
        now = open_page.recover(run)
        return now, None if newest is None else now.origin or run.cover().origin

    def _commit(
        self,
        run: RunFolder,
        newest: Newest | None,
        record: Record,
        effects: CommitEffects,
        now: Open,
        after: Open,
        origin_before: Origin | None,
    ) -> None:
        """Write a record as the last one committed, replacing one of its number, with its effects.

        The order of the steps makes it atomic: first the page that announces the effects, then the
        record, whose name is the commit, then the cleaning up, which the next writer can finish.
        """
        entry = record.entry
        if newest is None:
            self._folders.move(run, entry)
        else:
            refuse_other_workflow(run.folder, entry)
        old = records_in(run.folder).get(entry.number) if newest and entry.number <= newest.number else None
        latest = run.cover().seq if newest else 0
        # Commits are ordered by time, but a clock may stand still or be set back: within a run and
        # within this store, the sequence always rises.
        seq = max(time.time_ns(), self._last_seq + 1, latest + 1)
        self._last_seq = seq
        origin = origin_before or Origin(entry.at)
        stored = layout.stored_record(record, seq, origin.with_metadata(effects.metadata), effects.drop_below)
        run.stage_reduced(effects.reduced, origin)
        open_page.announce(run, entry, seq, now, after, effects.consumed)
        path = replace(run.folder, old, stored)
        if newest is None or entry.number > newest.number:
            run.note_append(path, layout.cover_of(stored))
        else:
            run.invalidate()
        open_page.finish(run, effects)

    def _remove(self, run_id: str, number: int, follower: Record | None, then: CommitEffects) -> bool:
        with self._folders.lock_run(run_id, create=False) as run:
            return run is not None and remove(run, number, follower, then)

    def _thin_out(self, run_id: str, numbers: Sequence[int], rewritten: Sequence[Record]) -> int:
        with self._folders.lock_run(run_id, create=False) as run:
            return 0 if run is None else thin_out(run, numbers, rewritten)

    def _drop(self, run_id: str) -> bool:
        with self._folders.lock_run(run_id, create=False) as run:
            if run is None or not run.has_records():
                return False
            self._folders.delete(run)
            return True

    def _write_log_batch(self, run_id: str, batch: list[LogWrite]) -> None:
        with self._folders.lock_run(run_id, create=True) as run:
            assert run is not None
            open_page.recover(run)
            answers = write_batch(run, run_id, batch)
        # After the lock is released: a task that gets its answer may write to the run at once.
        for log_write, is_new in answers:
            log_write.kept.set_result(is_new)

    def _send(self, run_id: str, key: str, body: bytes) -> bool:
        content = msgspec.Raw(layout.compact(body))
        with self._folders.lock_run(run_id, create=True) as run:
            assert run is not None
            open_page.recover(run)
            return run.signals().send(run.folder, key, content)

    # ---------------------------------------------------------------- reading

    def _head(self, run_id: str) -> Record | None:
        folder = self._folders.find(run_id)
        path = newest_path(folder) if folder else None
        return layout.read_record(path).record if path else None

    def _chain(self, run_id: str, number: int) -> list[Record]:
        folder = self._folders.find(run_id)
        return reader.chain(folder, number) if folder else []

    def _history(self, run_id: str, after: int, upto: int | None, outputs_only: bool) -> list[Record]:
        folder = self._folders.find(run_id)
        return reader.history(folder, after, upto, outputs_only=outputs_only) if folder else []

    def _locate(self, checkpoint_id: str) -> Entry | None:
        # An id does not say which run it belongs to: the names of all files are looked at.
        cover = reader.find_checkpoint(self._folders.runs(None, None), checkpoint_id)
        return cover.entry if cover else None

    def _run(self, run_id: str) -> RunEntry | None:
        folder = self._folders.find(run_id)
        return open_page.run_in(folder) if folder else None

    def _numbers(self, run_id: str) -> list[int]:
        folder = self._folders.find(run_id)
        return numbers(folder) if folder else []

    def _runs(self, workflow: str | None) -> list[RunEntry]:
        return [run for run in map(open_page.run_in, self._folders.runs(workflow, None)) if run is not None]

    def _checkpoints(self, prefix: str, limit: int) -> list[Entry]:
        return [cover.entry for cover in reader.find_by_prefix(self._folders.runs(None, None), prefix)[:limit]]

    def _entries(self, workflow: str | None, run_id: str | None, before: str | None, limit: int | None) -> list[Entry]:
        runs, end = self._folders.runs(workflow, run_id), None
        if before is not None:
            # Most often the checkpoint is one of the named run, and the other folders need not be
            # read.
            named = reader.find_checkpoint(runs, before) if run_id is not None else None
            cover = named or reader.find_checkpoint(self._folders.runs(None, None), before)
            if cover is None:
                return []
            end = cover.order
        covers = islice(reader.backwards(runs, end), limit)
        return [cover.entry for cover in sorted(covers, key=lambda cover: cover.order)]

    def _newest(self, workflow: str | None, run_id: str | None) -> Entry | None:
        newest = next(reader.backwards(self._folders.runs(workflow, run_id)), None)
        return newest.entry if newest else None

    def _read_log(self, run_id: str, place: int) -> dict[str, bytes]:
        folder = self._folders.find(run_id)
        if folder is None or open_page.read_state(folder).is_gone:
            return {}
        return {item.key: layout.compact(item.body) for item in superstep_log.items_at(folder, place)}

    def _pending_signals(self, run_id: str) -> list[tuple[str, bytes]]:
        folder = self._folders.find(run_id)
        return open_page.pending_signals(folder, lambda: self._folders.signals(run_id, folder)) if folder else []

    def _has_signals(self, run_id: str) -> bool:
        folder = self._folders.find(run_id)
        return folder is not None and bool(
            open_page.pending_files(folder, lambda: self._folders.signals(run_id, folder))
        )

    def _pending(self, workflow: str | None, run_id: str | None) -> list[Pending]:
        runs = self._folders.runs(workflow, run_id)
        return [question for run in runs for question in open_page.read_state(run).open.questions]

    def _wakes(self, before: str | None, workflow: str | None) -> list[Wake]:
        wakes = [open_page.read_state(run).open.wake for run in self._folders.runs(workflow, None)]
        due = [wake for wake in wakes if wake is not None and (before is None or wake.at <= before)]
        return sorted(due, key=lambda wake: (wake.at, wake.run_id))

    # ---------------------------------------------------------------- leases

    def _acquire(self, run_id: str, owner: Owner, seconds: float) -> int:
        with self._folders.lock_run(run_id, create=True) as run:
            assert run is not None
            fence = lease.acquire(run.folder, run_id, owner, seconds)
            run.note_fence(fence)
            return fence

    def _renew(self, run_id: str, fence: int, seconds: float) -> bool:
        with self._folders.lock_run(run_id, create=False) as run:
            return run is None or lease.renew(run.folder, fence, seconds)

    def _release(self, run_id: str, owner: Owner) -> None:
        with self._folders.lock_run(run_id, create=False) as run:
            if run is None or not lease.release(run.folder, owner):
                return
            # A run that was acquired and never started leaves no folder behind.
            if not (run.has_records() or superstep_log.log_files(run.folder) or has_signals(run.folder)):
                discard(run)


class FileCheckpointStorage(BuiltInStorage):
    """Runs in a directory that people can read: one JSON file per checkpoint.

    Several processes of one machine may share it. Files of a new store get the permissions `mode`;
    an existing store keeps its own.
    """

    def __init__(
        self,
        storage_path: str | os.PathLike[str],
        *,
        seal: Seal | None = None,
        retention: Retention = FullHistory,
        mode: int = OWNER_ONLY,
        lease: float = LEASE,
    ) -> None:
        super().__init__(FileStore(storage_path, mode=mode), seal=seal, retention=retention, lease=lease)
