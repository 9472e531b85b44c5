"""Leases, superstep logs and signals in a SQLite file: what a run may have before its first record.

Every function works inside the transaction that is open on its connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import msgspec

from stepwell.storage.checked_reads import decode_stored
from stepwell.storage.conflicts import check_fence
from stepwell.storage.ids import run_hash
from stepwell.storage.lease import Lease, Owner, lease_end
from stepwell.storage.stored_values import LeaseReport, LogRow, SignalRow
from stepwell.stores.sqlite.records import BODY, FORGET_RUN, create_run, find_run

SELECT_LEASE = "SELECT owner, until FROM runs WHERE run_id = ? AND owner IS NOT NULL"
ACQUIRE = """
INSERT INTO runs (run_id, hash, owner, until, fence) VALUES (?, ?, ?, ?, 1)
ON CONFLICT (run_id) DO UPDATE SET owner = excluded.owner, until = excluded.until, fence = fence + 1
RETURNING fence
"""
RELEASE = "UPDATE runs SET owner = NULL, until = NULL WHERE run_id = ? AND owner = ?"
# A released lease is not brought back, and that of another owner is left alone.
RENEW = "UPDATE runs SET until = ? WHERE run_id = ? AND fence = ? AND owner IS NOT NULL"
SELECT_STANDING = """
SELECT fence, EXISTS (SELECT 1 FROM signals WHERE signals.run = runs.run AND position IS NOT NULL)
FROM runs WHERE run_id = ?
"""

# Checks the fence and inserts in one statement. Without a fence, `fence > NULL` is never true.
INSERT_LOG_ROW = """
INSERT INTO superstep_log (run, place, key, body)
SELECT run, :place, :key, CAST(:body AS TEXT) FROM runs WHERE run_id = :run_id AND (fence > :fence) IS NOT TRUE
ON CONFLICT DO NOTHING
"""
SELECT_LOG = f"""
SELECT place, key, {BODY} FROM superstep_log WHERE run = (SELECT run FROM runs WHERE run_id = ?)
"""
INSERT_SIGNAL = """
INSERT INTO signals (run, key, position, body)
SELECT run, :key, 1 + coalesce(
        (SELECT max(position) FROM signals WHERE signals.run = runs.run AND position IS NOT NULL), 0),
    CAST(:body AS TEXT)
FROM runs WHERE run_id = :run_id
ON CONFLICT DO NOTHING
"""
SELECT_SIGNALS = f"""
SELECT key, {BODY} FROM signals
WHERE run = (SELECT run FROM runs WHERE run_id = ?) AND position IS NOT NULL ORDER BY position
"""

_decode_owner = msgspec.json.Decoder(Owner).decode


def acquire(db: sqlite3.Connection, run_id: str, owner: Owner, seconds: float) -> int:
    """Do what `Leases.acquire` promises."""
    row = db.execute(SELECT_LEASE, (run_id,)).fetchone()
    if row is not None:
        holder = decode_stored(_decode_owner, row[0].encode(), f"the lease of run {run_id!r}")
        lease = Lease(holder, row[1])
        if holder != owner and not lease.is_over():
            raise lease.busy_error(run_id)
    values = (run_id, run_hash(run_id), _encode_owner(owner), owner.clock() + seconds)
    # Also for the same owner: what it wrote under the old fence and is still under way must be
    # refused.
    fence: int = db.execute(ACQUIRE, values).fetchone()[0]
    return fence


def release(db: sqlite3.Connection, run_id: str, owner: Owner) -> None:
    """Do what `Leases.release` promises."""
    db.execute(RELEASE, (run_id, _encode_owner(owner)))
    db.execute(FORGET_RUN, (run_id,))


def renew(db: sqlite3.Connection, fences: Mapping[str, int], seconds: float | None) -> LeaseReport:
    """Do what `Leases.renew` promises."""
    if seconds is not None:
        until = lease_end(seconds)
        db.executemany(RENEW, [(until, run_id, fence) for run_id, fence in fences.items()])
    standing = {run_id: db.execute(SELECT_STANDING, (run_id,)).fetchone() or (0, 0) for run_id in fences}
    return LeaseReport(
        [run_id for run_id, fence in fences.items() if standing[run_id][0] > fence],
        [run_id for run_id in fences if standing[run_id][1]],
    )


def write_log(db: sqlite3.Connection, run_id: str, place: int, key: str, body: bytes, fence: int | None) -> bool:
    """Do what `SuperstepLog.write_log` promises."""
    row = {"run_id": run_id, "place": place, "key": key, "body": body, "fence": fence}
    if _insert(db, INSERT_LOG_ROW, row):
        return True
    # Nothing was inserted: the lease is lost, or the key is there already.
    run = find_run(db, run_id)
    check_fence(run_id, fence, run.fence if run is not None else 0)
    return False


def send(db: sqlite3.Connection, run_id: str, key: str, body: bytes) -> bool:
    """Do what `Signals.send` promises."""
    return _insert(db, INSERT_SIGNAL, {"run_id": run_id, "key": key, "body": body})


def read_log(db: sqlite3.Connection, run_id: str) -> list[LogRow]:
    return [LogRow(*row) for row in db.execute(SELECT_LOG, (run_id,))]


def pending_signals(db: sqlite3.Connection, run_id: str) -> list[SignalRow]:
    return [SignalRow(*row) for row in db.execute(SELECT_SIGNALS, (run_id,))]


def _insert(db: sqlite3.Connection, statement: str, row: dict[str, object]) -> bool:
    """Insert a row that belongs to a run, and create the run if it is missing; False if there is such a row."""
    if db.execute(statement, row).rowcount == 1:
        return True
    return create_run(db, str(row["run_id"])) and db.execute(statement, row).rowcount == 1


def _encode_owner(owner: Owner) -> str:
    return msgspec.json.encode(owner).decode()
