"""Removal of many records from a SQLite file, and compaction of the file afterwards."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence

from stepwell.errors import StoreUnavailable
from stepwell.storage.port import Record, follower_error, newest_error
from stepwell.stores.sqlite import queries
from stepwell.stores.sqlite.connections import patiently
from stepwell.stores.sqlite.rows import refuse_another_workflow, row_of


def thin_out(db: sqlite3.Connection, run_id: str, numbers: Sequence[int], rewritten: Sequence[Record]) -> int:
    """Do what `Store.thin_out` promises, inside the open transaction."""
    run = db.execute(queries.STANDING, (run_id,)).fetchone()
    if run is None:
        return 0
    latest, workflow = run[:2]
    # One more than the highest: the record after the last removed one may be a delta that is based
    # on it.
    span = (min(numbers), max(numbers) + 1) if numbers else (0, -1)
    stored = dict(db.execute(queries.FRAMES, (run_id, *span)).fetchall())
    going = set(numbers) & stored.keys()
    if latest in going:
        raise newest_error(run_id, latest)
    replacements = {record.entry.number: record for record in rewritten}
    # Check everything before anything is changed.
    for number in going:
        if number + 1 in stored and number + 1 not in going | replacements.keys() and not stored[number + 1]:
            raise follower_error(run_id, number)
    for number, record in replacements.items():
        if number not in going and db.execute(queries.IS_FRAME, (run_id, number)).fetchone() is not None:
            refuse_another_workflow(workflow, record.entry)
            db.execute(queries.REPLACE, row_of(record))
    db.executemany(queries.REMOVE, [(run_id, number) for number in going])
    return len(going)


def compact_file(db: sqlite3.Connection) -> int:
    """Rewrite the file without its free pages; return by how many bytes it shrank.

    Must be called outside any transaction.
    """
    path = db.execute("PRAGMA database_list").fetchone()[2]
    before = _size(path)
    patiently(lambda: db.execute("VACUUM"))
    _empty_log(db, path)
    return before - _size(path)


def _empty_log(db: sqlite3.Connection, path: str) -> None:
    """Copy the write-ahead log into the database and truncate it.

    Until then deleted values are still on the disk, in the log and in the pages it will replace.
    """
    busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()  # waits for readers up to the busy timeout
    if busy:
        raise StoreUnavailable(
            f"the store {path} was compacted, but its log still holds deleted values, because another program is "
            f"reading the file; call compact() again when that program has stopped"
        )


def _size(path: str) -> int:
    return sum(os.path.getsize(file) for file in (path, f"{path}-wal") if os.path.exists(file))
