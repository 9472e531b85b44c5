"""Lists and searches in a SQLite file: each function keeps the promises of a method of `Index`."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from heapq import merge
from itertools import islice
from typing import Any

import msgspec

from stepwell.model.event import CheckpointInfo
from stepwell.storage.checked_reads import decode_stored
from stepwell.storage.filters import (
    STOPPED,
    CheckpointFilter,
    ReadyFilter,
    RequestFilter,
    RunFilter,
    fold_case,
    prefix_end,
)
from stepwell.storage.ids import location_of, run_hashes_for
from stepwell.storage.statistics import RunPlace, StoreStatistics
from stepwell.storage.stored_values import HIGHEST_PRIORITY, Entry, RequestEntry, RunEntry, RunMetadata
from stepwell.stores.sqlite.outbox import REQUEST
from stepwell.stores.sqlite.records import ENTRY, LAST, entry_in, read_lease

NO_LIMIT = -1  # to SQLite
BEFORE_ALL, AFTER_ALL = "", b""  # a blob sorts after every text

# ---------------------------------------------------------------------- runs

RUN = """
runs.run_id, runs.workflow, runs.status, commits.number, commits.checkpoint_id, commits.iteration, commits.at,
runs.began, runs.caller, runs.tags, runs.priority, runs.parent_run, runs.parent_id, runs.parent_number, runs.wake,
EXISTS (SELECT 1 FROM signals WHERE signals.run = runs.run AND signals.position IS NOT NULL), runs.owner, runs.until
"""
_WITH_NEWEST = """
CROSS JOIN commits ON commits.run = runs.run
    AND commits.number = (SELECT max(number) FROM commits AS c WHERE c.run = runs.run)
"""
SELECT_RUN_ENTRY = f"SELECT {RUN} FROM runs {_WITH_NEWEST} WHERE run_id = ?"
SELECT_RUN_BY_KEY = f"SELECT {RUN} FROM runs {_WITH_NEWEST} WHERE runs.run = ?"

_decode_tags = msgspec.json.Decoder(dict[str, str]).decode


def list_runs(
    db: sqlite3.Connection, run_filter: RunFilter, past: RunEntry | None, limit: int | None
) -> list[RunEntry]:
    if run_filter.ids is not None:
        return run_filter.page(filter(None, (find_run_entry(db, id) for id in run_filter.ids)), past, limit)
    query, values = _search_runs(db, run_filter, past)
    runs: list[RunEntry] = []
    # One query for runs without and one for runs with a caller: each reads an index in order. A
    # single query over both would have to sort all runs.
    for called in (0, 1) if run_filter.children else (0,):
        # Rows are read when they are asked for. What SQL does not compare exactly is compared here.
        with closing(db.execute(query, {**values, "called": called})) as rows:
            entries = map(run_entry_in, rows) if run_filter.due_by is None else _read_each(db, rows)
            runs += islice(filter(run_filter.matches, entries), limit)
    runs.sort(key=lambda run: (run.began, run.run_id), reverse=True)
    return runs[:limit]


def _read_each(db: sqlite3.Connection, rows: Iterable[tuple[int]]) -> Iterator[RunEntry]:
    for row in rows:
        yield run_entry_in(db.execute(SELECT_RUN_BY_KEY, row).fetchone())


_RUN_CONDITIONS = {
    "workflow": "runs.workflow = :workflow",
    "status": "runs.status = :status",
    "parent": "runs.parent_run = :parent",
    "asleep_at": "runs.wake > :asleep_at",
}
# Tags are JSON text: what is sought is written in the same way, and may still occur where it means something else.
_HAS_TEXT = """
(instr(lower(runs.run_id), :text) OR instr(lower(runs.workflow), :text) OR instr(lower(runs.tags), :text_in_json))
"""
_HAS_TAG = "EXISTS (SELECT 1 FROM tags AS t WHERE t.run = runs.run AND t.name = :name{0} AND t.value = :value{0})"
# CROSS JOIN keeps SQLite from reordering the tables.
_TAGGED = "tags CROSS JOIN runs ON runs.run = tags.run"
# Few runs have signals or can be driven, so these are sorted, and only those on the page are read.
_DUE = """
(SELECT run FROM signals WHERE position IS NOT NULL UNION SELECT run FROM runs WHERE wake <= :due_by) AS due
CROSS JOIN runs ON runs.run = due.run
"""
_IN_PAGE = "{0}.called = :called AND {0}.began >= :since AND ({0}.began, {0}.run_id) < (:began, :run_id)"
_FEW = 10_000  # entries of an index, which are counted in about a millisecond


def _search_runs(db: sqlite3.Connection, f: RunFilter, past: RunEntry | None) -> tuple[str, dict[str, Any]]:
    """Return the query for all runs that may match, latest start first; `called` is still to be set.

    Its rows have the columns `RUN` or, with `due_by`, the key of a run.
    """
    values = _values_of(f, past)
    where = [condition for name, condition in _RUN_CONDITIONS.items() if getattr(f, name) is not None]
    first_tag = _find_rarest_tag(db, f, values) if f.tags and f.due_by is None else None
    where += [_HAS_TAG.format(n) for n in range(len(f.tags)) if n != first_tag]
    if f.owned:
        where.append("runs.owner IS NOT NULL")
    if f.text is not None:
        where.append(_HAS_TEXT)
    columns, tables, first = RUN, f"runs {_WITH_NEWEST}", "runs"
    if f.due_by is not None:
        columns, tables = "runs.run", _DUE
    elif first_tag is not None:
        # The index of this tag is read in order, and the run is looked up.
        tables, first = f"{_TAGGED} {_WITH_NEWEST}", "tags"
        where.append(f"tags.name = :name{first_tag} AND tags.value = :value{first_tag}")
    elif f.prefix is not None:
        tables = f"runs INDEXED BY runs_by_id {_WITH_NEWEST}"
    if f.prefix is not None:
        where.append(f"{first}.run_id >= :prefix AND {first}.run_id < :prefix_end")
    query = f"""
        SELECT {columns} FROM {tables} WHERE {" AND ".join([_IN_PAGE.format(first), *where])}
        ORDER BY {first}.began DESC, {first}.run_id DESC
    """
    return query, values


def _values_of(f: RunFilter, past: RunEntry | None) -> dict[str, Any]:
    # By position, not by offset: runs that start or are removed between two pages shift nothing.
    ends = [] if past is None else [(past.began, past.run_id)]
    began, run_id = min([*ends, *([] if f.until is None else [(f.until, "")])], default=(AFTER_ALL, ""))
    values = {"began": began, "run_id": run_id, "since": f.since or BEFORE_ALL, "due_by": f.due_by, **_prefix(f.prefix)}
    for n, (name, value) in enumerate(f.tags.items()):
        values |= {f"name{n}": name, f"value{n}": value}
    if f.text is not None:
        text = fold_case(f.text)
        values |= {"text": text, "text_in_json": msgspec.json.encode(text).decode()[1:-1]}
    return values | {name: getattr(f, name) for name in _RUN_CONDITIONS}


def _find_rarest_tag(db: sqlite3.Connection, f: RunFilter, values: dict[str, Any]) -> int | None:
    """Return which tag of a filter the fewest runs have; None if fewer have its status and workflow."""
    sources: dict[int | None, str] = {
        n: f"tags WHERE {_IN_PAGE.format('tags')} AND name = :name{n} AND value = :value{n}" for n in range(len(f.tags))
    }
    if of_run := [_RUN_CONDITIONS[name] for name in ("status", "workflow") if getattr(f, name) is not None]:
        sources[None] = f"runs WHERE {' AND '.join([_IN_PAGE.format('runs'), *of_run])}"
    if len(sources) == 1:
        return 0

    def count(n: int | None) -> int:
        return len(db.execute(f"SELECT 1 FROM {sources[n]} LIMIT {_FEW}", {**values, "called": 0}).fetchall())

    return min(sources, key=count)


def find_run_entry(db: sqlite3.Connection, run_id: str) -> RunEntry | None:
    row = db.execute(SELECT_RUN_ENTRY, (run_id,)).fetchone()
    return None if row is None else run_entry_in(row)


def run_entry_in(row: tuple[Any, ...]) -> RunEntry:
    """Return the run in the columns `RUN`."""
    *columns, caller, tags, priority, parent_run, parent_id, parent_number, wake, signalled, owner, until = row
    parent = None if parent_run is None else CheckpointInfo(parent_run, parent_id, parent_number)
    known_tags = decode_stored(_decode_tags, tags.encode(), f"the tags of run {row[0]!r}")
    metadata = RunMetadata(known_tags, caller, priority, parent)
    return RunEntry(*(*columns, metadata, wake, signalled != 0, read_lease(row[0], owner, until)))


SELECT_DUE = f"""
SELECT {RUN} FROM runs {_WITH_NEWEST}
WHERE priority = :priority AND wake <= :by AND NOT called AND (:workflow IS NULL OR workflow = :workflow)
ORDER BY wake, runs.run_id
"""
SELECT_LOWER_PRIORITY = "SELECT max(priority) FROM runs WHERE wake IS NOT NULL AND priority < ?"
# Few runs have signals at any time, and of these few are at rest.
SELECT_SIGNALLED = f"""
SELECT {RUN} FROM runs {_WITH_NEWEST} WHERE runs.run IN (SELECT run FROM signals WHERE position IS NOT NULL)
    AND (wake IS NULL OR wake > :by) AND NOT called AND (:workflow IS NULL OR workflow = :workflow)
"""


def list_ready(db: sqlite3.Connection, ready_filter: ReadyFilter, limit: int | None) -> list[RunEntry]:
    values = {"by": ready_filter.by, "workflow": ready_filter.workflow}
    signalled = sorted(map(run_entry_in, db.execute(SELECT_SIGNALLED, values)), key=ready_filter.sort_key)
    # Rows are read when they are asked for. Whether a lease is over shows only here, by the clock of
    # its owner.
    with closing(_read_due(db, values)) as due:
        in_order = merge(due, signalled, key=ready_filter.sort_key)
        return list(islice(filter(ready_filter.matches, in_order), limit))


def _read_due(db: sqlite3.Connection, values: dict[str, str | None]) -> Generator[RunEntry]:
    """Yield the runs that are due, by priority: one query for each, which reads an index in order."""
    priority = HIGHEST_PRIORITY + 1
    while (priority := db.execute(SELECT_LOWER_PRIORITY, (priority,)).fetchone()[0]) is not None:
        with closing(db.execute(SELECT_DUE, {**values, "priority": priority})) as rows:
            yield from map(run_entry_in, rows)


def count_all(db: sqlite3.Connection) -> StoreStatistics:
    by_status = "SELECT status, count(*) FROM runs WHERE began IS NOT NULL AND NOT called GROUP BY status"
    runs = dict(db.execute(by_status).fetchall())
    return StoreStatistics(runs, db.execute(COUNT_REQUESTS).fetchone()[0])


def find_place(db: sqlite3.Connection, past: RunPlace | None, count: int) -> RunPlace | None:
    began, run_id = past or (AFTER_ALL, "")
    rows = db.execute(
        """SELECT began, run_id FROM runs WHERE called = 0 AND began IS NOT NULL AND (began, run_id) < (?, ?)
           ORDER BY began DESC, run_id DESC LIMIT 2 OFFSET ?""",
        (began, run_id, count - 1),
    ).fetchall()
    return RunPlace(*rows[0]) if len(rows) == 2 else None


# ---------------------------------------------------------------------- checkpoints

_COMMITS = f"SELECT {ENTRY} FROM runs CROSS JOIN commits ON commits.run = runs.run"
SELECT_AT_PLACE = f"{_COMMITS} WHERE hash = ? AND number = ? AND checkpoint_id = ?"
SELECT_FOREIGN = f"""
SELECT {ENTRY} FROM commits CROSS JOIN runs ON runs.run = commits.run WHERE foreign_id AND checkpoint_id = ?
ORDER BY at DESC LIMIT 1
"""
SELECT_CHECKPOINTS_OF_RUN = f"""
{_COMMITS} WHERE run_id = :of_run AND (:workflow IS NULL OR workflow = :workflow) AND number < :number
    AND (decisions OR NOT :decisions) AND checkpoint_id >= :prefix AND checkpoint_id < :prefix_end
ORDER BY number DESC LIMIT :limit
"""
# The conditions on a run, and on a commit.
OF_WORKFLOW = "workflow = :workflow AND began >= ''"
WITH_PREFIX = """
(hash >= :low AND hash < :high OR runs.run IN (
    SELECT c.run FROM commits AS c WHERE c.foreign_id AND c.checkpoint_id >= :prefix AND c.checkpoint_id < :prefix_end))
"""
_MATCHES = """
(at, run_id, number) < (:at, :run_id, :number) AND checkpoint_id >= :prefix AND checkpoint_id < :prefix_end
"""
SELECT_DECISIONS = f"""
SELECT {ENTRY} FROM commits INDEXED BY commits_with_decisions CROSS JOIN runs ON runs.run = commits.run
WHERE decisions AND at <= :at AND {_MATCHES} AND (:workflow IS NULL OR workflow = :workflow)
ORDER BY at DESC, run_id DESC, number DESC LIMIT :limit
"""
# In a run whose times rise, the last commits are the latest; and of those runs, only the ones with
# the latest commits count. A run whose times do not rise is looked at as a whole.
SELECT_CHECKPOINTS = f"""
WITH latest AS (
    SELECT run FROM runs WHERE NOT unordered AND {{of_run}}
    ORDER BY (SELECT at FROM commits WHERE commits.run = runs.run AND {_MATCHES} ORDER BY number DESC LIMIT 1) DESC,
        run_id DESC
    LIMIT :limit)
{_COMMITS} WHERE runs.run IN latest AND commits.number IN (
    SELECT c.number FROM commits AS c WHERE c.run = runs.run AND {_MATCHES} ORDER BY c.number DESC LIMIT :limit)
UNION ALL {_COMMITS} WHERE unordered AND {{of_run}} AND {_MATCHES}
ORDER BY 7 DESC, 1 DESC, 2 DESC LIMIT :limit
"""


def list_checkpoints(
    db: sqlite3.Connection, checkpoint_filter: CheckpointFilter, before: Entry | None, limit: int | None
) -> list[Entry]:
    workflow, prefix = checkpoint_filter.workflow, checkpoint_filter.prefix
    at, run_id, number = (AFTER_ALL, "", LAST) if before is None else (before.at, before.run_id, before.number)
    low, high = run_hashes_for(prefix or "") or (0, 0)
    values = {
        "workflow": workflow,
        "of_run": checkpoint_filter.run_id,
        "at": at,
        "run_id": run_id,
        "number": number,
        "low": low,
        "high": high,
        "decisions": checkpoint_filter.decisions,
        "limit": NO_LIMIT if limit is None else limit,
        **_prefix(prefix),
    }
    wanted = {"TRUE": True, OF_WORKFLOW: workflow, WITH_PREFIX: prefix}
    of_run = " AND ".join(condition for condition, value in wanted.items() if value is not None)
    query = SELECT_CHECKPOINTS.format(of_run=of_run)
    if checkpoint_filter.run_id is not None:
        query = SELECT_CHECKPOINTS_OF_RUN
    elif checkpoint_filter.decisions:
        query = SELECT_DECISIONS
    rows = db.execute(query, values)
    return [entry_in(row) for row in rows][::-1]


def locate(db: sqlite3.Connection, checkpoint_id: str) -> Entry | None:
    place, row = location_of(checkpoint_id), None
    if place is not None:
        row = db.execute(SELECT_AT_PLACE, (*place, checkpoint_id)).fetchone()
    row = row or db.execute(SELECT_FOREIGN, (checkpoint_id,)).fetchone()
    return None if row is None else entry_in(row)


def _prefix(prefix: str | None) -> dict[str, str | bytes]:
    """Return the range of the texts that start with a prefix."""
    end = prefix_end(prefix or "")
    return {"prefix": prefix or BEFORE_ALL, "prefix_end": AFTER_ALL if end is None else end}


# ---------------------------------------------------------------------- requests

# If the last request of the page was closed meanwhile, what its run asked at the same moment comes
# again.
SELECT_REQUESTS = f"""
SELECT {REQUEST} FROM requests {{index}}
WHERE ({{order}}, run_id, position) > (:past, :past_run, coalesce(
        (SELECT position FROM requests WHERE run_id = :past_run AND request_id = :past_request), 0))
    AND {{order}} <= :until {{where}}
ORDER BY {{order}}, run_id, position LIMIT :limit
"""
# Nobody answers a run that has stopped, unless it is driven again.
OF_ACTIVE_RUNS = f"""
AND EXISTS (SELECT 1 FROM runs WHERE runs.run_id = requests.run_id
    AND (runs.owner IS NOT NULL OR coalesce(runs.status, '') NOT IN ({", ".join(map(repr, STOPPED))})))
"""
COUNT_REQUESTS = f"SELECT count(*) FROM requests WHERE true {OF_ACTIVE_RUNS}"


def list_requests(
    db: sqlite3.Connection, request_filter: RequestFilter, past: RequestEntry | None, limit: int | None
) -> list[RequestEntry]:
    f = request_filter
    order, until = ("at", f.asked_until) if f.due_until is None else ("deadline", f.due_until)
    values = {
        "workflow": f.workflow,
        "run_id": f.run_id,
        "request_id": f.request_id,
        "asked_until": f.asked_until,
        "until": AFTER_ALL if until is None else until,
        "past": BEFORE_ALL if past is None else getattr(past, order) or BEFORE_ALL,
        "past_run": BEFORE_ALL if past is None else past.run_id,
        "past_request": BEFORE_ALL if past is None else past.request_id,
        "limit": NO_LIMIT if limit is None else limit,
    }
    wanted = {
        "workflow = :workflow": f.workflow,
        "run_id = :run_id": f.run_id,
        "request_id = :request_id": f.request_id,
        "at <= :asked_until": f.asked_until,
    }
    where = "".join(f" AND {condition}" for condition, value in wanted.items() if value is not None)
    where += "" if f.stopped else OF_ACTIVE_RUNS
    index = "INDEXED BY requests_by_id" if f.request_id is not None and f.run_id is None else ""
    query = SELECT_REQUESTS.format(order=order, where=where, index=index)
    return [RequestEntry(*row) for row in db.execute(query, values)]
