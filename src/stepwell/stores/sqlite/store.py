"""Everything in one SQLite file, which several processes may use at once. Bodies are text: read them with `sqlite3`."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stepwell.errors import CheckpointCorrupt, CommitConflict
from stepwell.model.superstep import FullHistory, Retention
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.encryption import Seal
from stepwell.storage.lease import LEASE, Lease, Owner, lease_end
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
    fence_error,
    follower_error,
    prefix_end,
)
from stepwell.stores.sqlite import queries
from stepwell.stores.sqlite.access import SQLiteDatabase
from stepwell.stores.sqlite.connections import flaws
from stepwell.stores.sqlite.removal import compact_file, thin_out
from stepwell.stores.sqlite.rows import entry_in, refuse_another_workflow, row_of
from stepwell.stores.sqlite.run_list import inbox, list_runs, note, run_of
from stepwell.stores.sqlite.schema import prepare
from stepwell.stores.sqlite.survey import list_flaws, numbers, survey


class SQLiteStore:
    """Keeps everything in the file at `path`, which is created at the first use, with the folders above it.

    Any number of processes of one machine may use the file at once. A file of another program, or of a
    newer Stepwell, is refused and left as it is.
    """

    unbroken = True  # a write that was begun is finished, also if whoever waits for it is cancelled
    in_order = True  # writes that are begun one after the other are done so, many of them in one transaction

    def __init__(self, path: str | os.PathLike[str], *, mode: int = OWNER_ONLY) -> None:
        if os.fspath(path) == ":memory:":
            raise ValueError(
                "a SQLite store is a file; for runs that need not outlive the process: InMemoryCheckpointStorage()"
            )
        self._db = SQLiteDatabase(os.path.abspath(os.fspath(path)), prepare, validate_mode(mode))

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        entry = record.entry
        row = row_of(record)

        def work(db: sqlite3.Connection) -> None:
            run = _standing(db, entry, effects.fence)
            if entry.number != run.latest + 1:
                raise CommitConflict(
                    f"run {entry.run_id!r} is at commit {run.latest}, so commit {entry.number} cannot be added: "
                    f"another process has moved the run; stop driving it here"
                )
            db.execute(queries.ADD, row)
            _settle(db, entry, effects, run)
            _sweep(db, entry.run_id, run.swept, effects.drop_below)
            if effects.closed:
                db.executemany(queries.CLOSE, [(entry.run_id, request_id) for request_id in effects.closed])
            _open(db, entry.run_id, entry.workflow, effects, sleeps=run.sleeps)

        await self._db.write(work)

    async def put(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        entry = record.entry
        row = row_of(record)

        def work(db: sqlite3.Connection) -> None:
            run = _standing(db, entry, effects.fence)
            db.execute(queries.PUT, row)
            _settle(db, entry, effects, run)
            if entry.number < run.swept:  # the next sweep has to begin with it
                db.execute(queries.SWEPT, (entry.number, entry.run_id))
            _sweep(db, entry.run_id, min(entry.number, run.swept), effects.drop_below)
            if entry.number < run.latest:
                db.execute(queries.MIX, (entry.run_id,))
            else:
                db.execute(queries.CLOSE_ALL, (entry.run_id,))
                _open(db, entry.run_id, entry.workflow, effects)

        await self._db.write(work)

    async def remove(
        self,
        run_id: str,
        number: int,
        *,
        follower: Record | None = None,
        asked: tuple[Pending, ...] = (),
        wake: str | None = None,
    ) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            if db.execute(queries.REMOVE, (run_id, number)).rowcount == 0:
                return False
            after = db.execute(queries.IS_FRAME, (run_id, number + 1)).fetchone()
            if after is not None and follower is None and not after[0]:
                raise follower_error(run_id, number)
            if after is not None and follower is not None:
                _standing(db, follower.entry, None)
                db.execute(queries.REPLACE, row_of(follower))
            row = db.execute(queries.STANDING, (run_id,)).fetchone()
            if row is None:
                _clear(db, run_id)
                return True
            latest, workflow = row[:2]
            db.execute(queries.FORGET_AFTER, (run_id, latest))
            if latest < number:
                db.execute(queries.CLOSE_ALL, (run_id,))
                _open(db, run_id, workflow, CommitEffects(asked=asked, wake=wake))
            return True

        return await self._db.write(work)

    async def thin_out(self, run_id: str, numbers: Sequence[int], *, rewritten: Sequence[Record] = ()) -> int:
        return await self._db.write(lambda db: thin_out(db, run_id, numbers, rewritten)) if numbers or rewritten else 0

    async def drop(self, run_id: str) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            # the row of the run first: then no record that goes is its newest, for which another would be looked for
            if db.execute(queries.DROP_RUN, (run_id,)).rowcount == 0:
                return False
            for query in queries.DROP_RECORDS:
                db.execute(query, (run_id,))
            _clear(db, run_id)
            return True

        return await self._db.write(work)

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
        columns = {"workflow": workflow, "status": status}
        return await self._db.read(lambda db: list_runs(db, columns, tags or {}, inner, run_filter, past, limit))

    async def run(self, run_id: str) -> RunEntry | None:
        return await self._db.read(lambda db: run_of(db, run_id))

    async def head(self, run_id: str) -> Record | None:
        records = await self._records(queries.HEAD, (run_id,))
        return records[0] if records else None

    async def chain(self, run_id: str, number: int) -> list[Record]:
        chain = await self._records(queries.CHAIN, {"run_id": run_id, "number": number})
        if not chain or chain[-1].entry.number != number:
            return []
        if not chain[0].entry.is_snapshot:
            raise CheckpointCorrupt(
                f"commit {number} of run {run_id!r} cannot be read: it tells only what changed since the commits "
                f"before it, and none of those that are stored stands alone"
            )
        missing = set(range(chain[0].entry.number, number)) - {link.entry.number for link in chain}
        if missing:
            raise CheckpointCorrupt(
                f"commit {number} of run {run_id!r} cannot be read: it builds on commit {min(missing)}, "
                f"which is not stored"
            )
        return chain

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        query = queries.HISTORY_OF_OUTPUTS if outputs_only else queries.HISTORY
        return await self._records(query, (run_id, after, queries.NO_LIMIT if upto is None else upto))

    async def locate(self, checkpoint_id: str) -> Entry | None:
        row = await self._db.read(lambda db: db.execute(queries.LOCATE, (checkpoint_id,)).fetchone())
        return entry_in(row) if row else None

    async def checkpoints(self, prefix: str, *, limit: int) -> list[Entry]:
        where, values = _where({"checkpoint_id >= ?": prefix, "checkpoint_id < ?": prefix_end(prefix)})
        query = queries.CHECKPOINTS.format(where=where)
        return await self._db.read(lambda db: [entry_in(row) for row in db.execute(query, (*values, limit))])

    async def entries(
        self,
        *,
        workflow: str | None = None,
        run_id: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        # of a run, which has one workflow, the workflow is no help in finding: the plus keeps its index out
        by_workflow = "workflow = ?" if run_id is None else "+workflow = ?"
        where, values = _where({by_workflow: workflow, "run_id = ?": run_id, queries.BEFORE: before})
        end = queries.NO_LIMIT if limit is None else limit

        def work(db: sqlite3.Connection) -> list[Entry]:
            mixed = run_id is None or db.execute(queries.MIXED, (run_id,)).fetchone() == (1,)
            query = (queries.ENTRIES if mixed else queries.ENTRIES_OF_RUN).format(where=where)
            return [entry_in(row) for row in db.execute(query, (*values, end))][::-1]

        return await self._db.read(work)

    async def newest(self, *, workflow: str | None = None, run_id: str | None = None) -> Entry | None:
        entries = await self.entries(workflow=workflow, run_id=run_id, limit=1)
        return entries[0] if entries else None

    async def write_log(self, run_id: str, place: int, key: str, body: bytes, *, fence: int | None = None) -> bool:
        row = {"run_id": run_id, "place": place, "key": key, "body": body.decode(), "fence": fence}

        def work(db: sqlite3.Connection) -> bool:
            if db.execute(queries.REMEMBER, row).rowcount == 1:
                return True
            _check(run_id, fence, _fence(db, run_id))
            return False

        return await self._db.write(work)

    async def read_log(self, run_id: str, place: int) -> dict[str, bytes]:
        return await self._db.read(lambda db: dict(db.execute(queries.RECALL, (run_id, place)).fetchall()))

    async def send(self, run_id: str, key: str, body: bytes) -> bool:
        row = (run_id, key, body.decode())
        return await self._db.write(lambda db: db.execute(queries.POST, row).rowcount == 1)

    async def pending_signals(self, run_id: str) -> list[tuple[str, bytes]]:
        return await self._db.read(lambda db: db.execute(queries.MAIL, (run_id,)).fetchall())

    def runs_with_signals(self, run_ids: list[str]) -> list[str]:
        ids = json.dumps([_escape_nul(run_id) for run_id in run_ids])
        return self._db.read_blocking(lambda db: [run_ids[row[0]] for row in db.execute(queries.MAILED, (ids,))])

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
        query, values = inbox({"workflow": workflow, "run_id": run_id}, asked_by, due_by, past)
        end = queries.NO_LIMIT if limit is None else limit
        return await self._db.read(lambda db: [Pending(*row) for row in db.execute(query, (*values, end))])

    async def wakes(self, *, before: str | None = None, workflow: str | None = None) -> list[Wake]:
        where, values = _where({"at <= ?": before, "workflow = ?": workflow})
        query = queries.WAKES.format(where=where)
        return await self._db.read(lambda db: [Wake(*row) for row in db.execute(query, values)])

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        def work(db: sqlite3.Connection) -> int:
            row = db.execute(queries.LEASE, (run_id,)).fetchone()
            lease = Lease(Owner(*row[:-2]), row[-2]) if row else None
            if lease is not None and lease.owner != owner and not lease.is_over():
                raise lease.busy_error(run_id)
            fence: int = row[-1] + 1 if row else 1
            db.execute(queries.CLAIM, (run_id, *_fields(owner), owner.clock() + seconds, fence))
            return fence

        return await self._db.write(work)

    def renew(self, fences: Mapping[str, int], *, seconds: float) -> list[str]:
        def work(db: sqlite3.Connection) -> list[str]:
            until = lease_end(seconds)
            db.executemany(queries.RENEW, [(until, run_id, fence) for run_id, fence in fences.items()])
            return [run_id for run_id, fence in fences.items() if _fence(db, run_id) > fence]

        return self._db.write_blocking(work)

    async def release(self, run_id: str, owner: Owner) -> None:
        def work(db: sqlite3.Connection) -> None:
            db.execute(queries.RELEASE, (run_id, *_fields(owner)))
            db.execute(queries.FORGET_CLAIM, {"run_id": run_id})

        await self._db.write(work)

    async def compact(self) -> int:
        return await self._db.read(compact_file)

    async def flaws(self) -> list[str]:
        """What is wrong with the file itself, in words: a list that leaves something out is found nowhere else."""
        return await self._db.read(lambda db: [*flaws(db), *list_flaws(db)])

    async def survey(self) -> Survey:
        """All runs, even if some of them cannot be listed."""
        return await self._db.read(survey)

    async def numbers(self, run_id: str) -> list[int]:
        """The numbers of the records of a run, even if some of them cannot be read."""
        return await self._db.read(lambda db: numbers(db, run_id))

    async def close(self) -> None:
        await self._db.close()

    async def _records(self, query: str, values: tuple[Any, ...] | dict[str, Any]) -> list[Record]:
        return await self._db.read(
            lambda db: [Record(entry_in(row[:-1]), row[-1] or b"") for row in db.execute(query, values)],
        )


class _Standing(NamedTuple):
    """Where a run stands, as somebody is about to add a record to it."""

    latest: int  # the highest number, -1 if there is none
    swept: int  # before this number there are only records with outputs
    remembers: bool  # there is memory of a superstep
    sleeps: bool  # it wants to be woken


def _standing(db: sqlite3.Connection, entry: Entry, fence: int | None) -> _Standing:
    """Raises CommitConflict if it is another workflow's run, or if it was claimed by somebody else since `fence`."""
    row = db.execute(queries.STANDING, (entry.run_id,)).fetchone()
    if row is None:
        _check(entry.run_id, fence, _fence(db, entry.run_id))
        return _Standing(-1, 0, remembers=True, sleeps=True)  # or so it may be: nobody has looked
    latest, workflow, claimed, swept, remembers, sleeps = row
    _check(entry.run_id, fence, claimed or 0)
    refuse_another_workflow(workflow, entry)
    return _Standing(latest, swept, remembers, sleeps)


def _fence(db: sqlite3.Connection, run_id: str) -> int:
    row = db.execute(queries.FENCE, (run_id,)).fetchone()
    return row[0] if row else 0


def _check(run_id: str, fence: int | None, claimed: int) -> None:
    """Refuse whoever writes under a claim that somebody else's has followed."""
    if fence is not None and claimed > fence:
        raise fence_error(run_id, fence)


def _settle(db: sqlite3.Connection, entry: Entry, effects: CommitEffects, run: _Standing) -> None:
    """Forget the memory and consume the mail that led to a record, and note what it says of its run."""
    if effects.settled is not None and run.remembers:
        db.execute(queries.SETTLE, (entry.run_id, effects.settled))
    if effects.consumed:
        db.executemany(queries.CONSUME, [(entry.run_id, key) for key in effects.consumed])
    for record in effects.reduced:
        e = record.entry
        db.execute(queries.REDUCE, (e.is_snapshot, record.body.decode(), e.run_id, e.number, e.checkpoint_id))
    if effects.metadata is not None:
        note(db, entry.run_id, effects.metadata, is_new=run.latest < 0)


def _sweep(db: sqlite3.Connection, run_id: str, swept: int, below: int | None) -> None:
    """Let records before a number go, except those with outputs. What was swept before is not looked at again."""
    if below is not None and below > swept:
        db.execute(queries.SWEEP, (run_id, swept, below))
        db.execute(queries.SWEPT, (below, run_id))


def _open(db: sqlite3.Connection, run_id: str, workflow: str, effects: CommitEffects, *, sleeps: bool = True) -> None:
    """Open the questions that came with a record, and set the alarm or take away the one that there is."""
    if effects.asked:
        _ask(db, effects.asked)
    if effects.wake is not None:
        db.execute(queries.WAKE, (run_id, workflow, effects.wake))
    elif sleeps:
        db.execute(queries.LET_SLEEP, (run_id,))


def _clear(db: sqlite3.Connection, run_id: str) -> None:
    """Forget what lies beside a run that is gone. A claim that is held stays."""
    for query in queries.DROP_BESIDE:
        db.execute(query, (run_id,))
    db.execute(queries.FORGET_CLAIM, {"run_id": run_id})


def _ask(db: sqlite3.Connection, requests: tuple[Pending, ...]) -> None:
    rows = [
        (p.run_id, p.request_id, p.workflow, p.executor, p.request_type, p.response_type, p.schema, p.at, p.deadline)
        for p in requests
    ]
    db.executemany(queries.ASK, rows)


def _escape_nul(run_id: str) -> str:
    """The id without NULs, and never the same for two ids."""
    return run_id.replace("~", "~1").replace("\0", "~0")


def _fields(owner: Owner) -> tuple[str | int, ...]:
    return (owner.host, owner.machine, owner.pid, owner.started, owner.drive)


def _where(conditions: dict[str, str | None]) -> tuple[str, list[str]]:
    """The WHERE of a search, and its values."""
    wanted = {condition: value for condition, value in conditions.items() if value is not None}
    return (f"WHERE {' AND '.join(wanted)}" if wanted else ""), list(wanted.values())


class SQLiteCheckpointStorage(BuiltInStorage):
    """Runs kept in one SQLite file, fully durable, shared by any number of processes of one machine.

    A new file, and those beside it, have the permissions `mode`; one that is there keeps those it has.
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
