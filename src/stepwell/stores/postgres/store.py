"""The store port on PostgreSQL.

Writes are JSON jobs for functions of the database, reads are queries.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from stepwell.errors import CheckpointCorrupt, CommitConflict
from stepwell.storage import clock
from stepwell.storage.checked_reads import damage_error
from stepwell.storage.lease import Lease, Owner
from stepwell.storage.port import (
    ANY_RUN,
    NO_EFFECTS,
    CommitEffects,
    Entry,
    Pending,
    Record,
    RunEntry,
    RunFilter,
    RunMetadata,
    Wake,
    fence_error,
    follower_error,
    newest_error,
)
from stepwell.stores.postgres.access import PostgresDatabase, Row
from stepwell.stores.postgres.queries import (
    CHAIN,
    HEAD,
    HISTORY,
    HISTORY_OF_OUTPUTS,
    LOCATE,
    MAIL,
    MAILED,
    NEWEST,
    PLACE,
    RECALL,
    RUN,
    SIZE,
    TABLES,
    WAKES,
    QueryValues,
    checkpoints_query,
    inbox_query,
    runs_query,
)
from stepwell.stores.postgres.schema import quote_schema
from stepwell.stores.postgres.text_encoding import escape, unescape, unescape_row
from stepwell.stores.postgres.transaction import PostgresTransaction

NO_LIMIT = 2**63 - 1

_encode = msgspec.json.Encoder().encode
# The columns that hold the fields of these values, by the names of the fields.
_COLUMNS = {
    kind: dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)) for kind in (Entry, Pending)
}


class PostgresStore:
    """A store in one schema of the database. The schema is created at the first use.

    Any number of processes on any number of machines may use it at once, even through a pooler that
    gives each transaction another connection. Leases are timed by the clock of the database alone. A
    schema that holds something else, or was written by a newer Stepwell, is refused and not changed.
    """

    in_order = True  # writes are applied in the order of the calls, many of them in one transaction

    def __init__(self, dsn: str, *, schema: str = "stepwell", patience: float = 30.0, connections: int = 5) -> None:
        self._db = PostgresDatabase(dsn, schema, patience, connections)
        self._schema = quote_schema(schema)

    # ---------------------------------------------------------------- writing records

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        entry = record.entry

        def line() -> bytes:
            job = {"do": "append", **_plain(entry), **_effects(effects)}
            # A request that is asked again is closed first, so that it becomes the last one asked.
            if effects.closed or effects.asked:
                job["closed"] = list({*map(escape, effects.closed), *(escape(p.request_id) for p in effects.asked)})
            return _encode(job)

        more = (
            effects.consumed
            or effects.asked
            or effects.closed
            or effects.metadata
            or effects.drop_below
            or effects.reduced
        )
        # `add` handles only the plain case: not the first record, no further effects, numbers of at
        # most 64 bits.
        if more or not 0 < entry.number <= entry.iteration + entry.number <= NO_LIMIT:
            answer = await self._db.append(line(), record.body.decode())
        else:  # the JSON is made only if the job cannot go by its columns
            answer = await self._db.append(line, record.body.decode(), _columns(record, effects))
        if answer is not True:
            raise _refusal(entry, answer, effects.fence)

    async def put(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        job = {"do": "put", **_plain(record.entry), **_effects(effects)}
        answer = await self._db.write(_encode(job), record.body.decode())
        if answer is not True:
            raise _refusal(record.entry, answer, effects.fence)

    async def remove(
        self,
        run_id: str,
        number: int,
        *,
        follower: Record | None = None,
        asked: tuple[Pending, ...] = (),
        wake: str | None = None,
    ) -> bool:
        job = {
            "do": "remove",
            **(_plain(follower.entry) if follower else {}),
            **_effects(CommitEffects(asked=asked, wake=wake)),
        }
        job |= {"run_id": escape(run_id), "gone": number}
        answer = await self._db.write(_encode(job), follower.body.decode() if follower else None)
        if answer == "based":
            raise follower_error(run_id, number)
        if follower is not None and isinstance(answer, dict):
            raise _refusal(follower.entry, answer)
        return answer is True

    async def thin_out(self, run_id: str, numbers: Sequence[int], *, rewritten: Sequence[Record] = ()) -> int:
        job = {"do": "thin_out", "run_id": escape(run_id), "gone": list(numbers)}
        bodies = list(map(_with_body, rewritten))
        answer = await self._db.write(_encode(job), _encode(bodies).decode())
        if isinstance(answer, int):
            return answer
        if "newest" in answer:
            raise newest_error(run_id, answer["newest"])
        if "based" in answer:
            raise follower_error(run_id, answer["based"])
        raise next(
            _refusal(record.entry, answer)
            for record in rewritten
            if record.entry.workflow != unescape(answer["workflow"])
        )

    async def drop(self, run_id: str) -> bool:
        return bool(await self._db.write(_encode({"do": "drop", "run_id": escape(run_id)})))

    # ---------------------------------------------------------------- reading runs and records

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
        values = QueryValues()
        query = runs_query(
            values, workflow, status=status, tags=tags or {}, inner=inner, past=past, limit=limit, run_filter=run_filter
        )
        return [_run_entry(row) for row in await self._read(query, *values.bound)]

    async def run(self, run_id: str) -> RunEntry | None:
        rows = await self._read(RUN, run_id)
        return _run_entry(rows[0]) if rows else None

    async def head(self, run_id: str) -> Record | None:
        records = await self._records(HEAD, run_id)
        return records[0] if records else None

    async def chain(self, run_id: str, number: int) -> list[Record]:
        chain = await self._records(CHAIN, run_id, number)
        if not chain or chain[-1].entry.number != number:
            return []
        if not chain[0].entry.is_snapshot:
            raise CheckpointCorrupt(
                f"cannot read commit {number} of run {run_id!r}: it is a delta, and no snapshot before it is stored"
            )
        missing = set(range(chain[0].entry.number, number)) - {link.entry.number for link in chain}
        if missing:
            raise CheckpointCorrupt(
                f"cannot read commit {number} of run {run_id!r}: it is based on commit {min(missing)}, which is missing"
            )
        return chain

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        query = HISTORY_OF_OUTPUTS if outputs_only else HISTORY
        return await self._records(query, run_id, after, NO_LIMIT if upto is None else upto)

    async def locate(self, checkpoint_id: str) -> Entry | None:
        rows = await self._read(LOCATE, checkpoint_id)
        return _entry(rows[0]) if rows else None

    async def checkpoints(self, prefix: str, *, limit: int) -> list[Entry]:
        values = QueryValues()
        query = checkpoints_query(values, prefix, limit)
        return [_entry(row) for row in await self._read(query, *values.bound)]

    async def entries(
        self,
        *,
        workflow: str | None = None,
        run_id: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        return (await self._newest(workflow, run_id, before, limit))[::-1]

    async def newest(self, *, workflow: str | None = None, run_id: str | None = None) -> Entry | None:
        entries = await self._newest(workflow, run_id, None, 1)
        return entries[0] if entries else None

    async def _newest(
        self, workflow: str | None, run_id: str | None, before: str | None, limit: int | None
    ) -> list[Entry]:
        """Return the entries committed last, latest first."""
        # With a run id, the workflow is checked afterwards: in the query it might lead the planner
        # to a worse index.
        wanted = {"run_id = {value}": run_id, PLACE: before}
        if run_id is None:
            wanted["workflow = {value}"] = workflow
        rows = await self._search(NEWEST, wanted, limit=limit)
        entries = [_entry(row) for row in rows]
        # All records of a run have the same workflow, so with a run id the limit is not affected by
        # this filter.
        return [entry for entry in entries if workflow in (None, entry.workflow)]

    # ---------------------------------------------------------------- superstep log

    async def write_log(self, run_id: str, place: int, key: str, body: bytes, *, fence: int | None = None) -> bool:
        job = {"do": "remember", "run_id": escape(run_id), "place": place, "key": escape(key)}
        if fence is not None:
            job["fence"] = fence
        answer = await self._db.write(_encode(job), body.decode())
        if answer == "fenced" and fence is not None:
            raise fence_error(run_id, fence)
        return bool(answer)

    def transaction(self, run_id: str, place: int, key: str, *, fence: int | None = None) -> PostgresTransaction:
        """Return a transaction for a step, as `Transacting` promises, with a `psycopg.Connection`."""
        job = {"run_id": escape(run_id), "place": place, "key": escape(key)}
        if fence is not None:
            job["fence"] = fence
        return PostgresTransaction(self._db, self._schema, run_id, job, fence)

    async def read_log(self, run_id: str, place: int) -> dict[str, bytes]:
        return {unescape(key): body for key, body in await self._read(RECALL, run_id, place)}

    # ---------------------------------------------------------------- signals, requests, wake-up times

    async def send(self, run_id: str, key: str, body: bytes) -> bool:
        job = {"do": "post", "run_id": escape(run_id), "key": escape(key), "posting": uuid.uuid4().hex}
        return bool(await self._db.write(_encode(job), body.decode()))

    async def pending_signals(self, run_id: str) -> list[tuple[str, bytes]]:
        return [(unescape(key), body) for key, body in await self._read(MAIL, run_id)]

    def runs_with_signals(self, run_ids: list[str]) -> list[str]:
        query = MAILED.replace("{schema}", self._schema).encode()
        with_mail = {row[0] for row in self._db.read_best_effort(query, [[escape(run_id) for run_id in run_ids]])}
        return [run_id for run_id in run_ids if escape(run_id) in with_mail]

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
        values = QueryValues()
        query = inbox_query(values, {"workflow": workflow, "run_id": run_id}, asked_by, due_by, past, limit)
        return [Pending(*unescape_row(row)) for row in await self._read(query, *values.bound)]

    async def wakes(self, *, before: str | None = None, workflow: str | None = None) -> list[Wake]:
        rows = await self._search(
            WAKES, {"wake <= {value}": before, "workflow = {value}": workflow}, "wake IS NOT NULL"
        )
        return [Wake(*unescape_row(row)) for row in rows]

    # ---------------------------------------------------------------- leases

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        job = {"do": "claim", "run_id": escape(run_id), "owner": asdict(owner), "seconds": seconds, "ahead": _ahead()}
        while not isinstance(held := await self._db.write(_encode(job)), int):
            if held is None:  # released between the two statements of the function: try again
                continue
            lease = _lease(run_id, held)
            if not lease.is_over():
                raise lease.busy_error(run_id)
            # The server cannot see that a process is gone; we can, if it ran on this machine.
            job["dead"] = held
        return held

    def renew(self, fences: Mapping[str, int], *, seconds: float) -> list[str]:
        by_run = {escape(run_id): fence for run_id, fence in fences.items()}
        job = {"do": "renew", "fences": by_run, "seconds": seconds, "ahead": _ahead()}
        return [unescape(run_id) for run_id in self._db.write_blocking(_encode(job))]

    async def release(self, run_id: str, owner: Owner) -> None:
        # Best effort: if the server is away, the lease expires by itself.
        await self._db.write_best_effort(_encode({"do": "release", "run_id": escape(run_id), "owner": asdict(owner)}))

    # ---------------------------------------------------------------- maintenance

    async def compact(self) -> int:
        before = await self._size()
        tables = ", ".join(f"{self._schema}.{table}" for table in TABLES)
        # Plain VACUUM, not FULL: that would lock the tables against everybody while it rewrites
        # them.
        await self._db.tidy(f"VACUUM {tables}".encode())
        return before - await self._size()

    async def _size(self) -> int:
        return int((await self._read(SIZE, self._schema))[0][0])

    async def close(self) -> None:
        await self._db.close()

    async def _records(self, query: str, run_id: str, *values: int) -> list[Record]:
        return [Record(_entry(row[:-1]), row[-1]) for row in await self._read(query, run_id, *values)]

    async def _search(
        self, query: str, conditional: dict[str, str | None], *conditions: str, limit: int | None = None
    ) -> list[Row]:
        """Return the rows that meet all `conditions`, and those of `conditional` that have a value."""
        values = QueryValues()
        wanted = {condition: value for condition, value in conditional.items() if value is not None}
        met = [*conditions, *(condition.replace("{value}", values(value)) for condition, value in wanted.items())]
        query = query.replace("{where}", f"WHERE {' AND '.join(met)}" if met else "")
        if "{limit}" in query:
            query = query.replace("{limit}", f"{values(limit)}::bigint")
        return await self._read(query, *values.bound)

    async def _read(self, query: str, *values: str | int | None) -> list[Row]:
        escaped = [escape(value) if isinstance(value, str) else value for value in values]
        return await self._db.read(query.replace("{schema}", self._schema).encode(), escaped)


def _effects(effects: CommitEffects) -> dict[str, Any]:
    """Return the effects of a record as keys of a job, without those that are empty."""
    requests = {p.request_id: _plain(p) for p in effects.asked}
    parts = {
        "settled": effects.drop_log_through,
        "wake": effects.wake,
        "consumed": list({escape(key): None for key in effects.consumed}),
        "asked": list(requests.values()),
        "about": effects.metadata and _about(effects.metadata),
        "drop_below": effects.drop_below,
        "fence": effects.fence,
        "reduced": list(map(_with_body, effects.reduced)),
    }
    return {name: value for name, value in parts.items() if value not in (None, [])}


def _columns(record: Record, effects: CommitEffects) -> tuple[bytes | None, ...]:
    """Return a record and its most frequent effects as the arguments of `add`."""
    entry = record.entry
    return (
        escape(entry.run_id).encode(),
        b"%d" % entry.number,
        escape(entry.checkpoint_id).encode(),
        escape(entry.workflow).encode(),
        escape(entry.status).encode(),
        b"%d" % entry.iteration,
        escape(entry.at).encode(),
        b"t" if entry.is_snapshot else b"f",
        b"t" if entry.outputs else b"f",
        b"t" if entry.fleeting else b"f",
        record.body,
        None if effects.drop_log_through is None else b"%d" % effects.drop_log_through,
        None if effects.wake is None else effects.wake.encode(),
        b"%d" % (NO_LIMIT if effects.fence is None else effects.fence),
    )


def _about(metadata: RunMetadata) -> dict[str, Any]:
    tags = {escape(name): escape(value) for name, value in metadata.tags.items()}
    return {"tags": tags, "caller": None if metadata.caller is None else escape(metadata.caller)}


def _refusal(entry: Entry, standing: dict[str, Any], fence: int | None = None) -> CommitConflict:
    """Return the error for a record that was refused, from the state of its run."""
    if fence is not None and (standing["fence"] or 0) > fence:
        return fence_error(entry.run_id, fence)
    workflow = standing["workflow"] and unescape(standing["workflow"])
    if workflow not in (None, entry.workflow):
        return CommitConflict(
            f"run {entry.run_id!r} belongs to workflow {workflow!r} and cannot continue as a run of "
            f"{entry.workflow!r}; give the new run another id"
        )
    return CommitConflict(
        f"run {entry.run_id!r} is at commit {standing['latest']}, so commit {entry.number} cannot be added: "
        f"another process has moved the run; stop driving it here"
    )


def _ahead() -> float:
    """Return by how many seconds a test has advanced our clock; without a test, about zero.

    Leases are timed by the clock of the database, the same for all machines. This is added to it.
    """
    return clock.seconds() - time.time()


def _plain(value: Entry | Pending) -> dict[str, Any]:
    """Return the fields, with escaped strings."""
    fields = {column: getattr(value, name) for name, column in _COLUMNS[type(value)].items()}
    return {name: escape(field) if isinstance(field, str) else field for name, field in fields.items()}


def _with_body(record: Record) -> dict[str, Any]:
    return {**_plain(record.entry), "body": record.body.decode()}


def _entry(row: Row) -> Entry:
    return Entry(*unescape_row(row))


def _lease(run_id: str, held: Any) -> Lease:
    """Return the lease that the server reported, with its end by the clock of the owner."""
    try:
        left = held.pop("left")
        owner = msgspec.convert(held, Owner)
        return Lease(owner, owner.clock() + left)
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise damage_error(f"the lease of run {run_id!r}", error) from error


def _run_entry(row: Row) -> RunEntry:
    *columns, tags, caller = row
    named = {unescape(name): unescape(value) for name, value in (tags or {}).items()}
    return RunEntry(*unescape_row((*columns, RunMetadata(named, caller and unescape(caller)))))
