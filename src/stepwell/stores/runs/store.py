"""The port on runs that are held as values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar

from stepwell.errors import CheckpointCorrupt
from stepwell.storage.filters import (
    ANY_CHECKPOINT,
    ANY_REQUEST,
    TOP_RUNS,
    CheckpointFilter,
    ReadyFilter,
    RequestFilter,
    RunFilter,
    shows_requests,
)
from stepwell.storage.ids import location_of, run_hash, run_hashes_for
from stepwell.storage.lease import Owner
from stepwell.storage.outbox import Attempt, OutboxRow, WebhookRow, find_due
from stepwell.storage.statistics import RunPlace, StoreStatistics
from stepwell.storage.stored_values import (
    NO_EFFECTS,
    NO_LOG_EFFECTS,
    CommitEffects,
    Entry,
    LeaseReport,
    LogEffects,
    OpenedRun,
    Record,
    RequestEntry,
    RunEntry,
    SignalRow,
)
from stepwell.stores.runs import transactions
from stepwell.stores.runs.run import Run
from stepwell.stores.runs.state import LogWrite

T = TypeVar("T")


class RunStore(ABC):
    """All of the port that does not depend on where runs are. A call opens a run, and transacts with it."""

    # Promised by each store itself: see `VerifiedStore`.
    completes_writes: bool
    keeps_order: bool

    @abstractmethod
    async def _write(self, run_id: str, write: Callable[[Run[Any]], T], *, creates: bool = False) -> T:
        """Return what `write` returns, once what it has put is stored.

        Without `creates`, nothing is put into a run that does not exist.
        """

    @abstractmethod
    async def _do(self, work: Callable[[], T]) -> T:
        """Do work that reads, where it may block."""

    @abstractmethod
    def _do_here(self, work: Callable[[], T]) -> T:
        """Do work in this thread, with errors translated."""

    @abstractmethod
    def _open(self, run_id: str, *, writes: bool = False) -> AbstractContextManager[Run[Any]]:
        """Open a run, which may not exist, inside `_do` or `_do_here`."""

    @abstractmethod
    def _each_run(self, hashed: int | None = None) -> Iterator[Run[Any]]:
        """Yield all runs, or those with that hash, each open for reading, inside `_do`."""

    @abstractmethod
    def _find_webhooks(self) -> Sequence[WebhookRow]:
        """Return all webhooks, by id, inside `_write` or `_do`."""

    async def _read(self, run_id: str, read: Callable[[Run[Any]], T]) -> T:
        return await self._do(lambda: self._read_run(run_id, read))

    def _read_run(self, run_id: str, read: Callable[[Run[Any]], T]) -> T:
        with self._open(run_id) as run:
            return read(run)

    async def _read_all(self, read: Callable[[Run[Any]], T], run_ids: Sequence[str] | None = None) -> list[T]:
        if run_ids is not None:
            return await self._do(lambda: [self._read_run(run_id, read) for run_id in run_ids])
        return await self._do(lambda: [read(run) for run in self._each_run()])

    # ---------------------------------------------------------------- records

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await self._write(
            record.entry.run_id,
            lambda run: transactions.append(run, record, effects, self._find_webhooks),
            creates=True,
        )

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

    async def write_log(
        self,
        run_id: str,
        place: int,
        key: str,
        body: bytes,
        *,
        effects: LogEffects = NO_LOG_EFFECTS,
        fence: int | None = None,
    ) -> bool:
        line = LogWrite(place=place, key=key, asked=effects.asked, closed=effects.closed, consumed=effects.consumed)
        return await self._write(
            run_id,
            lambda run: transactions.write_log(run, line, body, effects, fence, self._find_webhooks),
            creates=True,
        )

    def transaction(self, run_id: str, place: int, key: str, *, fence: int | None = None) -> None:
        return None

    async def send(self, run_id: str, key: str, body: bytes, *, fence: int | None = None) -> bool:
        return await self._write(run_id, lambda run: transactions.send(run, key, body, fence), creates=True)

    async def pending_signals(self, run_id: str) -> list[SignalRow]:
        return await self._read(run_id, transactions.read_signals)

    # ---------------------------------------------------------------- leases

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        return await self._write(run_id, lambda run: transactions.acquire(run, owner, seconds), creates=True)

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        return self._do_here(lambda: self._renew(fences, seconds))

    def _renew(self, fences: Mapping[str, int], seconds: float | None) -> LeaseReport:
        report: list[tuple[str, bool, bool]] = []
        for run_id, fence in fences.items():
            # The driver of a damaged run hears of it when it writes; the others keep their leases.
            with suppress(CheckpointCorrupt), self._open(run_id, writes=seconds is not None) as run:
                transactions.renew(run, fence, seconds)
                report.append((run_id, run.state.fence > fence, bool(run.state.signals)))
        return LeaseReport([run_id for run_id, lost, _ in report if lost], [each[0] for each in report if each[2]])

    async def release(self, run_id: str, owner: Owner, *, stalls: bool = False) -> None:
        await self._write(run_id, lambda run: transactions.release(run, owner, stalls=stalls))

    # ---------------------------------------------------------------- lists

    async def run(self, run_id: str) -> RunEntry | None:
        return await self._read(run_id, Run.listed)

    async def runs(
        self, run_filter: RunFilter = TOP_RUNS, *, past: RunEntry | None = None, limit: int | None = None
    ) -> list[RunEntry]:
        runs = await self._read_all(Run.listed, run_filter.ids)
        return run_filter.page(filter(None, runs), past, limit)

    async def checkpoints(
        self,
        checkpoint_filter: CheckpointFilter = ANY_CHECKPOINT,
        *,
        before: Entry | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        run_id = checkpoint_filter.run_id
        if run_id is None:
            return await self._do(lambda: self._checkpoints(checkpoint_filter, before, limit))
        takes_all = checkpoint_filter.prefix is None and not checkpoint_filter.decisions
        at_least = limit if before is None and takes_all else None
        entries = await self._read(run_id, lambda run: transactions.read_entries(run, at_least))
        return checkpoint_filter.page(entries, before, limit)

    def _checkpoints(self, checkpoint_filter: CheckpointFilter, before: Entry | None, limit: int | None) -> list[Entry]:
        prefix = checkpoint_filter.prefix
        first, end = (run_hashes_for(prefix) or (0, 0)) if prefix else (0, 1 << 60)
        runs = [
            (run.state.last_at, run.run_id)
            for run in self._each_run()
            if checkpoint_filter.workflow in (None, run.state.workflow)
            and (run.state.odd_ids or first <= run_hash(run.run_id) < end)
        ]
        entries: list[Entry] = []
        for last_at, run_id in sorted(runs, reverse=True):
            if limit is not None:
                entries = checkpoint_filter.page(entries, before, limit)
                if len(entries) == limit and all(entry.at > last_at for entry in entries):
                    break  # all that follow are older
            with self._open(run_id) as run:
                entries += transactions.read_entries(run)
        return checkpoint_filter.page(entries, before, limit)

    async def locate(self, checkpoint_id: str) -> Entry | None:
        return await self._do(lambda: self._locate(checkpoint_id))

    def _locate(self, checkpoint_id: str) -> Entry | None:
        if (place := location_of(checkpoint_id)) is not None:
            for run in self._each_run(place.run_hash):
                entry = transactions.find_entry(run, place.number)
                if entry is not None and entry.checkpoint_id == checkpoint_id:
                    return entry
        # An id that was made elsewhere does not say where it is.
        odd = [entry for run in self._each_run() if run.state.odd_ids for entry in transactions.read_entries(run)]
        return max((e for e in odd if e.checkpoint_id == checkpoint_id), key=lambda entry: entry.at, default=None)

    async def requests(
        self,
        request_filter: RequestFilter = ANY_REQUEST,
        *,
        past: RequestEntry | None = None,
        limit: int | None = None,
    ) -> list[RequestEntry]:
        def read(run: Run[Any]) -> list[RequestEntry]:
            state = run.state
            status = "" if state.newest is None else state.newest.status
            # The owner in the state of a file outlives a lease that another process has released.
            is_listed = request_filter.stopped or shows_requests(status, has_owner=run.read_lease() is not None)
            return list(state.requests.values()) if is_listed else []

        run_id = request_filter.run_id
        by_run = await self._read_all(read) if run_id is None else [await self._read(run_id, read)]
        return request_filter.page((request for requests in by_run for request in requests), past, limit)

    async def ready(self, ready_filter: ReadyFilter, *, limit: int | None = None) -> list[RunEntry]:
        return ready_filter.page(filter(None, await self._read_all(Run.listed)), limit)

    async def statistics(self) -> StoreStatistics:
        runs = await self.runs()
        return StoreStatistics(Counter(run.status for run in runs), len(await self.requests()))

    async def find_place(self, past: RunPlace | None, count: int) -> RunPlace | None:
        places = [RunPlace(run.began, run.run_id) for run in await self.runs()]
        further = [place for place in places if past is None or place < past]
        return further[count - 1] if len(further) > count else None

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

    async def numbers(self, run_id: str) -> list[int]:
        def read(run: Run[Any]) -> list[int]:
            run.index()
            return sorted(run.records)

        try:
            return await self._read(run_id, read)
        except CheckpointCorrupt:  # the run as a whole cannot be read, as every other call says
            return []

    # ---------------------------------------------------------------- outbox

    async def webhooks(self) -> list[WebhookRow]:
        return await self._do(lambda: list(self._find_webhooks()))

    async def outbox(self, webhook_id: str, *, due_by: str | None = None, limit: int | None = None) -> list[OutboxRow]:
        by_run = await self._read_all(lambda run: [row for row in run.state.outbox if row.webhook == webhook_id])
        return find_due((row for rows in by_run for row in rows), due_by, limit)

    async def settle(self, message: OutboxRow, attempt: Attempt | None = None) -> None:
        await self._write(message.run_id, lambda run: transactions.settle(run, message, attempt))

    async def _drop_messages(self, webhook_id: str) -> None:
        for run_id in {row.run_id for row in await self.outbox(webhook_id)}:
            await self._write(run_id, lambda run: transactions.settle_all(run, webhook_id))
