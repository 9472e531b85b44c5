"""Everything in one SQLite file, which several processes may use at once. Bodies are text: read them with `sqlite3`."""

from __future__ import annotations

import os
import sqlite3
import time
from typing import Any

from ..core.errors import CheckpointCorrupt, CommitConflict, StoreUnavailable
from ..durable.ownership import Lease, Owner
from ..durable.ports import Entry, Record, needs_follower
from ..durable.storage import BuiltInStorage
from .sqlite_access import Database

APPLICATION = 0x486F6C64  # "Hold": tells our files from those of other programs
FORMAT = 1

SCHEMA = """
CREATE TABLE commits (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order of commits over all runs
    run_id        TEXT NOT NULL,
    number        INTEGER NOT NULL,
    checkpoint_id TEXT NOT NULL,
    workflow      TEXT NOT NULL,
    status        TEXT NOT NULL,
    iteration     INTEGER NOT NULL,
    at            TEXT NOT NULL,
    frame         INTEGER NOT NULL,
    outputs       INTEGER NOT NULL,
    body          TEXT NOT NULL,                      -- last, so that the columns before it are read without it
    UNIQUE (run_id, number)
) STRICT;
CREATE INDEX commits_by_checkpoint ON commits (checkpoint_id);
CREATE INDEX commits_by_workflow ON commits (workflow, seq);
CREATE INDEX commits_with_frame ON commits (run_id, number) WHERE frame;
CREATE INDEX commits_with_outputs ON commits (run_id, number) WHERE outputs;

CREATE TABLE memory (
    run_id TEXT NOT NULL,
    place  INTEGER NOT NULL,
    key    TEXT NOT NULL,
    body   TEXT NOT NULL,
    PRIMARY KEY (run_id, place, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    run_id  TEXT PRIMARY KEY,
    host    TEXT NOT NULL,
    machine TEXT NOT NULL,
    pid     INTEGER NOT NULL,
    started TEXT NOT NULL,
    drive   TEXT NOT NULL,
    until   REAL NOT NULL
) STRICT;
"""

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
HISTORY = f"SELECT {RECORD} FROM commits WHERE run_id = ? AND number <= ? ORDER BY number"
HISTORY_OF_OUTPUTS = f"SELECT {RECORD} FROM commits WHERE run_id = ? AND number <= ? AND outputs ORDER BY number"
LOCATE = f"SELECT {ENTRY} FROM commits WHERE checkpoint_id = ? ORDER BY seq DESC LIMIT 1"

REMEMBER = "INSERT INTO memory (run_id, place, key, body) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
RECALL = "SELECT key, CAST(body AS BLOB) FROM memory WHERE run_id = ? AND place = ?"
SETTLE = "DELETE FROM memory WHERE run_id = ? AND place <= ?"
FORGET_AFTER = "DELETE FROM memory WHERE run_id = ? AND place > ?"

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

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if os.fspath(path) == ":memory:":
            raise ValueError(
                "a SQLite store is a file; for runs that need not outlive the process: InMemoryCheckpointStorage()"
            )
        self._db = Database(os.path.abspath(os.fspath(path)), _prepare)

    async def append(self, record: Record, *, settled: int | None = None) -> None:
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
            if settled is not None:
                db.execute(SETTLE, (entry.run_id, settled))

        await self._db.write(work)

    async def put(self, record: Record) -> None:
        row = _row(record)

        def work(db: sqlite3.Connection) -> None:
            _latest(db, record.entry)
            db.execute(PUT, row)

        await self._db.write(work)

    async def remove(self, run_id: str, number: int, *, follower: Record | None = None) -> bool:
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

    async def history(self, run_id: str, *, upto: int | None = None, outputs_only: bool = False) -> list[Record]:
        query = HISTORY_OF_OUTPUTS if outputs_only else HISTORY
        return await self._records(query, (run_id, NO_LIMIT if upto is None else upto))

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

    async def claim(self, run_id: str, owner: Owner, *, seconds: float) -> None:
        def work(db: sqlite3.Connection) -> None:
            row = db.execute(LEASE, (run_id,)).fetchone()
            lease = Lease(Owner(*row[:-1]), row[-1]) if row else None
            if lease is not None and lease.owner != owner and not lease.is_over():
                raise lease.refuse(run_id)
            db.execute(CLAIM, (run_id, *_fields(owner), time.time() + seconds))

        await self._db.write(work)

    def renew(self, run_ids: list[str], owner: Owner, *, seconds: float) -> None:
        def work(db: sqlite3.Connection) -> None:
            until = time.time() + seconds
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


def _row(record: Record) -> tuple[str | int, ...]:
    e = record.entry
    fields = (e.run_id, e.number, e.checkpoint_id, e.workflow, e.status, e.iteration, e.at, e.frame, e.outputs)
    return (*fields, record.body.decode())


def _entry(row: tuple[Any, ...]) -> Entry:
    return Entry(*row[:7], *map(bool, row[7:]))


def _fields(owner: Owner) -> tuple[str | int, ...]:
    return (owner.host, owner.machine, owner.pid, owner.started, owner.drive)


def _matching(workflow: str | None, run_id: str | None) -> tuple[str, list[str]]:
    """The WHERE of a search, and its values."""
    asked = {"workflow = ?": workflow, "run_id = ?": run_id}
    given = {condition: value for condition, value in asked.items() if value is not None}
    return (f"WHERE {' AND '.join(given)}" if given else ""), list(given.values())


def _prepare(db: sqlite3.Connection, path: str) -> None:
    """Make sure that the file is ours, and set it up if it is new. Nothing is changed before that is sure."""
    if db.in_transaction:  # left by an attempt that met a lock
        db.execute("ROLLBACK")
    found = _format(db, path)
    if db.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
        raise StoreUnavailable(f"the store {path} is on a file system without the locks that SQLite's WAL mode needs")
    db.execute("PRAGMA synchronous = FULL")
    if found == 0:
        db.execute("BEGIN IMMEDIATE")
        if db.execute("PRAGMA user_version").fetchone() == (0,):  # else another process was faster
            _create(db)
        db.execute("COMMIT")


def _format(db: sqlite3.Connection, path: str) -> int:
    """The version of our format in the file, 0 for an empty file. Raises for every file that is not ours to use."""
    db.execute("BEGIN")  # the answers must be of one moment: another process may be creating the store
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    db.execute("COMMIT")
    if application == 0 and version == 0 and tables == 0:
        return 0
    if application != APPLICATION:
        raise StoreUnavailable(f"{path} is a database of another program; it was left as it is. Name another file")
    if version > FORMAT:
        raise StoreUnavailable(
            f"the store {path} was written by a newer Holdfast (format {version}, this one knows {FORMAT}); "
            f"it was left as it is. Upgrade Holdfast to use it"
        )
    return version


def _create(db: sqlite3.Connection) -> None:
    for statement in SCHEMA.split(";\n"):  # not executescript, which would commit first
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {FORMAT}")


class SQLiteCheckpointStorage(BuiltInStorage):
    """Runs kept in one SQLite file, fully durable, shared by any number of processes of one machine."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(SQLiteStore(path))
