"""Maintenance of a SQLite file: what is in it, what is wrong with it, and making it smaller."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator

from stepwell.errors import CheckpointCorrupt, StoreUnavailable
from stepwell.storage.stored_values import DamagedRun, RunEntry, Survey
from stepwell.stores.sqlite.connections import damage_text, patiently
from stepwell.stores.sqlite.lists import find_run_entry

# Ids are read as BLOBs: Python refuses a TEXT that is not UTF-8, and that is one kind of damage to
# report. A row with neither belongs to a run that has a lease or signals, and no record yet.
SELECT_RUN_IDS = """
SELECT CAST(run_id AS BLOB), began IS NOT NULL AS listed,
    EXISTS (SELECT 1 FROM commits WHERE commits.run = runs.run) AS stored
FROM runs WHERE listed OR stored
"""
# Of a group, SQLite returns the row with the lowest number.
SELECT_LOST = """
SELECT count(*), checkpoint_id, min(number) FROM commits WHERE run NOT IN (SELECT run FROM runs) GROUP BY run
"""


def survey(db: sqlite3.Connection) -> Survey:
    flaws = list(_page_flaws(db))
    runs: list[RunEntry] = []
    damaged: list[DamagedRun] = []
    try:
        flaws += [
            f"{count} commits belong to a run that is missing from the list of runs; the first is checkpoint {first}"
            for count, first, _ in db.execute(SELECT_LOST)
        ]
        # One by one: a single query would fail as a whole at the first damaged row.
        for name, is_listed, is_stored in db.execute(SELECT_RUN_IDS).fetchall():
            run_id = bytes(name).decode(errors="replace")
            if not is_stored:
                flaws.append(f"run {run_id!r} is in the list of runs, but has no commits")
            elif not is_listed:
                flaws.append(f"run {run_id!r} has commits, but is missing from the list of runs")
            elif run_id.encode() != name:
                damaged.append(DamagedRun(None, f"the id of the run {bytes(name)!r} is damaged: it is not UTF-8"))
            else:
                try:
                    runs += filter(None, [find_run_entry(db, run_id)])
                except (CheckpointCorrupt, sqlite3.OperationalError) as error:
                    why = f"the entry of run {run_id!r} in the list of runs is damaged: {error}"
                    damaged.append(DamagedRun(run_id, why))
    except sqlite3.DatabaseError as error:
        flaws.append(damage_text(_path(db), error))
    return Survey(runs, damaged, flaws)


def numbers(db: sqlite3.Connection, run_id: str) -> list[int]:
    rows = db.execute("SELECT number FROM runs JOIN commits USING (run) WHERE run_id = ? ORDER BY number", (run_id,))
    return [number for (number,) in rows]


def _page_flaws(db: sqlite3.Connection) -> Iterator[str]:
    """Yield what SQLite finds wrong with its pages, tables and indexes, at most 20 problems."""
    for (finding,) in db.execute("PRAGMA integrity_check(20)"):
        if finding != "ok":
            yield damage_text(_path(db), " ".join(str(finding).split()))


def compact(db: sqlite3.Connection) -> int:
    db.execute("COMMIT")  # the file is rewritten outside any transaction
    path = _path(db)
    before = _size(path)
    patiently(lambda: db.execute("VACUUM"))
    # Copies the write-ahead log into the database and truncates it: until then deleted values are
    # still on the disk. Waits for readers up to the busy timeout.
    busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise StoreUnavailable(
            f"the store {path} was compacted, but its log still holds deleted values, because another program is "
            f"reading the file; call compact() again when that program has stopped"
        )
    return before - _size(path)


def _path(db: sqlite3.Connection) -> str:
    return str(db.execute("PRAGMA database_list").fetchone()[2])


def _size(path: str) -> int:
    return sum(os.path.getsize(file) for file in (path, f"{path}-wal") if os.path.exists(file))
