"""What is in a SQLite file, as far as it can be told row by row.

For an examination: one row that cannot be read must not hide the others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from stepwell.errors import CheckpointCorrupt
from stepwell.storage.port import DamagedRun, RunEntry, Survey
from stepwell.stores.sqlite.run_list import run_of

_ALL = "SELECT CAST(run_id AS BLOB) FROM runs UNION SELECT CAST(run_id AS BLOB) FROM commits"
_UNLISTED = "SELECT DISTINCT CAST(run_id AS BLOB) FROM commits WHERE run_id NOT IN (SELECT run_id FROM runs)"
_MISLISTED = "SELECT CAST(run_id AS BLOB) FROM runs WHERE called <> (caller IS NOT NULL)"
_NUMBERS = "SELECT number FROM commits WHERE run_id = ? ORDER BY number"


def survey(db: sqlite3.Connection) -> Survey:
    """The runs in the file; of those that cannot be listed, why."""
    runs: list[RunEntry] = []
    damaged: list[DamagedRun] = []
    for (name,) in db.execute(_ALL).fetchall():
        try:
            run_id = bytes(name).decode()
            entry = run_of(db, run_id)
        except UnicodeDecodeError as error:
            damaged.append(DamagedRun(None, f"the id of the run {bytes(name)!r} is damaged: {error}"))
        except (CheckpointCorrupt, sqlite3.OperationalError) as error:
            damaged.append(DamagedRun(run_id, f"the list of runs is damaged at run {run_id!r}: {error}"))
        else:
            runs += [] if entry is None else [entry]
    return Survey(runs, damaged)


def numbers(db: sqlite3.Connection, run_id: str) -> list[int]:
    """The numbers of the records of a run."""
    return [number for (number,) in db.execute(_NUMBERS, (run_id,))]


def list_flaws(db: sqlite3.Connection) -> Iterator[str]:
    """Runs that have records, and that no list of runs would name."""
    for (name,) in db.execute(_UNLISTED).fetchall():
        yield f"run {bytes(name).decode(errors='replace')!r} has commits, and is missing from the list of runs"
    for (name,) in db.execute(_MISLISTED).fetchall():
        yield f"run {bytes(name).decode(errors='replace')!r} is listed wrongly: whether it works for another is unclear"
