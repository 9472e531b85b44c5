"""Leases, superstep logs and signals in a SQLite file: what a run may have before its first record.

The functions have the names and keep the promises of the methods of the port, inside the
transaction that is open on their connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import msgspec

from stepwell.storage.conflicts import check_fence
from stepwell.storage.lease import Owner, lease_end
from stepwell.storage.stored_values import NO_LOG_EFFECTS, LeaseReport, LogEffects, LogRow, OpenedRun, SignalRow
from stepwell.stores.sqlite import outbox
from stepwell.stores.sqlite.records import (
    BODY,
    FORGET_RUN,
    LAST,
    change_requests,
    consume,
    find_or_create_run,
    read,
    read_lease,
)

# A released lease is not brought back, and that of another owner is left alone.
RENEW = "UPDATE runs SET until = ? WHERE run_id = ? AND fence = ? AND until IS NOT NULL"
RELEASE = """
UPDATE runs SET owner = CASE WHEN :stalls AND began IS NOT NULL THEN owner END, until = NULL
WHERE run_id = :run_id AND owner = :owner
"""
SELECT_STANDING = """
SELECT fence, EXISTS (SELECT 1 FROM signals WHERE signals.run = runs.run AND position IS NOT NULL)
FROM runs WHERE run_id = ?
"""
# Nothing is inserted if the run has no row, if another process has acquired it, or if the key is used.
INSERT_LOG_ROW = """
INSERT INTO superstep_log (run, place, key, body)
SELECT run, ?, ?, CAST(? AS TEXT) FROM runs WHERE run_id = ? AND fence <= ? ON CONFLICT DO NOTHING
"""
SELECT_LOG = f"SELECT place, key, {BODY} FROM superstep_log WHERE run = (SELECT run FROM runs WHERE run_id = ?)"
INSERT_SIGNAL = """
INSERT INTO signals (run, key, position, body) VALUES (:run, :key, 1 + coalesce(
    (SELECT max(position) FROM signals WHERE run = :run AND position IS NOT NULL), 0), CAST(:body AS TEXT))
ON CONFLICT DO NOTHING
"""
SELECT_HAS_OUTPUTS = "SELECT 1 FROM runs JOIN commits USING (run) WHERE run_id = ? AND outputs LIMIT 1"
SELECT_SIGNALS = f"""
SELECT key, {BODY} FROM signals
WHERE run = (SELECT run FROM runs WHERE run_id = ?) AND position IS NOT NULL ORDER BY position
"""


def open_run(db: sqlite3.Connection, run_id: str, owner: Owner | None, seconds: float) -> OpenedRun:
    fence = None if owner is None else acquire(db, run_id, owner, seconds)
    has_outputs = db.execute(SELECT_HAS_OUTPUTS, (run_id,)).fetchone() is not None
    (takeovers,) = db.execute("SELECT takeovers FROM runs WHERE run_id = ?", (run_id,)).fetchone() or (0,)
    rows = read(db, run_id, None), read_log(db, run_id), pending_signals(db, run_id)
    return OpenedRun(*rows, fence, has_outputs, takeovers)


def acquire(db: sqlite3.Connection, run_id: str, owner: Owner, seconds: float) -> int:
    run = find_or_create_run(db, run_id)
    lease = read_lease(run_id, run.owner, run.until)
    if lease is not None and lease.owner != owner and not lease.is_over():
        raise lease.busy_error(run_id)
    # Higher also for the same owner: what it wrote under the old fence and is still under way must
    # be refused.
    fence = run.fence + 1
    takeovers = run.takeovers + (lease is not None and lease.owner != owner and not lease.was_released)
    columns = (_encode_owner(owner), owner.clock() + seconds, fence, takeovers)
    db.execute("UPDATE runs SET owner = ?, until = ?, fence = ?, takeovers = ? WHERE run = ?", (*columns, run.run))
    return fence


def release(db: sqlite3.Connection, run_id: str, owner: Owner, *, stalls: bool) -> None:
    db.execute(RELEASE, {"run_id": run_id, "owner": _encode_owner(owner), "stalls": stalls})
    db.execute(FORGET_RUN, (run_id,))


def renew(db: sqlite3.Connection, fences: Mapping[str, int], seconds: float | None) -> LeaseReport:
    if seconds is not None:
        until = lease_end(seconds)
        db.executemany(RENEW, [(until, run_id, fence) for run_id, fence in fences.items()])
    standing = {run_id: db.execute(SELECT_STANDING, (run_id,)).fetchone() or (0, 0) for run_id in fences}
    return LeaseReport(
        [run_id for run_id, fence in fences.items() if standing[run_id][0] > fence],
        [run_id for run_id in fences if standing[run_id][1]],
    )


def write_log(
    db: sqlite3.Connection,
    run_id: str,
    place: int,
    key: str,
    body: bytes,
    *,
    effects: LogEffects,
    fence: int | None,
) -> bool:
    values = (place, key, body, run_id, LAST if fence is None else fence)
    is_new = db.execute(INSERT_LOG_ROW, values).rowcount == 1
    # Most entries are steps that succeeded, so this is all.
    if is_new and effects is NO_LOG_EFFECTS:
        return True
    run = find_or_create_run(db, run_id)
    check_fence(run_id, fence, run.fence)
    is_new = is_new or db.execute(INSERT_LOG_ROW, values).rowcount == 1
    if is_new:
        consume(db, run, effects.consumed)
        if (effects.asked or effects.expired) and run.workflow is not None:
            outbox.enqueue(db, outbox.next_entry(run_id, run.workflow, run.latest), None, effects)
        change_requests(db, run_id, effects.closed, effects.asked)
    return is_new


def read_log(db: sqlite3.Connection, run_id: str) -> list[LogRow]:
    return [LogRow(*row) for row in db.execute(SELECT_LOG, (run_id,))]


def send(db: sqlite3.Connection, run_id: str, key: str, body: bytes, *, fence: int | None) -> bool:
    run = find_or_create_run(db, run_id)
    check_fence(run_id, fence, run.fence)
    values = {"run": run.run, "key": key, "body": body}
    return db.execute(INSERT_SIGNAL, values).rowcount == 1


def pending_signals(db: sqlite3.Connection, run_id: str) -> list[SignalRow]:
    return [SignalRow(*row) for row in db.execute(SELECT_SIGNALS, (run_id,))]


def _encode_owner(owner: Owner) -> str:
    return msgspec.json.encode(owner).decode()
