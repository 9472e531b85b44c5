"""Everything in one SQLite file, which several processes may use at once. Bodies are text: read them with `sqlite3`."""

from __future__ import annotations

import json
import os
import sqlite3
from typing import Any

from ..core.errors import CheckpointCorrupt, CommitConflict
from ..durable import clock
from ..durable.ownership import Lease, Owner
from ..durable.ports import NOTHING_ALONG, Along, Entry, Pending, Record, Wake, needs_follower
from ..durable.seal import Seal
from ..durable.storage import BuiltInStorage
from .sqlite_access import Database
from .sqlite_schema import prepare

ENTRY = "run_id, number, checkpoint_id, workflow, status, iteration, at, frame, outputs"
RECORD = f"{ENTRY}, CAST(body AS BLOB)"

LATEST = "SELECT number, workflow FROM commits WHERE run_id = ? ORDER BY number DESC LIMIT 1"
ADD = f"INSERT INTO commits ({ENTRY}, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
PUT = ADD.replace("INSERT", "INSERT OR REPLACE")  # the old row goes, so the new one is last in `seq`
REPLACE = f"""
{ADD} ON CONFLICT (run_id, number) DO UPDATE SET
    checkpoint_id = excluded.checkpoint_id, workflow = excluded.workflow, status = excluded.status,
    iteration = excluded.iteration, at = excluded.at, frame = excluded.frame, outputs = excluded.outputs,
    body = excluded.body
"""
IS_FRAME = "SELECT frame FROM commits WHERE run_id = ? AND number = ?"
REMOVE = "DELETE FROM commits WHERE run_id = ? AND number = ?"
HEAD = f"SELECT {RECORD} FROM commits WHERE run_id = ? ORDER BY number DESC LIMIT 1"
CHAIN = f"""
SELECT {RECORD} FROM commits
WHERE run_id = :run_id AND number <= :number AND number >= coalesce(
    (SELECT max(number) FROM commits WHERE run_id = :run_id AND number <= :number AND frame), :number)
ORDER BY number
"""
PART = f"SELECT {RECORD} FROM commits WHERE run_id = ? AND number > ? AND number <= ?"
HISTORY = f"{PART} ORDER BY number"
HISTORY_OF_OUTPUTS = f"{PART} AND outputs ORDER BY number"
LOCATE = f"SELECT {ENTRY} FROM commits WHERE checkpoint_id = ? ORDER BY seq DESC LIMIT 1"

REMEMBER = "INSERT INTO memory (run_id, place, key, body) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
RECALL = "SELECT key, CAST(body AS BLOB) FROM memory WHERE run_id = ? AND place = ?"
SETTLE = "DELETE FROM memory WHERE run_id = ? AND place <= ?"
FORGET_AFTER = "DELETE FROM memory WHERE run_id = ? AND place > ?"

POST = "INSERT INTO mail (run_id, key, consumed, body) VALUES (?, ?, 0, ?) ON CONFLICT DO NOTHING"
# json_each ends a text at a NUL, so it comes in disguise: see _disguised
MAILED = """
SELECT key FROM json_each(?) WHERE EXISTS (
    SELECT 1 FROM mail WHERE run_id = replace(replace(value, '~0', char(0)), '~1', '~') AND NOT consumed)
"""
MAIL = "SELECT key, CAST(body AS BLOB) FROM mail WHERE run_id = ? AND NOT consumed ORDER BY seq"
CONSUME = """
INSERT INTO mail (run_id, key, consumed, body) VALUES (?, ?, 1, 'null')
ON CONFLICT (run_id, key) DO UPDATE SET consumed = 1
"""
DROP_MAIL = "DELETE FROM mail WHERE run_id = ?"

REQUEST = "run_id, request_id, workflow, executor, request_type, response_type, schema, at, deadline"
ASK = f"INSERT OR REPLACE INTO requests ({REQUEST}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
CLOSE = "DELETE FROM requests WHERE run_id = ? AND request_id = ?"
CLOSE_ALL = "DELETE FROM requests WHERE run_id = ?"
PENDING = f"SELECT {REQUEST} FROM requests {{where}} ORDER BY at, run_id, seq"

WAKE = "INSERT OR REPLACE INTO wakes (run_id, workflow, at) VALUES (?, ?, ?)"
LET_SLEEP = "DELETE FROM wakes WHERE run_id = ?"
WAKES = "SELECT run_id, workflow, at FROM wakes {where} ORDER BY at, run_id"

LEASE = "SELECT host, machine, pid, started, drive, until FROM leases WHERE run_id = ?"
CLAIM = "INSERT OR REPLACE INTO leases (run_id, host, machine, pid, started, drive, until) VALUES (?, ?, ?, ?, ?, ?, ?)"
HELD = "run_id = ? AND host = ? AND machine = ? AND pid = ? AND started = ? AND drive = ?"
RENEW = f"UPDATE leases SET until = ? WHERE {HELD}"
RELEASE = f"DELETE FROM leases WHERE {HELD}"

NO_LIMIT = 2**63 - 1


class SQLiteStore:
    """Keeps everything in the file at `path`, which is created at the first use, with the folders above it.

    Any number of processes of one machine may use the file at once. A file of another program, or of a
    newer Holdfast, is refused and left as it is.
    """

    unbroken = True  # a write that was begun is finished, also if whoever waits for it is cancelled

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if os.fspath(path) == ":memory:":
            raise ValueError(
                "a SQLite store is a file; for runs that need not outlive the process: InMemoryCheckpointStorage()"
            )
        self._db = Database(os.path.abspath(os.fspath(path)), prepare)

    async def append(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        entry = record.entry
        row = _row(record)

        def work(db: sqlite3.Connection) -> None:
            latest = _latest(db, entry)
            if entry.number != latest + 1:
                raise CommitConflict(
                    f"run {entry.run_id!r} is at commit {latest}, so commit {entry.number} cannot be added: "
                    f"another process has moved the run; stop driving it here"
                )
            db.execute(ADD, row)
            _settle(db, entry, along)
            db.executemany(CLOSE, [(entry.run_id, request_id) for request_id in along.closed])
            _open(db, entry, along)

        await self._db.write(work)

    async def put(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        entry = record.entry
        row = _row(record)

        def work(db: sqlite3.Connection) -> None:
            latest = _latest(db, entry)
            db.execute(PUT, row)
            _settle(db, entry, along)
            if entry.number >= latest:
                db.execute(CLOSE_ALL, (entry.run_id,))
                _open(db, entry, along)

        await self._db.write(work)

    async def remove(
        self, run_id: str, number: int, *, follower: Record | None = None, asked: tuple[Pending, ...] = ()
    ) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            if db.execute(REMOVE, (run_id, number)).rowcount == 0:
                return False
            after = db.execute(IS_FRAME, (run_id, number + 1)).fetchone()
            if after is not None and follower is None and not after[0]:
                raise needs_follower(run_id, number)
            if after is not None and follower is not None:
                _latest(db, follower.entry)
                db.execute(REPLACE, _row(follower))
            latest = db.execute(LATEST, (run_id,)).fetchone()
            db.execute(FORGET_AFTER, (run_id, -1 if latest is None else latest[0]))
            if latest is None:
                db.execute(DROP_MAIL, (run_id,))
            if latest is None or latest[0] < number:
                db.execute(CLOSE_ALL, (run_id,))
                db.execute(LET_SLEEP, (run_id,))
                _ask(db, () if latest is None else asked)
            return True

        return await self._db.write(work)

    async def head(self, run_id: str) -> Record | None:
        found = await self._records(HEAD, (run_id,))
        return found[0] if found else None

    async def chain(self, run_id: str, number: int) -> list[Record]:
        links = await self._records(CHAIN, {"run_id": run_id, "number": number})
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
        return await self._records(query, (run_id, after, NO_LIMIT if upto is None else upto))

    async def locate(self, checkpoint_id: str) -> Entry | None:
        row = await self._db.read(lambda db: db.execute(LOCATE, (checkpoint_id,)).fetchone())
        return _entry(row) if row else None

    async def entries(self, *, workflow: str | None = None, run_id: str | None = None) -> list[Entry]:
        where, values = _matching(workflow, run_id)
        query = f"SELECT {ENTRY} FROM commits {where} ORDER BY seq"
        return await self._db.read(lambda db: [_entry(row) for row in db.execute(query, values)])

    async def newest(self, *, workflow: str | None = None, run_id: str | None = None) -> Entry | None:
        where, values = _matching(workflow, run_id)
        query = f"SELECT {ENTRY} FROM commits WHERE seq = (SELECT max(seq) FROM commits {where})"
        row = await self._db.read(lambda db: db.execute(query, values).fetchone())
        return _entry(row) if row else None

    async def remember(self, run_id: str, place: int, key: str, body: bytes) -> bool:
        row = (run_id, place, key, body.decode())
        return await self._db.write(lambda db: db.execute(REMEMBER, row).rowcount == 1)

    async def recall(self, run_id: str, place: int) -> dict[str, bytes]:
        return await self._db.read(lambda db: dict(db.execute(RECALL, (run_id, place)).fetchall()))

    async def post(self, run_id: str, key: str, body: bytes) -> bool:
        row = (run_id, key, body.decode())
        return await self._db.write(lambda db: db.execute(POST, row).rowcount == 1)

    async def mail(self, run_id: str) -> list[tuple[str, bytes]]:
        return await self._db.read(lambda db: db.execute(MAIL, (run_id,)).fetchall())

    def mailed(self, run_ids: list[str]) -> list[str]:
        asked = json.dumps([_disguised(run_id) for run_id in run_ids])
        return self._db.read_blocking(lambda db: [run_ids[row[0]] for row in db.execute(MAILED, (asked,))])

    async def pending(self, *, workflow: str | None = None, run_id: str | None = None) -> list[Pending]:
        where, values = _matching(workflow, run_id)
        query = PENDING.format(where=where)
        return await self._db.read(lambda db: [Pending(*row) for row in db.execute(query, values)])

    async def wakes(self, *, before: str | None = None, workflow: str | None = None) -> list[Wake]:
        where, values = _where({"at <= ?": before, "workflow = ?": workflow})
        query = WAKES.format(where=where)
        return await self._db.read(lambda db: [Wake(*row) for row in db.execute(query, values)])

    async def claim(self, run_id: str, owner: Owner, *, seconds: float) -> None:
        def work(db: sqlite3.Connection) -> None:
            row = db.execute(LEASE, (run_id,)).fetchone()
            lease = Lease(Owner(*row[:-1]), row[-1]) if row else None
            if lease is not None and lease.owner != owner and not lease.is_over():
                raise lease.refuse(run_id)
            db.execute(CLAIM, (run_id, *_fields(owner), clock.seconds() + seconds))

        await self._db.write(work)

    def renew(self, run_ids: list[str], owner: Owner, *, seconds: float) -> None:
        def work(db: sqlite3.Connection) -> None:
            until = clock.seconds() + seconds
            db.executemany(RENEW, [(until, run_id, *_fields(owner)) for run_id in run_ids])

        self._db.write_blocking(work)

    async def release(self, run_id: str, owner: Owner) -> None:
        await self._db.write(lambda db: db.execute(RELEASE, (run_id, *_fields(owner))))

    async def close(self) -> None:
        await self._db.close()

    async def _records(self, query: str, values: tuple[Any, ...] | dict[str, Any]) -> list[Record]:
        return await self._db.read(
            lambda db: [Record(_entry(row[:-1]), row[-1]) for row in db.execute(query, values)],
        )


def _latest(db: sqlite3.Connection, entry: Entry) -> int:
    """The highest number of the entry's run, -1 for none. Raises CommitConflict if it is another workflow's run."""
    number, workflow = db.execute(LATEST, (entry.run_id,)).fetchone() or (-1, entry.workflow)
    if workflow != entry.workflow:
        raise CommitConflict(
            f"run {entry.run_id!r} belongs to workflow {workflow!r} and cannot go on as one of "
            f"{entry.workflow!r}; give the new run another id"
        )
    return int(number)


def _settle(db: sqlite3.Connection, entry: Entry, along: Along) -> None:
    """Forget the memory and consume the mail that led to a record."""
    if along.settled is not None:
        db.execute(SETTLE, (entry.run_id, along.settled))
    db.executemany(CONSUME, [(entry.run_id, key) for key in along.consumed])


def _open(db: sqlite3.Connection, entry: Entry, along: Along) -> None:
    """Open the questions that came with a record, and set the alarm or take it away."""
    _ask(db, along.asked)
    if along.wake is None:
        db.execute(LET_SLEEP, (entry.run_id,))
    else:
        db.execute(WAKE, (entry.run_id, entry.workflow, along.wake))


def _ask(db: sqlite3.Connection, asked: tuple[Pending, ...]) -> None:
    rows = [
        (p.run_id, p.request_id, p.workflow, p.executor, p.request_type, p.response_type, p.schema, p.at, p.deadline)
        for p in asked
    ]
    db.executemany(ASK, rows)


def _disguised(run_id: str) -> str:
    """The id without NULs, and never the same for two ids."""
    return run_id.replace("~", "~1").replace("\0", "~0")


def _row(record: Record) -> tuple[str | int, ...]:
    e = record.entry
    fields = (e.run_id, e.number, e.checkpoint_id, e.workflow, e.status, e.iteration, e.at, e.frame, e.outputs)
    return (*fields, record.body.decode())


def _entry(row: tuple[Any, ...]) -> Entry:
    return Entry(*row[:7], *map(bool, row[7:]))


def _fields(owner: Owner) -> tuple[str | int, ...]:
    return (owner.host, owner.machine, owner.pid, owner.started, owner.drive)


def _matching(workflow: str | None, run_id: str | None) -> tuple[str, list[str]]:
    return _where({"workflow = ?": workflow, "run_id = ?": run_id})


def _where(asked: dict[str, str | None]) -> tuple[str, list[str]]:
    """The WHERE of a search, and its values."""
    given = {condition: value for condition, value in asked.items() if value is not None}
    return (f"WHERE {' AND '.join(given)}" if given else ""), list(given.values())


class SQLiteCheckpointStorage(BuiltInStorage):
    """Runs kept in one SQLite file, fully durable, shared by any number of processes of one machine."""

    def __init__(self, path: str | os.PathLike[str], *, seal: Seal | None = None) -> None:
        super().__init__(SQLiteStore(path), seal=seal)
