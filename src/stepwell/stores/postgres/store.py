"""The store port on PostgreSQL: writes are calls of functions in the database, reads are queries."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from stepwell.errors import CheckpointCorrupt, CommitConflict
from stepwell.storage.conflicts import (
    check_fence,
    check_follows,
    check_workflow,
    follower_error,
    newest_error,
)
from stepwell.storage.filters import (
    ALL_RUNS,
    ANY_CHECKPOINT,
    ANY_REQUEST,
    TOP_RUNS,
    CheckpointFilter,
    ReadyFilter,
    RequestFilter,
    RunFilter,
)
from stepwell.storage.ids import location_of, run_hash
from stepwell.storage.lease import Owner
from stepwell.storage.limits import LARGEST
from stepwell.storage.live_ring import LiveRing
from stepwell.storage.outbox import Attempt, OutboxRow, WebhookRow
from stepwell.storage.statistics import RunPlace, StoreStatistics
from stepwell.storage.stored_values import (
    HIGHEST_PRIORITY,
    NO_EFFECTS,
    NO_LOG_EFFECTS,
    CommitEffects,
    DamagedRun,
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
from stepwell.storage.worker_registry import ALIVE_FOR, KEPT_FOR, WorkerRow
from stepwell.stores.postgres import queries
from stepwell.stores.postgres.connection import Call, function_call
from stepwell.stores.postgres.database import PostgresDatabase
from stepwell.stores.postgres.live import PostgresRing
from stepwell.stores.postgres.notifications import Notifier, channel_of, listen
from stepwell.stores.postgres.pool import BEST_EFFORT
from stepwell.stores.postgres.queries import Search, checkpoints_query, ready_query, requests_query, runs_query
from stepwell.stores.postgres.schema import quote_schema
from stepwell.stores.postgres.tables import TABLES
from stepwell.stores.postgres.transaction import PostgresTransaction
from stepwell.stores.postgres.values import (
    Row,
    clock_ahead,
    encode,
    encode_append,
    escape,
    plain_attempt,
    plain_effects,
    plain_log_effects,
    plain_record,
    read_lease,
    read_message,
    read_opened,
    read_record,
    read_run,
    unescape,
    unescape_row,
)

_FIRST_TIME = False  # the value of `again`, which the writer sets when a call is repeated


class PostgresStore:
    """A store in one schema of the database. The schema is created at the first use.

    Any number of processes on any number of machines may use it at once, even through a pooler that
    gives each transaction another session. Leases are timed by the clock of the database alone. A
    schema that holds something else, or was written by a newer Stepwell, is refused and not changed.
    """

    completes_writes = True
    keeps_order = True  # writes of an event loop take effect in the order of the calls

    def __init__(self, dsn: str, *, schema: str = "stepwell", timeout: float = 30.0, connections: int = 5) -> None:
        self._db = PostgresDatabase(dsn, schema, timeout, connections)
        self.schema, self._schema = schema, quote_schema(schema)
        self._ring: PostgresRing | None = None
        self._calls: dict[str, Call] = {}  # by function, without values
        self._channel = channel_of(schema)
        self._notifier = Notifier(self._db, self._channel)

    # ---------------------------------------------------------------- records

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        ((refusal,),) = await self._write("append", encode_append(record, effects), body=14, holds_back=True)
        if refusal is not None:
            _raise_conflict(record.entry, msgspec.json.decode(refusal), effects.fence)
        if record.entry.number == 0 and not effects.fence:
            self._notifier.announce()  # nobody drives it yet: it was submitted

    async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
        if owner is None:
            return read_opened(run_id, await self._read(queries.READ, run_id, None, True))
        return read_opened(run_id, await self._take_lease(run_id, owner, seconds, reads=True))

    async def read(self, run_id: str, number: int | None = None) -> list[Record]:
        return list(read_opened(run_id, await self._read(queries.READ, run_id, number, False)).records)

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        query = queries.HISTORY_OF_OUTPUTS if outputs_only else queries.HISTORY
        return [read_record(row) for row in await self._read(query, run_id, after, LARGEST if upto is None else upto)]

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
        more = plain_log_effects(effects) or None
        values = (_FIRST_TIME, run_id, run_hash(run_id), place, key, body, fence, more)
        ((is_stored,),) = await self._write("write_log", encode(*values), body=5)
        if is_stored is None:
            check_fence(run_id, fence, LARGEST)
        return bool(is_stored)

    def transaction(self, run_id: str, place: int, key: str, *, fence: int | None = None) -> PostgresTransaction:
        """Return a transaction for a step, with a `psycopg.Connection`."""
        return PostgresTransaction(self._db, self._schema, run_id, place=place, key=key, fence=fence)

    async def send(self, run_id: str, key: str, body: bytes, *, fence: int | None = None) -> bool:
        values = (_FIRST_TIME, run_id, run_hash(run_id), key, uuid.uuid4().hex, body, fence)
        ((is_stored,),) = await self._write("send", encode(*values), body=5)
        if is_stored is None:
            check_fence(run_id, fence, LARGEST)
        self._notifier.announce()
        return bool(is_stored)

    async def pending_signals(self, run_id: str) -> list[SignalRow]:
        return [SignalRow(unescape(key), body) for key, body in await self._read(queries.PENDING_SIGNALS, run_id)]

    # ---------------------------------------------------------------- leases

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        return int((await self._take_lease(run_id, owner, seconds, reads=False))[0][1])

    async def _take_lease(self, run_id: str, owner: Owner, seconds: float, *, reads: bool) -> list[Row]:
        dead: dict[str, Any] | None = None
        while True:
            values = (_FIRST_TIME, run_id, run_hash(run_id), asdict(owner), seconds, clock_ahead(), dead, reads)
            parts = await self._write("acquire", encode(*values))
            if parts[0][0] != "holder":
                return parts
            dead, left = msgspec.json.decode(parts[0][2])
            lease = read_lease(run_id, dead, left)
            # The server cannot see that a process is gone; we can, if it ran on this machine.
            if not lease.is_over():
                raise lease.busy_error(run_id)

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        by_run = {escape(run_id): fence for run_id, fence in fences.items()}
        values = encode(_FIRST_TIME, by_run, seconds, clock_ahead())
        call = function_call(self._schema, "renew", len(values))._replace(values=values)
        ((report,),) = self._db.call(call, asked=BEST_EFFORT)
        lost, signalled = msgspec.json.decode(report)
        return LeaseReport([unescape(run_id) for run_id in lost], [unescape(run_id) for run_id in signalled])

    async def release(self, run_id: str, owner: Owner, *, stalls: bool = False) -> None:
        # Best effort: if the server is away, the lease expires by itself.
        await self._write("release", encode(_FIRST_TIME, run_id, asdict(owner), stalls), asked=BEST_EFFORT)
        self._notifier.announce()  # it was left in the middle, or submitted under a lease

    # ---------------------------------------------------------------- lists

    async def run(self, run_id: str) -> RunEntry | None:
        rows = await self._read(queries.ONE_RUN, run_id)
        return read_run(rows[0]) if rows else None

    async def runs(
        self, run_filter: RunFilter = TOP_RUNS, *, past: RunEntry | None = None, limit: int | None = None
    ) -> list[RunEntry]:
        return [read_run(row) for row in await self._search(runs_query, run_filter, past, limit)]

    async def checkpoints(
        self,
        checkpoint_filter: CheckpointFilter = ANY_CHECKPOINT,
        *,
        before: Entry | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        rows = await self._search(checkpoints_query, checkpoint_filter, before, limit)
        return [Entry(*unescape_row(row)) for row in reversed(rows)]

    async def locate(self, checkpoint_id: str) -> Entry | None:
        place = location_of(checkpoint_id)
        rows = await self._read(queries.LOCATE, checkpoint_id, *((None, None) if place is None else place))
        # The last column is there for the order.
        return Entry(*unescape_row(rows[0][:-1])) if rows else None

    async def requests(
        self,
        request_filter: RequestFilter = ANY_REQUEST,
        *,
        past: RequestEntry | None = None,
        limit: int | None = None,
    ) -> list[RequestEntry]:
        rows = await self._search(requests_query, request_filter, past, limit)
        return [RequestEntry(*unescape_row(row)) for row in rows]

    async def ready(self, ready_filter: ReadyFilter, *, limit: int | None = None) -> list[RunEntry]:
        runs, past = list[RunEntry](), (-HIGHEST_PRIORITY - 1, "", "")
        while True:
            page = [read_run(row[:-2]) for row in await self._search(ready_query, ready_filter, past, limit)]
            # The server cannot see that a process is gone; we can, if it ran on this machine.
            runs += filter(ready_filter.matches, page)
            if limit is None or len(page) < limit or len(runs) >= limit:
                return runs[:limit]
            past = ready_filter.sort_key(page[-1])

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
        inserted = [] if insert is None else [insert]
        changes = {
            "insert": [plain_record(record) for record in inserted],
            "replace": [plain_record(record) for record in replace],
            "remove": list(remove),
        }
        applied, more = (NO_EFFECTS, None) if effects is None else (effects, plain_effects(effects))
        columns = (applied.drop_log_through, applied.wake, applied.fence)
        values = encode(_FIRST_TIME, run_id, run_hash(run_id), changes, more, *columns)
        ((answer,),) = await self._write("rewrite", values)
        match msgspec.json.decode(answer):
            case {"newest": newest}:
                raise newest_error(run_id, newest)
            case {"based": number}:
                raise follower_error(run_id, number)
            case int(count):
                return count
            case position:
                check_fence(run_id, applied.fence, position["fence"])
                for record in (*inserted, *replace):
                    check_workflow(record.entry, unescape(position["workflow"]))
                raise AssertionError(position)

    async def drop(self, run_id: str) -> bool:
        ((was_there,),) = await self._write("drop", encode(_FIRST_TIME, run_id))
        return bool(was_there)

    async def survey(self) -> Survey:
        runs, damaged = list[RunEntry](), list[DamagedRun]()
        for row in await self._search(runs_query, ALL_RUNS, None, None):
            try:
                runs.append(read_run(row))
            except CheckpointCorrupt as error:
                damaged.append(DamagedRun(unescape(row[0]), str(error)))
        flaws = [
            f"run {unescape(run_id)!r} is listed with commit {listed}, and its newest commit is {newest}"
            if run_id is not None
            else f"the run of the commits with the key {key} is missing from the list of runs"
            for run_id, listed, key, newest in await self._read(queries.MISLISTED)
        ]
        return Survey(runs, damaged, flaws)

    async def numbers(self, run_id: str) -> list[int]:
        return [number for (number,) in await self._read(queries.NUMBERS, run_id)]

    async def compact(self) -> int:
        before = await self._size()
        tables = ", ".join(f"{self._schema}.{table}" for table in TABLES)
        # Plain VACUUM, not FULL: that would lock the tables against everybody while it rewrites
        # them.
        await self._db.use(lambda db, again: db.execute(f"VACUUM {tables}".encode()))
        return before - await self._size()

    async def _size(self) -> int:
        return int((await self._read(queries.SIZE, self._schema))[0][0])

    async def close(self) -> None:
        await self._notifier.flush()
        await self._db.close()

    # ---------------------------------------------------------------- workers and monitoring

    async def statistics(self) -> StoreStatistics:
        runs: dict[str, int] = dict(await self._read(queries.COUNT_RUNS))
        return StoreStatistics(runs, (await self._read(queries.COUNT_REQUESTS))[0][0])

    async def find_place(self, past: RunPlace | None, count: int) -> RunPlace | None:
        rows = await self._read(queries.PLACE, *(past or (None, None)), count - 1)
        return RunPlace(*unescape_row(rows[0])) if len(rows) == 2 else None

    @property
    def dsn(self) -> str:
        return self._db.dsn

    def live_ring(self) -> LiveRing:
        if self._ring is None:
            self._ring = PostgresRing(self._db, self.schema)
        return self._ring

    async def listen(self, wake: Callable[[], None]) -> None:
        await listen(self.dsn, self._channel, wake)

    async def announce_worker(self, name: str, process: str, body: bytes) -> bool:
        values = (_FIRST_TIME, name, process, body, ALIVE_FOR, KEPT_FOR, clock_ahead())
        ((is_stored,),) = await self._write("announce_worker", encode(*values))
        return bool(is_stored)

    async def withdraw_worker(self, name: str, process: str) -> None:
        await self._write("withdraw_worker", encode(_FIRST_TIME, name, process), asked=BEST_EFFORT)

    async def workers(self) -> list[WorkerRow]:
        return [
            WorkerRow(unescape(name), unescape(process), age, body)
            for name, process, age, body in await self._read(queries.WORKERS, clock_ahead())
        ]

    # ---------------------------------------------------------------- outbox

    async def put_webhook(self, webhook: WebhookRow) -> None:
        values = (webhook.id, webhook.workflow, list(webhook.kinds), webhook.is_stopped, webhook.body)
        await self._write("put_webhook", encode(_FIRST_TIME, *values))

    async def remove_webhook(self, webhook_id: str) -> bool:
        ((was_there,),) = await self._write("remove_webhook", encode(_FIRST_TIME, webhook_id))
        return bool(was_there)

    async def webhooks(self) -> list[WebhookRow]:
        rows = await self._read(queries.WEBHOOKS)
        return [WebhookRow(*(*unescape_row(row[:2]), tuple(row[2]), *row[3:])) for row in rows]

    async def outbox(self, webhook_id: str, *, due_by: str | None = None, limit: int | None = None) -> list[OutboxRow]:
        if due_by is None:
            return [read_message(row) for row in await self._read(queries.MESSAGES, webhook_id, limit)]
        return [read_message(row) for row in await self._read(queries.DUE_MESSAGES, webhook_id, due_by, limit)]

    async def settle(self, message: OutboxRow, attempt: Attempt | None = None) -> None:
        stored = None if attempt is None else plain_attempt(attempt)
        await self._write("settle", encode(_FIRST_TIME, message.position, stored))

    # ---------------------------------------------------------------- statements

    async def _read(self, query: str, *values: object) -> list[Row]:
        return await self._db.read(query.replace("{schema}", self._schema), *values)

    async def _search(self, build: Callable[..., str], *criteria: object) -> list[Row]:
        search = Search()
        return await self._read(build(search, *criteria), *search.values)

    async def _write(
        self,
        function: str,
        values: list[bytes | None],
        *,
        body: int | None = None,
        holds_back: bool = False,
        asked: float | None = None,
    ) -> list[Row]:
        call = self._calls.get(function) or function_call(self._schema, function, len(values), body)
        self._calls[function] = call
        return await self._db.write(call._replace(values=values), holds_back=holds_back, asked=asked)


def _raise_conflict(entry: Entry, position: dict[str, Any], fence: int | None) -> None:
    """Raise CommitConflict for a record that was refused, from where its run is."""
    check_fence(entry.run_id, fence, position["fence"])
    check_follows(entry, position["number"])
    check_workflow(entry, unescape(position["workflow"] or ""))
    raise CommitConflict(
        f"run {entry.run_id!r} was changed while commit {entry.number} was being added: another process has moved the "
        f"run; stop driving it here"
    )
