"""The store port on one SQLite file, which several processes may use at once.

Bodies are stored as text, so that a run can be inspected with the `sqlite3` command.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from stepwell.model.checkpoint import FullHistory, Retention
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.encryption import Seal
from stepwell.storage.filters import (
    ANY_CHECKPOINT,
    ANY_REQUEST,
    TOP_RUNS,
    CheckpointFilter,
    ReadyFilter,
    RequestFilter,
    RunFilter,
)
from stepwell.storage.lease import LEASE, Owner
from stepwell.storage.live_ring import LiveRing
from stepwell.storage.outbox import Attempt, OutboxRow, WebhookRow
from stepwell.storage.permissions import OWNER_ONLY, validate_mode
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
    Survey,
)
from stepwell.storage.worker_registry import WorkerRow
from stepwell.stores.sqlite import leases, lists, outbox, records, upkeep, workers
from stepwell.stores.sqlite.access import SQLiteDatabase
from stepwell.stores.sqlite.schema import prepare

if TYPE_CHECKING:
    from stepwell.stores.side_ring import SideRing


class SQLiteStore:
    """A store in the SQLite file at `path`. The file and its folders are created at the first use.

    Any number of processes on one machine may use the file at once. A file of another program, or of
    a newer Stepwell, is refused and not changed.
    """

    completes_writes = True
    keeps_order = True

    def __init__(self, path: str | os.PathLike[str], *, mode: int = OWNER_ONLY) -> None:
        if os.fspath(path) == ":memory:":
            raise ValueError(
                "a SQLite store needs a file, not ':memory:'; for runs that need not outlive the process, "
                "use InMemoryCheckpointStorage()"
            )
        self._db = SQLiteDatabase(os.path.abspath(os.fspath(path)), prepare, validate_mode(mode))
        self._ring: SideRing | None = None
        self._ring_path = f"{os.path.abspath(os.fspath(path))}-live"

    # ---------------------------------------------------------------- records

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await self._db.write(partial(records.append, record=record, effects=effects))

    async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
        run = self._db.read if owner is None else self._db.write
        return await run(lambda db: leases.open_run(db, run_id, owner, seconds))

    async def read(self, run_id: str, number: int | None = None) -> list[Record]:
        return await self._db.read(lambda db: records.read(db, run_id, number))

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        return await self._db.read(lambda db: records.history(db, run_id, after, upto, outputs_only))

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
        return await self._db.write(
            lambda db: leases.write_log(db, run_id, place, key, body, effects=effects, fence=fence)
        )

    def transaction(self, run_id: str, place: int, key: str, *, fence: int | None = None) -> None:
        return None

    async def send(self, run_id: str, key: str, body: bytes, *, fence: int | None = None) -> bool:
        return await self._db.write(lambda db: leases.send(db, run_id, key, body, fence=fence))

    async def pending_signals(self, run_id: str) -> list[SignalRow]:
        return await self._db.read(lambda db: leases.pending_signals(db, run_id))

    # ---------------------------------------------------------------- leases

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        return await self._db.write(lambda db: leases.acquire(db, run_id, owner, seconds))

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        run = self._db.read_blocking if seconds is None else self._db.write_blocking
        return run(lambda db: leases.renew(db, fences, seconds))

    async def release(self, run_id: str, owner: Owner, *, stalls: bool = False) -> None:
        await self._db.write(lambda db: leases.release(db, run_id, owner, stalls=stalls))

    # ---------------------------------------------------------------- lists

    async def run(self, run_id: str) -> RunEntry | None:
        return await self._db.read(lambda db: lists.find_run_entry(db, run_id))

    async def runs(
        self, run_filter: RunFilter = TOP_RUNS, *, past: RunEntry | None = None, limit: int | None = None
    ) -> list[RunEntry]:
        return await self._db.read(lambda db: lists.list_runs(db, run_filter, past, limit))

    async def checkpoints(
        self,
        checkpoint_filter: CheckpointFilter = ANY_CHECKPOINT,
        *,
        before: Entry | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        return await self._db.read(lambda db: lists.list_checkpoints(db, checkpoint_filter, before, limit))

    async def locate(self, checkpoint_id: str) -> Entry | None:
        return await self._db.read(lambda db: lists.locate(db, checkpoint_id))

    async def requests(
        self,
        request_filter: RequestFilter = ANY_REQUEST,
        *,
        past: RequestEntry | None = None,
        limit: int | None = None,
    ) -> list[RequestEntry]:
        return await self._db.read(lambda db: lists.list_requests(db, request_filter, past, limit))

    async def ready(self, ready_filter: ReadyFilter, *, limit: int | None = None) -> list[RunEntry]:
        return await self._db.read(lambda db: lists.list_ready(db, ready_filter, limit))

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
        return await self._db.write(lambda db: records.rewrite(db, run_id, insert, replace, remove, effects))

    async def drop(self, run_id: str) -> bool:
        return await self._db.write(lambda db: records.drop(db, run_id))

    async def survey(self) -> Survey:
        return await self._db.read(upkeep.survey)

    async def numbers(self, run_id: str) -> list[int]:
        return await self._db.read(lambda db: upkeep.numbers(db, run_id))

    async def compact(self) -> int:
        return await self._db.read(upkeep.compact)

    async def close(self) -> None:
        if self._ring is not None:
            self._ring.close()
        await self._db.close()

    def live_ring(self) -> LiveRing:
        from stepwell.stores.side_ring import SideRing  # lazy: it loads asyncio, and few programs watch

        if self._ring is None:
            self._ring = SideRing(self._ring_path)
        return self._ring

    # ---------------------------------------------------------------- workers and monitoring

    async def statistics(self) -> StoreStatistics:
        return await self._db.read(lists.count_all)

    async def find_place(self, past: RunPlace | None, count: int) -> RunPlace | None:
        return await self._db.read(lambda db: lists.find_place(db, past, count))

    async def announce_worker(self, name: str, process: str, body: bytes) -> bool:
        return await self._db.write(lambda db: workers.announce_worker(db, name, process, body))

    async def withdraw_worker(self, name: str, process: str) -> None:
        await self._db.write(lambda db: workers.withdraw_worker(db, name, process))

    async def workers(self) -> list[WorkerRow]:
        return await self._db.read(workers.workers)

    # ---------------------------------------------------------------- outbox

    async def put_webhook(self, webhook: WebhookRow) -> None:
        await self._db.write(lambda db: outbox.put_webhook(db, webhook))

    async def remove_webhook(self, webhook_id: str) -> bool:
        return await self._db.write(lambda db: outbox.remove_webhook(db, webhook_id))

    async def webhooks(self) -> list[WebhookRow]:
        return await self._db.read(outbox.webhooks)

    async def outbox(self, webhook_id: str, *, due_by: str | None = None, limit: int | None = None) -> list[OutboxRow]:
        return await self._db.read(lambda db: outbox.messages(db, webhook_id, due_by, limit))

    async def settle(self, message: OutboxRow, attempt: Attempt | None = None) -> None:
        await self._db.write(lambda db: outbox.settle(db, message, attempt))


class SQLiteCheckpointStorage(BuiltInStorage):
    """Durable storage for runs in one SQLite file, shared by the processes of one machine.

    A new file and the files SQLite creates next to it get the permissions `mode`; an existing file
    keeps its own. `seal` encrypts what is stored, `retention` says how much of a run's history is
    kept, and `lease` is how many seconds a silent process keeps its runs.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        seal: Seal | None = None,
        retention: Retention = FullHistory,
        mode: int = OWNER_ONLY,
        lease: float = LEASE,
    ) -> None:
        super().__init__(SQLiteStore(path, mode=mode), seal=seal, retention=retention, lease=lease)
