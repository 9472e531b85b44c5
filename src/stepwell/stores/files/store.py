"""The port on a directory of files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from stepwell.errors import CheckpointCorrupt
from stepwell.model.checkpoint import FullHistory, Retention
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.encryption import Seal
from stepwell.storage.filters import ANY_CHECKPOINT, ANY_REQUEST, ANY_RUN, CheckpointFilter, RequestFilter, RunFilter
from stepwell.storage.ids import place_of, run_hash, run_hashes_for
from stepwell.storage.lease import LEASE, Owner
from stepwell.storage.permissions import OWNER_ONLY, validate_mode
from stepwell.storage.posix import require_posix
from stepwell.storage.stored_values import (
    NO_EFFECTS,
    CommitEffects,
    DamagedRun,
    Entry,
    LeaseReport,
    OpenedRun,
    Record,
    RequestEntry,
    RunEntry,
    SignalRow,
    Survey,
    Wake,
)
from stepwell.stores.files import transactions
from stepwell.stores.files.layout import StoreFolder
from stepwell.stores.files.run_file import RunFile
from stepwell.stores.files.threads import FileThreads, Write

T = TypeVar("T")


class FileStore:
    """A store in the directory `path`, which is created at the first write, with its parents.

    Any number of processes of one machine may use it at once. A store of a newer Stepwell is
    refused and left unchanged. A damaged file is named in CheckpointCorrupt and never skipped.
    """

    completes_writes = True
    keeps_order = True

    def __init__(self, path: str | os.PathLike[str], *, mode: int = OWNER_ONLY) -> None:
        self._root = Path(os.path.abspath(path))
        require_posix(f"the file store {str(self._root)!r}", "file locks")
        self._folder = StoreFolder(self._root, validate_mode(mode))
        self._threads: FileThreads | None = None

    # ---------------------------------------------------------------- records

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await self._write(record.entry.run_id, lambda run: transactions.append(run, record, effects), creates=True)

    async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
        if owner is None:
            return await self._read(run_id, lambda run: transactions.open_run(run, None, 0.0))
        return await self._write(run_id, lambda run: transactions.open_run(run, owner, seconds), creates=True)

    async def read(self, run_id: str, number: int | None = None) -> list[Record]:
        return await self._read(run_id, lambda run: transactions.read_chain(run, number))

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        return await self._read(
            run_id, lambda run: transactions.read_history(run, after, upto, outputs_only=outputs_only)
        )

    # ---------------------------------------------------------------- superstep log and signals

    async def write_log(self, run_id: str, place: int, key: str, body: bytes, *, fence: int | None = None) -> bool:
        return await self._write(run_id, lambda run: transactions.write_log(run, place, key, body, fence), creates=True)

    def transaction(self, run_id: str, place: int, key: str, *, fence: int | None = None) -> None:
        return None

    async def send(self, run_id: str, key: str, body: bytes) -> bool:
        return await self._write(run_id, lambda run: transactions.send(run, key, body), creates=True)

    async def pending_signals(self, run_id: str) -> list[SignalRow]:
        return await self._read(run_id, transactions.read_signals)

    # ---------------------------------------------------------------- leases

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        return await self._write(run_id, lambda run: transactions.acquire(run, owner, seconds), creates=True)

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        return self._open_threads().translate(lambda: self._renew(fences, seconds))

    async def release(self, run_id: str, owner: Owner) -> None:
        await self._write(run_id, lambda run: transactions.release(run, owner))

    # ---------------------------------------------------------------- lists

    async def run(self, run_id: str) -> RunEntry | None:
        return await self._read(run_id, lambda run: run.state.run)

    async def runs(
        self, run_filter: RunFilter = ANY_RUN, *, past: RunEntry | None = None, limit: int | None = None
    ) -> list[RunEntry]:
        runs = await self._read_all(lambda run: run.state.run)
        matching = [run for run in runs if run is not None and run_filter.matches(run)]
        if past is not None:
            matching = [run for run in matching if (run.began, run.run_id) < (past.began, past.run_id)]
        return sorted(matching, key=lambda run: (run.began, run.run_id), reverse=True)[:limit]

    async def checkpoints(
        self,
        checkpoint_filter: CheckpointFilter = ANY_CHECKPOINT,
        *,
        before: Entry | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        run_id = checkpoint_filter.run_id
        if run_id is None:
            return await self._open_threads().read(lambda: self._checkpoints(checkpoint_filter, before, limit))
        at_least = limit if before is None and checkpoint_filter.prefix is None else None
        entries = await self._read(run_id, lambda run: transactions.read_entries(run, at_least))
        return checkpoint_filter.page(entries, before, limit)

    async def locate(self, checkpoint_id: str) -> Entry | None:
        return await self._open_threads().read(lambda: self._locate(checkpoint_id))

    async def requests(
        self,
        request_filter: RequestFilter = ANY_REQUEST,
        *,
        past: RequestEntry | None = None,
        limit: int | None = None,
    ) -> list[RequestEntry]:
        run_id = request_filter.run_id
        found = [await self._read(run_id, _requests)] if run_id is not None else await self._read_all(_requests)
        return request_filter.page((request for requests in found for request in requests), past, limit)

    async def wakes(self, *, before: str | None = None, workflow: str | None = None) -> list[Wake]:
        states = await self._read_all(lambda run: (run.run_id, run.state.workflow, run.state.wake))
        wakes = [Wake(run_id, of, at) for run_id, of, at in states if at is not None and workflow in (None, of)]
        due = [wake for wake in wakes if before is None or wake.at <= before]
        return sorted(due, key=lambda wake: (wake.at, wake.run_id))

    # ---------------------------------------------------------------- maintenance

    async def rewrite(
        self,
        run_id: str,
        *,
        insert: Record | None = None,
        replace: Sequence[Record] = (),
        remove: Sequence[int] = (),
        effects: CommitEffects | None = None,
    ) -> int:
        return await self._write(
            run_id,
            lambda run: transactions.rewrite(run, insert, replace, remove, effects),
            creates=insert is not None,
        )

    async def drop(self, run_id: str) -> bool:
        return await self._write(run_id, transactions.drop)

    async def survey(self) -> Survey:
        return await self._open_threads().read(self._survey)

    async def numbers(self, run_id: str) -> list[int]:
        try:
            return await self._read(run_id, _numbers)
        except CheckpointCorrupt:  # the file as a whole cannot be read, as every other call says
            return []

    async def compact(self) -> int:
        return await self._open_threads().read(self._compact)

    async def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None and threads.pid == os.getpid():
            await threads.close()

    # ---------------------------------------------------------------- threads

    def _open_threads(self) -> FileThreads:
        threads = self._threads
        if threads is None or threads.pid != os.getpid():  # threads do not survive a fork
            threads = self._threads = FileThreads(self._folder)
        return threads

    async def _write(self, run_id: str, write: Write[T], *, creates: bool = False) -> T:
        return await self._open_threads().write(run_id, write, creates=creates)

    async def _read(self, run_id: str, read: Callable[[RunFile], T]) -> T:
        threads = self._open_threads()

        def work() -> T:
            self._folder.check()
            run = threads.run(run_id)
            with run.reading():
                return read(run)

        return await threads.read(work)

    async def _read_all(self, read: Callable[[RunFile], T]) -> list[T]:
        return await self._open_threads().read(lambda: [read(run) for run in self._each_run()])

    # ---------------------------------------------------------------- in a thread

    def _files(self, hashed: int | None = None) -> Iterator[RunFile]:
        """Yield all runs, or those with that hash. None of them is open."""
        self._folder.check()
        yield from map(self._open_threads().run_at, self._folder.paths(hashed))

    def _each_run(self, hashed: int | None = None) -> Iterator[RunFile]:
        """Yield the same, each open for reading."""
        for run in self._files(hashed):
            with run.reading():
                yield run

    def _renew(self, fences: Mapping[str, int], seconds: float | None) -> LeaseReport:
        self._folder.check()
        report: list[tuple[str, bool, bool]] = []
        for run_id, fence in fences.items():
            run = self._open_threads().run(run_id)
            # The driver of a damaged run hears of it when it writes; the others keep their leases.
            with suppress(CheckpointCorrupt), run.reading() if seconds is None else run.writing():
                if seconds is not None:
                    transactions.renew(run, fence, seconds)
                report.append((run_id, run.state.fence > fence, bool(run.state.signals)))
        return LeaseReport([run_id for run_id, lost, _ in report if lost], [each[0] for each in report if each[2]])

    def _checkpoints(self, checkpoint_filter: CheckpointFilter, before: Entry | None, limit: int | None) -> list[Entry]:
        prefix = checkpoint_filter.prefix
        first, end = (run_hashes_for(prefix) or (0, 0)) if prefix else (0, 1 << 60)
        runs = [
            (run.state.last_at, run.path)
            for run in self._each_run()
            if checkpoint_filter.workflow in (None, run.state.workflow)
            and (run.state.odd_ids or first <= run_hash(run.run_id) < end)
        ]
        entries: list[Entry] = []
        for last_at, path in sorted(runs, reverse=True):
            if limit is not None:
                entries = checkpoint_filter.page(entries, before, limit)
                if len(entries) == limit and all(entry.at > last_at for entry in entries):
                    break  # all that follow are older
            run = self._open_threads().run_at(path)
            with run.reading():
                entries += transactions.read_entries(run)
        return checkpoint_filter.page(entries, before, limit)

    def _locate(self, checkpoint_id: str) -> Entry | None:
        if (place := place_of(checkpoint_id)) is not None:
            for run in self._each_run(place.run_hash):
                entry = transactions.find_entry(run, place.number)
                if entry is not None and entry.checkpoint_id == checkpoint_id:
                    return entry
        # An id that was made elsewhere does not say where it is.
        odd = [entry for run in self._each_run() if run.state.odd_ids for entry in transactions.read_entries(run)]
        return max((e for e in odd if e.checkpoint_id == checkpoint_id), key=lambda entry: entry.at, default=None)

    def _survey(self) -> Survey:
        runs: list[RunEntry] = []
        damaged: list[DamagedRun] = []
        for run in self._files():
            try:
                with run.reading():
                    runs += [] if run.state.run is None else [run.state.run]
            except (CheckpointCorrupt, OSError) as error:
                why = f"{run.path} cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
                damaged.append(DamagedRun(run.run_id or None, why))
        return Survey(sorted(runs, key=lambda run: (run.began, run.run_id), reverse=True), damaged)

    def _compact(self) -> int:
        shrunk = 0
        for run in self._files():
            with run.writing():
                shrunk += transactions.compact(run)
        return shrunk


def _requests(run: RunFile) -> list[RequestEntry]:
    return list(run.state.requests.values())


def _numbers(run: RunFile) -> list[int]:
    run.index()
    return sorted(run.records)


class FileCheckpointStorage(BuiltInStorage):
    """Runs in a directory that people can read: one file per run, one line per commit.

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
