"""The store port on one SQLite file, which several processes may use at once.

Bodies are stored as text, so that a run can be inspected with the `sqlite3` command.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stepwell.errors import CheckpointCorrupt, CommitConflict
from stepwell.model.checkpoint import FullHistory, Retention
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
from stepwell.stores.sqlite.run_list import inbox, list_runs, run_of, set_metadata
from stepwell.stores.sqlite.schema import prepare
from stepwell.stores.sqlite.survey import list_flaws, numbers, survey


class SQLiteStore:
    """A store in the SQLite file at `path`. The file and its folders are created at the first use.

    Any number of processes on one machine may use the file at once. A file of another program, or of
    a newer Stepwell, is refused and not changed.
    """

    unbroken = True  # a write that was started is finished, even if the caller is cancelled
    in_order = True  # writes are applied in the order of the calls, many of them in one transaction

    def __init__(self, path: str | os.PathLike[str], *, mode: int = OWNER_ONLY) -> None:
        if os.fspath(path) == ":memory:":
            raise ValueError(
                "a SQLite store needs a file, not ':memory:'; for runs that need not outlive the process, "
                "use InMemoryCheckpointStorage()"
            )
        self._db = SQLiteDatabase(os.path.abspath(os.fspath(path)), prepare, validate_mode(mode))

    # ---------------------------------------------------------------- writing records

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        entry = record.entry
        row = row_of(record)  # built here, not in `work`: the writer thread is shared by all runs

        def work(db: sqlite3.Connection) -> None:
            run = _check_and_read_run(db, entry, effects.fence)
            if entry.number != run.latest + 1:
                raise CommitConflict(
                    f"run {entry.run_id!r} is at commit {run.latest}, so commit {entry.number} cannot be added: "
                    f"another process has moved the run; stop driving it here"
                )
            db.execute(queries.ADD, row)
            _apply_effects(db, entry, effects, run)
            _sweep(db, entry.run_id, run.swept, effects.drop_below)
            # Closed before opened: one record may close a request and ask it again under the same
            # id.
            if effects.closed:
                db.executemany(queries.CLOSE, [(entry.run_id, request_id) for request_id in effects.closed])
            _set_requests_and_wake(db, entry.run_id, entry.workflow, effects, may_have_wake=run.may_have_wake)

        await self._db.write(work)

    async def put(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        entry = record.entry
        row = row_of(record)

        def work(db: sqlite3.Connection) -> None:
            run = _check_and_read_run(db, entry, effects.fence)
            db.execute(queries.PUT, row)
            _apply_effects(db, entry, effects, run)
            # A record put below the sweep mark lowers the mark; otherwise no later sweep would find
            # the record.
            if entry.number < run.swept:
                db.execute(queries.SWEPT, (entry.number, entry.run_id))
            _sweep(db, entry.run_id, min(entry.number, run.swept), effects.drop_below)
            # An old record is now the last one committed, so this run's numbers are out of commit
            # order. Otherwise the record is the newest of its run and decides which requests are
            # open.
            if entry.number < run.latest:
                db.execute(queries.MIX, (entry.run_id,))
            else:
                db.execute(queries.CLOSE_ALL, (entry.run_id,))
                _set_requests_and_wake(db, entry.run_id, entry.workflow, effects)

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
            # The next record is a delta based on the removed one: without a follower it would
            # become unreadable. An exception undoes the removal above.
            if after is not None and follower is None and not after[0]:
                raise follower_error(run_id, number)
            if after is not None and follower is not None:
                _check_and_read_run(db, follower.entry, None)
                db.execute(queries.REPLACE, row_of(follower))
            row = db.execute(queries.STANDING, (run_id,)).fetchone()
            if row is None:
                _clear_leftovers(db, run_id)
                return True
            latest, workflow = row[:2]
            db.execute(queries.FORGET_AFTER, (run_id, latest))
            # The newest record was removed: the caller says what is open now, because only it can
            # read the bodies.
            if latest < number:
                db.execute(queries.CLOSE_ALL, (run_id,))
                _set_requests_and_wake(db, run_id, workflow, CommitEffects(asked=asked, wake=wake))
            return True

        return await self._db.write(work)

    async def thin_out(self, run_id: str, numbers: Sequence[int], *, rewritten: Sequence[Record] = ()) -> int:
        return await self._db.write(lambda db: thin_out(db, run_id, numbers, rewritten)) if numbers or rewritten else 0

    async def drop(self, run_id: str) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            # The row of the run goes first. Otherwise the trigger on `commits` would look for a new
            # latest record each time the current one is deleted.
            if db.execute(queries.DROP_RUN, (run_id,)).rowcount == 0:
                return False
            for query in queries.DROP_RECORDS:
                db.execute(query, (run_id,))
            _clear_leftovers(db, run_id)
            return True

        return await self._db.write(work)

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
        columns = {"workflow": workflow, "status": status}
        return await self._db.read(
            lambda db: list_runs(
                db, columns, tags=tags or {}, inner=inner, run_filter=run_filter, past=past, limit=limit
            )
        )

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
        # All records of a run have the same workflow, so its index would not narrow the search. The
        # unary plus keeps SQLite from choosing that index.
        by_workflow = "workflow = ?" if run_id is None else "+workflow = ?"
        where, values = _where({by_workflow: workflow, "run_id = ?": run_id, queries.BEFORE: before})
        end = queries.NO_LIMIT if limit is None else limit

        def work(db: sqlite3.Connection) -> list[Entry]:
            # Within one run, the order of numbers is the order of commits, unless `put` stored an
            # older record. The index on numbers is the cheaper one.
            mixed = run_id is None or db.execute(queries.MIXED, (run_id,)).fetchone() == (1,)
            query = (queries.ENTRIES if mixed else queries.ENTRIES_OF_RUN).format(where=where)
            return [entry_in(row) for row in db.execute(query, (*values, end))][::-1]

        return await self._db.read(work)

    async def newest(self, *, workflow: str | None = None, run_id: str | None = None) -> Entry | None:
        entries = await self.entries(workflow=workflow, run_id=run_id, limit=1)
        return entries[0] if entries else None

    # ---------------------------------------------------------------- superstep log

    async def write_log(self, run_id: str, place: int, key: str, body: bytes, *, fence: int | None = None) -> bool:
        row = {"run_id": run_id, "place": place, "key": key, "body": body.decode(), "fence": fence}

        def work(db: sqlite3.Connection) -> bool:
            if db.execute(queries.REMEMBER, row).rowcount == 1:
                return True
            # Nothing was inserted: the lease is lost (raises), or the key is there already.
            _check_fence(run_id, fence, _current_fence(db, run_id))
            return False

        return await self._db.write(work)

    async def read_log(self, run_id: str, place: int) -> dict[str, bytes]:
        return await self._db.read(lambda db: dict(db.execute(queries.RECALL, (run_id, place)).fetchall()))

    # ---------------------------------------------------------------- signals, requests, wake-up times

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

    # ---------------------------------------------------------------- leases

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        def work(db: sqlite3.Connection) -> int:
            row = db.execute(queries.LEASE, (run_id,)).fetchone()
            lease = Lease(Owner(*row[:-2]), row[-2]) if row else None
            if lease is not None and lease.owner != owner and not lease.is_over():
                raise lease.busy_error(run_id)
            # Also for the same owner: what it wrote under the old fence and is still under way must
            # be refused.
            fence: int = row[-1] + 1 if row else 1
            db.execute(queries.CLAIM, (run_id, *_owner_columns(owner), owner.clock() + seconds, fence))
            return fence

        return await self._db.write(work)

    def renew(self, fences: Mapping[str, int], *, seconds: float) -> list[str]:
        def work(db: sqlite3.Connection) -> list[str]:
            until = lease_end(seconds)
            db.executemany(queries.RENEW, [(until, run_id, fence) for run_id, fence in fences.items()])
            return [run_id for run_id, fence in fences.items() if _current_fence(db, run_id) > fence]

        return self._db.write_blocking(work)

    async def release(self, run_id: str, owner: Owner) -> None:
        def work(db: sqlite3.Connection) -> None:
            db.execute(queries.RELEASE, (run_id, *_owner_columns(owner)))
            db.execute(queries.FORGET_CLAIM, {"run_id": run_id})

        await self._db.write(work)

    # ---------------------------------------------------------------- maintenance

    async def compact(self) -> int:
        return await self._db.read(compact_file)

    async def flaws(self) -> list[str]:
        """List what is wrong with the file itself, one sentence each.

        Only this finds a run that is missing from an index: every other method relies on the indexes.
        """
        return await self._db.read(lambda db: [*flaws(db), *list_flaws(db)])

    async def survey(self) -> Survey:
        """Return all runs, even if some of them are damaged."""
        return await self._db.read(survey)

    async def numbers(self, run_id: str) -> list[int]:
        """Return the numbers of a run's records, even if some of them are damaged."""
        return await self._db.read(lambda db: numbers(db, run_id))

    async def close(self) -> None:
        await self._db.close()

    async def _records(self, query: str, values: tuple[Any, ...] | dict[str, Any]) -> list[Record]:
        return await self._db.read(
            lambda db: [Record(entry_in(row[:-1]), row[-1] or b"") for row in db.execute(query, values)],
        )


class _RunPosition(NamedTuple):
    """The state of a run just before a record is added to it."""

    latest: int  # the highest number, -1 if there is none
    swept: int  # below this number only records with outputs are left
    may_have_log: bool  # False: it has no superstep log
    may_have_wake: bool  # False: it has no wake-up time


def _check_and_read_run(db: sqlite3.Connection, entry: Entry, fence: int | None) -> _RunPosition:
    """Return the state of the entry's run.

    Raises CommitConflict if the run belongs to another workflow, or if another process has acquired
    it after `fence`.
    """
    row = db.execute(queries.STANDING, (entry.run_id,)).fetchone()
    if row is None:
        _check_fence(entry.run_id, fence, _current_fence(db, entry.run_id))
        # A new run may have a superstep log, too. It is not looked up: deleting what is not there
        # is harmless.
        return _RunPosition(-1, 0, may_have_log=True, may_have_wake=True)
    latest, workflow, claimed, swept, may_have_log, may_have_wake = row
    _check_fence(entry.run_id, fence, claimed or 0)
    refuse_another_workflow(workflow, entry)
    return _RunPosition(latest, swept, may_have_log, may_have_wake)


def _current_fence(db: sqlite3.Connection, run_id: str) -> int:
    row = db.execute(queries.FENCE, (run_id,)).fetchone()
    return row[0] if row else 0


def _check_fence(run_id: str, fence: int | None, claimed: int) -> None:
    """Raise CommitConflict if a newer lease than the writer's was given out."""
    if fence is not None and claimed > fence:
        raise fence_error(run_id, fence)


def _apply_effects(db: sqlite3.Connection, entry: Entry, effects: CommitEffects, run: _RunPosition) -> None:
    """Apply the effects of a record on the superstep log, signals, old records and metadata."""
    if effects.drop_log_through is not None and run.may_have_log:
        db.execute(queries.DROP_LOG_THROUGH, (entry.run_id, effects.drop_log_through))
    if effects.consumed:
        db.executemany(queries.CONSUME, [(entry.run_id, key) for key in effects.consumed])
    for record in effects.reduced:
        e = record.entry
        db.execute(queries.REDUCE, (e.is_snapshot, record.body.decode(), e.run_id, e.number, e.checkpoint_id))
    if effects.metadata is not None:
        set_metadata(db, entry.run_id, effects.metadata, is_new=run.latest < 0)


def _sweep(db: sqlite3.Connection, run_id: str, swept: int, below: int | None) -> None:
    """Delete the records below a number, except those with outputs.

    Starts at the `swept` mark of the run, so that kept outputs are not scanned again in each sweep.
    """
    if below is not None and below > swept:
        db.execute(queries.SWEEP, (run_id, swept, below))
        db.execute(queries.SWEPT, (below, run_id))


def _set_requests_and_wake(
    db: sqlite3.Connection, run_id: str, workflow: str, effects: CommitEffects, *, may_have_wake: bool = True
) -> None:
    """Store the requests that came with a record, and set or clear the wake-up time of the run."""
    if effects.asked:
        _insert_requests(db, effects.asked)
    if effects.wake is not None:
        db.execute(queries.WAKE, (run_id, workflow, effects.wake))
    elif may_have_wake:
        db.execute(queries.CLEAR_WAKE, (run_id,))


def _clear_leftovers(db: sqlite3.Connection, run_id: str) -> None:
    """Delete everything else that belongs to a run without records. A lease that is held stays."""
    for query in queries.DROP_BESIDE:
        db.execute(query, (run_id,))
    db.execute(queries.FORGET_CLAIM, {"run_id": run_id})


def _insert_requests(db: sqlite3.Connection, requests: tuple[Pending, ...]) -> None:
    rows = [
        (p.run_id, p.request_id, p.workflow, p.executor, p.request_type, p.response_type, p.schema, p.at, p.deadline)
        for p in requests
    ]
    db.executemany(queries.ASK, rows)


def _escape_nul(run_id: str) -> str:
    """Return the id without NULs, in a form that is different for different ids."""
    return run_id.replace("~", "~1").replace("\0", "~0")


def _owner_columns(owner: Owner) -> tuple[str | int, ...]:
    return (owner.host, owner.machine, owner.pid, owner.started, owner.drive)


def _where(conditions: dict[str, str | None]) -> tuple[str, list[str]]:
    """Return the WHERE clause of the conditions that have a value, and the values."""
    wanted = {condition: value for condition, value in conditions.items() if value is not None}
    return (f"WHERE {' AND '.join(wanted)}" if wanted else ""), list(wanted.values())


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
