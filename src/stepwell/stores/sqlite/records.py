"""The records of runs in a SQLite file, and what is written with them.

The functions have the names and keep the promises of the methods of the port, inside the
transaction that is open on their connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from stepwell.storage.checked_reads import decode_stored
from stepwell.storage.conflicts import check_chain, check_fence, check_follows, check_workflow
from stepwell.storage.ids import run_hash, says_its_location
from stepwell.storage.lease import Lease, Owner
from stepwell.storage.outbox import RUN_ENDS
from stepwell.storage.rewrite_plan import plan_rewrite
from stepwell.storage.stored_values import CommitEffects, Entry, Record, RequestEntry, RunMetadata, ready_from
from stepwell.stores.sqlite import outbox

LAST = 2**63 - 1  # the largest integer of SQLite

# ---------------------------------------------------------------------- statements on records

ENTRY = """
runs.run_id, commits.number, commits.checkpoint_id, runs.workflow, commits.status, commits.iteration, commits.at,
commits.snapshot, commits.outputs, commits.latest_only, commits.decisions
"""
# As bytes, whether they are UTF-8 or not; a body that is missing in a damaged table is empty.
BODY = "CAST(coalesce(body, '') AS BLOB)"
_RECORDS = f"SELECT {ENTRY}, {BODY} FROM runs CROSS JOIN commits ON commits.run = runs.run WHERE run_id = ?"
SELECT_BACKWARDS = f"{_RECORDS} AND number <= ? ORDER BY number DESC"
SELECT_HISTORY = f"{_RECORDS} AND number > ? AND number <= ? ORDER BY number"
SELECT_OUTPUTS = f"{_RECORDS} AND number > ? AND number <= ? AND outputs ORDER BY number"
# What a rewrite has to know: the records from the first to the last number it speaks of, those
# beside them, and the newest.
SELECT_CONCERNED = f"""
SELECT {ENTRY} FROM runs CROSS JOIN commits ON commits.run = runs.run WHERE runs.run = :run
    AND (number = :newest OR number <= :last + 1
        AND number >= coalesce((SELECT max(number) FROM commits WHERE run = :run AND number < :first), :first))
"""
INSERT_COMMIT = """
INSERT INTO commits (checkpoint_id, status, iteration, at, snapshot, outputs, latest_only, decisions, foreign_id, body,
    run, number)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, CAST(? AS TEXT), ?, ?)
"""
UPDATE_COMMIT = """
UPDATE commits SET checkpoint_id = ?, status = ?, iteration = ?, at = ?, snapshot = ?, outputs = ?, latest_only = ?,
    decisions = ?, foreign_id = ?, body = CAST(? AS TEXT)
WHERE run = ? AND number = ?
"""
# Starts where the last one ended, so that the outputs that are kept are not looked at again.
DELETE_SUPERSEDED = """
DELETE FROM commits WHERE run = :run AND number < :below AND NOT outputs
    AND number >= (SELECT dropped_below FROM runs WHERE run = :run)
"""

# ---------------------------------------------------------------------- statements on runs

# Also asks whether there is a superstep log: a look costs less than a DELETE that finds nothing.
SELECT_RUN = """
SELECT runs.run, workflow, runs.status, wake, owner, until, fence, takeovers, coalesce(number, -1), at,
    EXISTS (SELECT 1 FROM superstep_log WHERE superstep_log.run = runs.run)
FROM runs LEFT JOIN commits ON commits.run = runs.run
    AND number = (SELECT max(number) FROM commits AS c WHERE c.run = runs.run)
WHERE run_id = ?
"""
SET_STATUS_OF_NEWEST = """
UPDATE runs SET status = (SELECT status FROM commits WHERE commits.run = runs.run ORDER BY number DESC LIMIT 1)
WHERE run = ?
"""
# After a record was stored in the middle of a run: `dropped_below` is lowered, so that the next
# DELETE_SUPERSEDED looks at it, and `unordered` is set if its time is out of order.
NOTE_STORED = """
UPDATE runs SET dropped_below = min(dropped_below, :number), unordered = unordered OR EXISTS (
    SELECT 1 FROM commits AS this, commits AS other WHERE this.run = :run AND this.number = :number
        AND other.run = :run AND (
            other.number = (SELECT max(number) FROM commits WHERE run = :run AND number < :number)
                AND other.at > this.at
            OR other.number = (SELECT min(number) FROM commits WHERE run = :run AND number > :number)
                AND other.at < this.at))
WHERE run = :run
"""
START_RUN = "UPDATE runs SET workflow = ?, began = ? WHERE run = ?"
END_LEASE = "UPDATE runs SET owner = NULL, until = NULL WHERE run = ?"
CLEAR_RUN = (
    "DELETE FROM commits WHERE run = ?",
    "DELETE FROM superstep_log WHERE run = ?",
    "DELETE FROM signals WHERE run = ?",
    "DELETE FROM tags WHERE run = ?",
    "DELETE FROM requests WHERE run_id = (SELECT run_id FROM runs WHERE run = ?)",
    "DELETE FROM outbox WHERE run_id = (SELECT run_id FROM runs WHERE run = ?)",
    """
    UPDATE runs SET workflow = NULL, status = NULL, began = NULL, caller = NULL, tags = '{}', priority = 0,
        parent_run = NULL, parent_number = NULL, parent_id = NULL, wake = NULL, dropped_below = 0, unordered = 0
    WHERE run = ?
    """,
)
# Without records, signals and lease there is nothing that the fence could protect.
FORGET_RUN = """
DELETE FROM runs WHERE run_id = ? AND began IS NULL AND owner IS NULL
    AND NOT EXISTS (SELECT 1 FROM superstep_log WHERE superstep_log.run = runs.run)
    AND NOT EXISTS (SELECT 1 FROM signals WHERE signals.run = runs.run)
"""

# ---------------------------------------------------------------------- statements on what belongs to runs

# A consumed signal stays as a tombstone, so that its key cannot be used again.
CONSUME_SIGNAL = """
INSERT INTO signals (run, key) VALUES (?, ?) ON CONFLICT DO UPDATE SET position = NULL, body = NULL
"""
# One that is asked again moves to the end.
INSERT_REQUEST = f"INSERT OR REPLACE INTO requests ({outbox.REQUEST}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
SET_METADATA = """
UPDATE runs SET caller = ?, tags = ?, priority = ?, parent_run = ?, parent_number = ?, parent_id = ? WHERE run = ?
"""
INSERT_TAG = """
INSERT INTO tags (run, name, value, called, began, run_id)
SELECT run, ?, ?, called, began, run_id FROM runs WHERE run = ?
"""

_NO_METADATA = RunMetadata()
_decode_owner = msgspec.json.Decoder(Owner).decode


class RunRow(NamedTuple):
    """What has to be known of a run before something is added to it."""

    run: int
    workflow: str | None  # None if there is no record
    status: str | None
    wake: str | None
    owner: str | None
    until: float | None
    fence: int
    takeovers: int
    latest: int  # the highest number, -1 if there is none
    at: str | None  # of the newest record
    has_log: int


def find_run(db: sqlite3.Connection, run_id: str) -> RunRow | None:
    row = db.execute(SELECT_RUN, (run_id,)).fetchone()
    return None if row is None else RunRow._make(row)


def find_or_create_run(db: sqlite3.Connection, run_id: str) -> RunRow:
    run = find_run(db, run_id)
    if run is None:
        db.execute("INSERT INTO runs (run_id, hash) VALUES (?, ?)", (run_id, run_hash(run_id)))
        return find_or_create_run(db, run_id)
    return run


def read_lease(run_id: str, owner: str | None, until: float | None) -> Lease | None:
    """Return the lease in the columns of a run."""
    if owner is None:
        return None
    return Lease(decode_stored(_decode_owner, owner.encode(), f"the lease of run {run_id!r}"), until or 0.0)


def append(db: sqlite3.Connection, record: Record, effects: CommitEffects) -> None:
    entry = record.entry
    run = find_run(db, entry.run_id) or find_or_create_run(db, entry.run_id)
    # The usual case is one comparison. In any other, the checks say what is wrong.
    if (run.fence, run.latest + 1, run.workflow) != (effects.fence, entry.number, entry.workflow):
        check_fence(entry.run_id, effects.fence, run.fence)
        check_follows(entry, run.latest)
        check_workflow(entry, run.workflow or entry.workflow)
    if run.workflow is None:
        db.execute(START_RUN, (entry.workflow, entry.at, run.run))
    db.execute(INSERT_COMMIT, _columns(run, record))
    # Only what changes is set, because the indexes over it change with it.
    wake = ready_from(run.wake, effects.wake, entry.at)
    if run.status != entry.status or run.wake != wake:
        db.execute("UPDATE runs SET status = ?, wake = ? WHERE run = ?", (entry.status, wake, run.run))
    if run.takeovers:
        db.execute("UPDATE runs SET takeovers = 0 WHERE run = ?", (run.run,))
    if run.at is not None and entry.at < run.at:
        db.execute("UPDATE runs SET unordered = 1 WHERE run = ?", (run.run,))
    _apply(db, run, effects)
    if effects.asked or effects.expired or entry.status in RUN_ENDS:
        outbox.enqueue(db, entry, run.status, effects)
    if effects.closed or effects.asked:
        change_requests(db, entry.run_id, effects.closed, effects.asked)
    if effects.release and run.fence == effects.fence:
        db.execute(END_LEASE, (run.run,))


def rewrite(
    db: sqlite3.Connection,
    run_id: str,
    insert: Record | None,
    replace: Sequence[Record],
    remove: Sequence[int],
    effects: CommitEffects | None,
) -> int:
    if insert is None and find_run(db, run_id) is None:
        return 0
    run = find_or_create_run(db, run_id)
    numbers = [*remove, *(record.entry.number for record in replace)]
    span = {"run": run.run, "first": min(numbers, default=0), "last": max(numbers, default=-1), "newest": run.latest}
    entries = [entry_in(row) for row in db.execute(SELECT_CONCERNED, span)]
    plan = plan_rewrite(
        run_id,
        {entry.number: entry for entry in entries},
        run.fence,
        insert=insert,
        replace=replace,
        remove=remove,
        effects=effects,
    )
    for number in plan.remove:
        db.execute("DELETE FROM commits WHERE run = ? AND number = ?", (run.run, number))
    for record in plan.store:
        _store(db, run, record, anyway=True)
    if plan.latest < 0:
        if plan.remove:
            _clear(db, run_id, run)
        return len(plan.remove)
    if insert is not None and run.workflow is None:
        db.execute(START_RUN, (insert.entry.workflow, insert.entry.at, run.run))
    db.execute("DELETE FROM superstep_log WHERE run = ? AND place > ?", (run.run, plan.latest))
    db.execute(SET_STATUS_OF_NEWEST, (run.run,))
    if effects is not None:
        _apply(db, run, effects)
        if plan.is_new_head:
            db.execute("DELETE FROM requests WHERE run_id = ?", (run_id,))
            change_requests(db, run_id, (), effects.asked)
            db.execute("UPDATE runs SET wake = ? WHERE run = ?", (effects.wake, run.run))
    return len(plan.remove)


def drop(db: sqlite3.Connection, run_id: str) -> bool:
    run = find_run(db, run_id)
    if run is None or run.latest < 0:
        return False
    db.execute(END_LEASE, (run.run,))
    _clear(db, run_id, run)
    return True


def read(db: sqlite3.Connection, run_id: str, number: int | None) -> list[Record]:
    rows = db.execute(SELECT_BACKWARDS, (run_id, LAST if number is None else number))
    records: list[Record] = []
    for row in rows:  # each is read when it is asked for, so nothing before the snapshot is
        records.append(_record(row))
        if records[-1].entry.is_snapshot:
            break
    rows.close()
    if not records or number not in (None, records[0].entry.number):
        return []
    check_chain(run_id, records[0].entry.number, records[::-1])
    return records[::-1]


def history(db: sqlite3.Connection, run_id: str, after: int, upto: int | None, outputs_only: bool) -> list[Record]:
    statement = SELECT_OUTPUTS if outputs_only else SELECT_HISTORY
    return [_record(row) for row in db.execute(statement, (run_id, after, LAST if upto is None else upto))]


def entry_in(row: tuple[Any, ...]) -> Entry:
    """Return the entry in the columns `ENTRY`. SQLite has no booleans: the last four are integers."""
    return Entry(*(*row[:7], row[7] != 0, row[8] != 0, row[9] != 0, row[10] != 0))


def _record(row: tuple[Any, ...]) -> Record:
    return Record(entry_in(row), row[11])


def _columns(run: RunRow, record: Record) -> tuple[object, ...]:
    """Return the values of a record in the order of `INSERT_COMMIT` and `UPDATE_COMMIT`."""
    e = record.entry
    flags = (e.is_snapshot, e.outputs, e.latest_only, e.decisions, not says_its_location(e))
    return (e.checkpoint_id, e.status, e.iteration, e.at, *flags, record.body, run.run, e.number)


def _store(db: sqlite3.Connection, run: RunRow, record: Record, *, anyway: bool = False) -> None:
    """Store a record in place of the one with its number; if there is none, only `anyway`."""
    columns = _columns(run, record)
    if db.execute(UPDATE_COMMIT, columns).rowcount == 0 and anyway:
        db.execute(INSERT_COMMIT, columns)
    db.execute(NOTE_STORED, {"run": run.run, "number": record.entry.number})


def _apply(db: sqlite3.Connection, run: RunRow, effects: CommitEffects) -> None:
    """Apply the effects of a record, except those that only the newest record has."""
    if effects.drop_log_through is not None and run.has_log:
        db.execute("DELETE FROM superstep_log WHERE run = ? AND place <= ?", (run.run, effects.drop_log_through))
    if effects.consumed:
        consume(db, run, effects.consumed)
    # The row of a new run has been made with these very defaults.
    if effects.metadata is not None and not (run.workflow is None and effects.metadata == _NO_METADATA):
        _set_metadata(db, run, effects.metadata)
    for record in effects.reduced:
        _store(db, run, record)
    if effects.drop_below is not None:
        bounds = {"run": run.run, "below": effects.drop_below}
        db.execute(DELETE_SUPERSEDED, bounds)
        db.execute("UPDATE runs SET dropped_below = max(dropped_below, :below) WHERE run = :run", bounds)


def _set_metadata(db: sqlite3.Connection, run: RunRow, metadata: RunMetadata) -> None:
    tags = msgspec.json.encode(dict(metadata.tags)).decode()
    parent = metadata.parent
    origin = (None, None, None) if parent is None else (parent.run_id, parent.number, parent.checkpoint_id)
    db.execute(SET_METADATA, (metadata.caller, tags, metadata.priority, *origin, run.run))
    db.execute("DELETE FROM tags WHERE run = ?", (run.run,))
    db.executemany(INSERT_TAG, [(name, value, run.run) for name, value in metadata.tags.items()])


def consume(db: sqlite3.Connection, run: RunRow, keys: Iterable[str]) -> None:
    """Turn signals into tombstones."""
    for key in keys:
        db.execute(CONSUME_SIGNAL, (run.run, key))


def change_requests(db: sqlite3.Connection, run_id: str, closed: Iterable[str], asked: Iterable[RequestEntry]) -> None:
    """Close requests, and then open others: one record may close a request and ask it again under the same id."""
    for request_id in closed:
        db.execute("DELETE FROM requests WHERE run_id = ? AND request_id = ?", (run_id, request_id))
    for request in asked:
        db.execute(INSERT_REQUEST, msgspec.structs.astuple(request))


def _clear(db: sqlite3.Connection, run_id: str, run: RunRow) -> None:
    """Delete everything that belongs to a run, except a lease that is held."""
    for statement in CLEAR_RUN:
        db.execute(statement, (run.run,))
    db.execute(FORGET_RUN, (run_id,))
