"""Searches in the lists of runs and of open requests of a SQLite file, and the metadata of runs.

The other columns of the list of runs are maintained by triggers; see `schema`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

import msgspec

from stepwell.storage.checked_reads import decode_stored
from stepwell.storage.port import ANY_RUN, Pending, RunEntry, RunFilter, RunMetadata, fold_case, prefix_end
from stepwell.stores.sqlite.queries import (
    HAS_TAG,
    HAS_TEXT,
    PAST,
    PENDING,
    RUN_OF,
    RUNS,
    RUNS_BY_TAG,
    SET_ABOUT,
    TAG,
    UNTAG,
)

_read_tags = msgspec.json.Decoder(dict[str, str]).decode
NO_END = -1  # what SQLite reads as no LIMIT


def list_runs(
    db: sqlite3.Connection,
    columns: Mapping[str, str | None],
    tags: Mapping[str, str],
    inner: bool,
    run_filter: RunFilter,
    past: RunEntry | None,
    limit: int | None,
) -> list[RunEntry]:
    """Return the runs that match, latest start first, as `Store.runs` promises."""
    query, values = search(columns, tags, past, run_filter)
    # One query for runs without and one for runs with a caller: each reads an index in order and
    # stops at the limit. A single query over both would have to sort all runs.
    sides = (0, 1) if inner else (0,)
    end = NO_END if limit is None else limit
    rows = [row for called in sides for row in db.execute(query, (*values, called, end))]
    runs = [_run(row) for row in rows]
    if inner:
        runs.sort(key=lambda run: (run.began, run.run_id), reverse=True)
    return runs[:limit]


def run_of(db: sqlite3.Connection, run_id: str) -> RunEntry | None:
    """Return the run with that id, None if there is none."""
    row = db.execute(RUN_OF, (run_id,)).fetchone()
    return None if row is None else _run(row)


def search(
    columns: Mapping[str, str | None], tags: Mapping[str, str], past: RunEntry | None, run_filter: RunFilter = ANY_RUN
) -> tuple[str, list[Any]]:
    """Return the query for runs and its values, except the last two: `called` and the limit."""
    # The table that is read in order. With tags, the index of the first tag leads and the others
    # are looked up.
    order = "tags" if tags else "runs"
    # An id prefix is searched in the primary key: the unary plus keeps SQLite from choosing another
    # index.
    plus = "+" if run_filter.prefix and not tags else ""
    conditions: list[str] = [HAS_TAG] * (len(tags) - 1)
    values: list[Any] = [text for tag in tags.items() for text in tag]
    for condition, value in (
        *((f"{plus}runs.{column} = ?", value) for column, value in columns.items()),
        (f"{order}.run_id >= ?", run_filter.prefix),
        (f"{order}.run_id < ?", prefix_end(run_filter.prefix) if run_filter.prefix else None),
        (f"{order}.began >= ?", run_filter.since),
        (f"{order}.began < ?", run_filter.until),
        ("runs.at >= ?", run_filter.changed_since),
        ("runs.at < ?", run_filter.changed_until),
    ):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    if run_filter.text is not None:
        conditions.append(HAS_TEXT)
        values += [fold_case(run_filter.text)] * 4
    # By position, not by offset: runs that start or are removed between two pages shift nothing.
    if past is not None:
        conditions.append(f"({order}.began, {order}.run_id) < (?, ?)")
        values += [past.began, past.run_id]
    where = " AND ".join([*conditions, f"{plus}{order}.called = ?"])
    return (RUNS_BY_TAG if tags else RUNS).format(where=where), values


def inbox(
    columns: Mapping[str, str | None], asked_by: str | None, due_by: str | None, past: Pending | None
) -> tuple[str, list[Any]]:
    """Return the query for open requests and its values, except the last one: the limit."""
    order = "at" if due_by is None else "deadline"
    conditions = ["TRUE"] if due_by is None else ["deadline IS NOT NULL"]
    values: list[Any] = []
    for condition, value in (
        *((f"{column} = ?", value) for column, value in columns.items()),
        ("at <= ?", asked_by),
        ("deadline <= ?", due_by),
    ):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    if past is not None:
        conditions.append(PAST.format(order=order))
        values += [past.at if due_by is None else past.deadline or "", past.run_id, past.run_id, past.request_id]
    return PENDING.format(where=" AND ".join(conditions), order=order), values


def _run(row: tuple[Any, ...]) -> RunEntry:
    run_id, workflow, status, number, checkpoint_id, iteration, at, began, caller, tags = row
    metadata = RunMetadata(decode_stored(_read_tags, tags.encode(), f"the tags of run {run_id!r}"), caller)
    return RunEntry(
        run_id,
        workflow,
        status=status,
        number=number,
        checkpoint_id=checkpoint_id,
        iteration=iteration,
        at=at,
        began=began,
        metadata=metadata,
    )


def set_metadata(db: sqlite3.Connection, run_id: str, metadata: RunMetadata, *, is_new: bool) -> None:
    """Replace the metadata of a run."""
    # The trigger has just created the row of a new run with these very defaults.
    if is_new and metadata == RunMetadata():
        return
    db.execute(SET_ABOUT, (metadata.caller, metadata.caller is not None, json.dumps(dict(metadata.tags)), run_id))
    db.execute(UNTAG, (run_id,))
    db.executemany(TAG, [(name, value, run_id) for name, value in metadata.tags.items()])
