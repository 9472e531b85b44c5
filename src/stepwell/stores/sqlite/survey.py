"""A survey of a SQLite file for `stepwell doctor`, read row by row.

A single query would fail as a whole at the first damaged row; here one damaged row does not hide the
others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from stepwell.errors import CheckpointCorrupt
from stepwell.storage.port import DamagedRun, RunEntry, Survey
from stepwell.stores.sqlite.run_list import run_of

# Ids are read as BLOBs: Python refuses a TEXT that is not UTF-8, and that is one kind of damage to
# report.
_ALL = "SELECT CAST(run_id AS BLOB) FROM runs UNION SELECT CAST(run_id AS BLOB) FROM commits"
_UNLISTED = "SELECT DISTINCT CAST(run_id AS BLOB) FROM commits WHERE run_id NOT IN (SELECT run_id FROM runs)"
_MISLISTED = "SELECT CAST(run_id AS BLOB) FROM runs WHERE called <> (caller IS NOT NULL)"
_NUMBERS = "SELECT number FROM commits WHERE run_id = ? ORDER BY number"


def survey(db: sqlite3.Connection) -> Survey:
    """Return the runs in the file, and the reason for each that cannot be listed."""
    runs: list[RunEntry] = []
    damaged: list[DamagedRun] = []
    for (name,) in db.execute(_ALL).fetchall():
        try:
            run_id = bytes(name).decode()
            entry = run_of(db, run_id)
        except UnicodeDecodeError as error:
            damaged.append(DamagedRun(None, f"the id of the run {bytes(name)!r} is damaged: {error}"))
        except (CheckpointCorrupt, sqlite3.OperationalError) as error:
            damaged.append(DamagedRun(run_id, f"the entry of run {run_id!r} in the list of runs is damaged: {error}"))
        else:
            runs += [] if entry is None else [entry]
    return Survey(runs, damaged)


def numbers(db: sqlite3.Connection, run_id: str) -> list[int]:
    """Return the numbers of the records of a run."""
    return [number for (number,) in db.execute(_NUMBERS, (run_id,))]


def list_flaws(db: sqlite3.Connection) -> Iterator[str]:
    """Yield a sentence for each run that has records but is missing or wrong in the list of runs."""
    for (name,) in db.execute(_UNLISTED).fetchall():
        yield f"run {bytes(name).decode(errors='replace')!r} has commits, but is missing from the list of runs"
    for (name,) in db.execute(_MISLISTED).fetchall():
        yield f"run {bytes(name).decode(errors='replace')!r} is listed wrongly: it is unclear whether it has a caller"
