"""The port on PostgreSQL: what is written goes to functions of the database as JSON, what is read comes by queries."""

from __future__ import annotations

import time
import uuid
from dataclasses import asdict, fields
from typing import Any

import msgspec

from ..core.errors import CheckpointCorrupt, CommitConflict
from ..durable import clock
from ..durable.ownership import Lease, Owner
from ..durable.ports import NOTHING_ALONG, Along, Entry, Pending, Record, Wake, needs_follower
from .postgres_access import Database, Row
from .postgres_schema import quoted

ENTRY = "run_id, number, checkpoint_id, workflow, status, iteration, at, frame, outputs"
RECORD = f"{ENTRY}, convert_to(body, 'UTF8')"
REQUEST = "run_id, request_id, workflow, executor, request_type, response_type, schema, at, deadline"

HEAD = f"SELECT {RECORD} FROM {{schema}}.commits WHERE run_id = $1 ORDER BY number DESC LIMIT 1"
CHAIN = f"""
SELECT {RECORD} FROM {{schema}}.commits
WHERE run_id = $1 AND number <= $2 AND number >= coalesce((
    SELECT number FROM {{schema}}.commits WHERE run_id = $1 AND number <= $2 AND frame ORDER BY number DESC LIMIT 1
), $2)
ORDER BY number
"""
PART = f"SELECT {RECORD} FROM {{schema}}.commits WHERE run_id = $1 AND number > $2 AND number <= $3"
HISTORY = f"{PART} ORDER BY number"
HISTORY_OF_OUTPUTS = f"{PART} AND outputs ORDER BY number"
LOCATE = f"SELECT {ENTRY} FROM {{schema}}.commits WHERE checkpoint_id = $1 ORDER BY seq DESC LIMIT 1"
ENTRIES = f"SELECT {ENTRY} FROM {{schema}}.commits {{where}} ORDER BY seq"
NEWEST = f"SELECT {ENTRY} FROM {{schema}}.commits {{where}} ORDER BY seq DESC LIMIT 1"
# `+ 0`: or the newest commit of a run is looked for among the newest of all runs
NEWEST_OF_RUN = f"SELECT {ENTRY} FROM {{schema}}.commits {{where}} ORDER BY seq + 0 DESC LIMIT 1"
RECALL = "SELECT key, convert_to(body, 'UTF8') FROM {schema}.memory WHERE run_id = $1 AND place = $2"
MAIL = "SELECT key, convert_to(body, 'UTF8') FROM {schema}.mail WHERE run_id = $1 AND NOT consumed ORDER BY seq"
MAILED = """
SELECT asked.run_id FROM unnest($1::text[]) AS asked (run_id)
WHERE EXISTS (SELECT FROM {schema}.mail AS m WHERE m.run_id = asked.run_id AND NOT m.consumed)
"""
PENDING = f"SELECT {REQUEST} FROM {{schema}}.requests {{where}} ORDER BY at, run_id, seq"
WAKES = "SELECT run_id, workflow, wake FROM {schema}.runs {where} ORDER BY wake, run_id"

NO_LIMIT = 2**63 - 1

_encode = msgspec.json.Encoder().encode
_NAMES = {kind: tuple(field.name for field in fields(kind)) for kind in (Entry, Pending)}


class PostgresStore:
    """Keeps everything in one schema of the database, which is created at the first use.

    Any number of processes on any number of machines may use it at once, also through a pooler that gives each
    transaction another connection. Claims are timed by the clock of the database alone. A schema that holds
    something else, or was written by a newer Holdfast, is refused and left as it is.
    """

    def __init__(self, dsn: str, *, schema: str = "holdfast", patience: float = 30.0, connections: int = 5) -> None:
        self._db = Database(dsn, schema, patience, connections)
        self._schema = quoted(schema)

    async def append(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        entry = record.entry
        job = {"do": "append", **_plain(entry), **_along(along)}
        if along.closed or along.asked:  # what is asked again is the last one asked
            job["closed"] = list({*map(_shown, along.closed), *(_shown(p.request_id) for p in along.asked)})
        said = await self._db.write(_encode(job), record.body.decode())
        if said is not True:
            raise _refusal(entry, said)

    async def put(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        job = {"do": "put", **_plain(record.entry), **_along(along)}
        said = await self._db.write(_encode(job), record.body.decode())
        if said is not True:
            raise _refusal(record.entry, said)

    async def remove(
        self, run_id: str, number: int, *, follower: Record | None = None, asked: tuple[Pending, ...] = ()
    ) -> bool:
        job = {"do": "remove", **(_plain(follower.entry) if follower else {}), **_along(Along(asked=asked))}
        job |= {"run_id": _shown(run_id), "gone": number}
        said = await self._db.write(_encode(job), follower.body.decode() if follower else None)
        if said == "based":
            raise needs_follower(run_id, number)
        if follower is not None and isinstance(said, dict):
            raise _refusal(follower.entry, said)
        return said is True

    async def head(self, run_id: str) -> Record | None:
        found = await self._records(HEAD, run_id)
        return found[0] if found else None

    async def chain(self, run_id: str, number: int) -> list[Record]:
        links = await self._records(CHAIN, run_id, number)
        if not links or links[-1].entry.number != number:
            return []
        if not links[0].entry.frame:
            raise CheckpointCorrupt(
                f"commit {number} of run {run_id!r} cannot be read: it tells only what changed since the commits "
                f"before it, and none of those that are stored stands alone"
            )
        missing = set(range(links[0].entry.number, number)) - {link.entry.number for link in links}
        if missing:
            raise CheckpointCorrupt(
                f"commit {number} of run {run_id!r} cannot be read: it builds on commit {min(missing)}, "
                f"which is not stored"
            )
        return links

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        query = HISTORY_OF_OUTPUTS if outputs_only else HISTORY
        return await self._records(query, run_id, after, NO_LIMIT if upto is None else upto)

    async def locate(self, checkpoint_id: str) -> Entry | None:
        rows = await self._read(LOCATE, checkpoint_id)
        return _entry(rows[0]) if rows else None

    async def entries(self, *, workflow: str | None = None, run_id: str | None = None) -> list[Entry]:
        return [_entry(row) for row in await self._search(ENTRIES, {"workflow =": workflow, "run_id =": run_id})]

    async def newest(self, *, workflow: str | None = None, run_id: str | None = None) -> Entry | None:
        query = NEWEST if run_id is None else NEWEST_OF_RUN
        rows = await self._search(query, {"workflow =": workflow, "run_id =": run_id})
        return _entry(rows[0]) if rows else None

    async def remember(self, run_id: str, place: int, key: str, body: bytes) -> bool:
        job = {"do": "remember", "run_id": _shown(run_id), "place": place, "key": _shown(key)}
        return bool(await self._db.write(_encode(job), body.decode()))

    async def recall(self, run_id: str, place: int) -> dict[str, bytes]:
        return {_meant(key): body for key, body in await self._read(RECALL, run_id, place)}

    async def post(self, run_id: str, key: str, body: bytes) -> bool:
        job = {"do": "post", "run_id": _shown(run_id), "key": _shown(key), "posting": uuid.uuid4().hex}
        return bool(await self._db.write(_encode(job), body.decode()))

    async def mail(self, run_id: str) -> list[tuple[str, bytes]]:
        return [(_meant(key), body) for key, body in await self._read(MAIL, run_id)]

    def mailed(self, run_ids: list[str]) -> list[str]:
        query = MAILED.replace("{schema}", self._schema).encode()
        found = {row[0] for row in self._db.read_blocking(query, [[_shown(run_id) for run_id in run_ids]])}
        return [run_id for run_id in run_ids if _shown(run_id) in found]

    async def pending(self, *, workflow: str | None = None, run_id: str | None = None) -> list[Pending]:
        rows = await self._search(PENDING, {"workflow =": workflow, "run_id =": run_id})
        return [Pending(*_all_meant(row)) for row in rows]

    async def wakes(self, *, before: str | None = None, workflow: str | None = None) -> list[Wake]:
        rows = await self._search(WAKES, {"wake <=": before, "workflow =": workflow}, "wake IS NOT NULL")
        return [Wake(*_all_meant(row)) for row in rows]

    async def claim(self, run_id: str, owner: Owner, *, seconds: float) -> None:
        job = {"do": "claim", "run_id": _shown(run_id), **asdict(owner), "seconds": seconds, "ahead": _ahead()}
        while (held := await self._db.write(_encode(job))) is not True:
            if held is None:  # whoever held it let go just now
                continue
            left = held.pop("left")
            lease = Lease(Owner(**held), clock.seconds() + left)  # by our own clock, as `Lease` reads it
            if not lease.is_over():
                raise lease.refuse(run_id)
            job["dead"] = held

    def renew(self, run_ids: list[str], owner: Owner, *, seconds: float) -> None:
        runs = [_shown(run_id) for run_id in run_ids]
        job = {"do": "renew", "run_ids": runs, **asdict(owner), "seconds": seconds, "ahead": _ahead()}
        self._db.write_blocking(_encode(job))

    async def release(self, run_id: str, owner: Owner) -> None:
        await self._db.write(_encode({"do": "release", "run_id": _shown(run_id), **asdict(owner)}))

    async def close(self) -> None:
        await self._db.close()

    async def _records(self, query: str, run_id: str, *values: int) -> list[Record]:
        return [Record(_entry(row[:-1]), row[-1]) for row in await self._read(query, run_id, *values)]

    async def _search(self, query: str, asked: dict[str, str | None], *conditions: str) -> list[Row]:
        """The rows that meet the conditions, and those comparisons for which a value is given."""
        given = {comparison: value for comparison, value in asked.items() if value is not None}
        met = [*conditions, *(f"{comparison} ${n}" for n, comparison in enumerate(given, 1))]
        return await self._read(query.replace("{where}", f"WHERE {' AND '.join(met)}" if met else ""), *given.values())

    async def _read(self, query: str, *values: str | int) -> list[Row]:
        shown = [_shown(value) if isinstance(value, str) else value for value in values]
        return await self._db.read(query.replace("{schema}", self._schema).encode(), shown)


def _along(along: Along) -> dict[str, Any]:
    """What goes along with a record, without what does not."""
    asked = {p.request_id: _plain(p) for p in along.asked}
    parts = {
        "settled": along.settled,
        "wake": along.wake,
        "consumed": list({_shown(key): None for key in along.consumed}),
        "asked": list(asked.values()),
    }
    return {name: value for name, value in parts.items() if value not in (None, [])}


def _refusal(entry: Entry, standing: dict[str, Any]) -> CommitConflict:
    """The error for a record that was not taken, and where its run stands."""
    workflow = standing["workflow"] and _meant(standing["workflow"])
    if workflow not in (None, entry.workflow):
        return CommitConflict(
            f"run {entry.run_id!r} belongs to workflow {workflow!r} and cannot go on as one of "
            f"{entry.workflow!r}; give the new run another id"
        )
    return CommitConflict(
        f"run {entry.run_id!r} is at commit {standing['latest']}, so commit {entry.number} cannot be added: "
        f"another process has moved the run; stop driving it here"
    )


def _ahead() -> float:
    """By how many seconds somebody has moved our clock on: a test. Nothing, but for rounding, if nobody has.

    Claims are timed by the clock of the database, which is one for all machines. This is added to it.
    """
    return clock.seconds() - time.time()


# A text of PostgreSQL cannot hold a NUL. It is shown as the character DLE, "data link escape", and 0.


def _shown(text: str) -> str:
    """The text as it is stored; never the same for two texts."""
    return text.replace("\x10", "\x101").replace("\0", "\x100") if "\0" in text or "\x10" in text else text


def _meant(text: str) -> str:
    """The text that was stored."""
    return text.replace("\x100", "\0").replace("\x101", "\x10") if "\x10" in text else text


def _all_meant(row: Row) -> Row:
    return tuple(_meant(value) if isinstance(value, str) else value for value in row)


def _plain(value: Entry | Pending) -> dict[str, Any]:
    """The fields, each as it is stored."""
    found = {name: getattr(value, name) for name in _NAMES[type(value)]}
    return {name: _shown(field) if isinstance(field, str) else field for name, field in found.items()}


def _entry(row: Row) -> Entry:
    return Entry(*_all_meant(row))
