"""The tables of the SQLite file, how our files are recognised, and how an older file is upgraded."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from stepwell.errors import NewerFormat, StoreUnavailable

APPLICATION = 0x53746570  # "Step": the application id in the header of our files

FIRST = """
CREATE TABLE runs (
    run           INTEGER PRIMARY KEY,                -- stands for the run in other tables
    run_id        TEXT NOT NULL,
    hash          INTEGER NOT NULL,                   -- of the run id; the ids of its checkpoints contain it
    workflow      TEXT,                               -- NULL until there is a record, like the next two
    status        TEXT,                               -- of the newest record
    began         TEXT,                               -- `at` of the first record that was stored
    caller        TEXT,                               -- the run that called this one as a sub-workflow
    called        INTEGER NOT NULL AS (caller IS NOT NULL),
    parent_run    TEXT,                               -- the run that this one was forked from, NULL for most
    parent_number INTEGER,                            -- from which commit of it
    parent_id     TEXT,                               -- the checkpoint id of that commit
    tags          TEXT NOT NULL DEFAULT '{}',         -- a JSON object
    priority      INTEGER NOT NULL DEFAULT 0,         -- of several ready runs, the highest come first
    wake          TEXT,                               -- from when on the run can be driven
    owner         TEXT,                               -- who holds the lease: a JSON object, NULL for nobody
    until         REAL,                               -- when the lease ends, by the owner's clock; NULL: it has ended
    fence         INTEGER NOT NULL DEFAULT 0,         -- the number of the last lease
    takeovers     INTEGER NOT NULL DEFAULT 0,         -- of leases that were not released, since the newest record
    dropped_below INTEGER NOT NULL DEFAULT 0,         -- before this number only records with outputs are left
    unordered     INTEGER NOT NULL DEFAULT 0          -- 1 if `at` does not always rise with the number
) STRICT;
CREATE UNIQUE INDEX runs_by_id ON runs (run_id);
CREATE INDEX runs_by_hash ON runs (hash);
CREATE INDEX runs_by_age ON runs (called, began, run_id) WHERE began IS NOT NULL;
CREATE INDEX runs_by_workflow ON runs (workflow, called, began, run_id) WHERE began IS NOT NULL;
CREATE INDEX runs_by_status ON runs (status, called, began, run_id) WHERE began IS NOT NULL;
CREATE INDEX runs_by_workflow_and_status ON runs (workflow, status, called, began, run_id) WHERE began IS NOT NULL;
CREATE INDEX runs_by_parent ON runs (parent_run, called, began, run_id) WHERE parent_run IS NOT NULL;
CREATE INDEX runs_by_priority ON runs (priority, wake, run_id) WHERE wake IS NOT NULL;

-- In the order in which they were stored. Clustered by run, they would fill a page of the log for
-- each run that moves: here many runs share one.
CREATE TABLE commits (
    position      INTEGER PRIMARY KEY,
    run           INTEGER NOT NULL,
    number        INTEGER NOT NULL,
    checkpoint_id TEXT NOT NULL,
    status        TEXT NOT NULL,
    iteration     INTEGER NOT NULL,
    at            TEXT NOT NULL,
    snapshot      INTEGER NOT NULL,
    outputs       INTEGER NOT NULL,
    latest_only   INTEGER NOT NULL,
    decisions     INTEGER NOT NULL,                   -- 1 if the body says what people decided
    foreign_id    INTEGER NOT NULL,                   -- 1 if the checkpoint id does not lead to this row
    body          TEXT NOT NULL,                      -- last, so that reading the others does not load its pages
    UNIQUE (run, number)
) STRICT;
CREATE INDEX commits_with_outputs ON commits (run, number) WHERE outputs;
CREATE INDEX commits_with_decisions ON commits (at, run, number) WHERE decisions;
CREATE INDEX commits_with_foreign_id ON commits (checkpoint_id) WHERE foreign_id;

-- What people decided, newest last. Of a sealed commit it shows that there was something, and when.
CREATE VIEW decisions AS
WITH decided AS (
    SELECT run_id, workflow, number, at, body, json_extract(body, '$.kind') AS kind, json_extract(body, '$.by') AS by
    FROM commits CROSS JOIN runs ON runs.run = commits.run WHERE decisions)
SELECT run_id, workflow, number, 'answered' AS kind, json_extract(a.value, '$.at') AS at,
    json_extract(a.value, '$.by') AS by, json_extract(a.value, '$.comment') AS comment,
    json_extract(a.value, '$.request_id') AS request_id, json_extract(a.value, '$.executor') AS executor,
    (SELECT CASE v.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' WHEN 'text' THEN json_quote(v.value)
        WHEN 'null' THEN 'null' ELSE v.value END FROM json_each(a.value) AS v WHERE v.key = 'value') AS response
FROM decided, json_each(body, '$.answers') AS a
UNION ALL
SELECT run_id, workflow, number, CASE WHEN kind IS NULL THEN 'sealed' WHEN kind = 'input' THEN 'started'
        WHEN kind IN ('cancelled', 'forked', 'retried', 'restored') THEN kind ELSE 'resumed' END,
    at, by, json_extract(body, '$.reason'), NULL, NULL, NULL
FROM decided
WHERE kind IS NULL OR kind IN ('cancelled', 'forked', 'retried', 'restored')
    OR by IS NOT NULL AND json_type(body, '$.answers') IS NULL;

CREATE TABLE superstep_log (
    run   INTEGER NOT NULL,
    place INTEGER NOT NULL,
    key   TEXT NOT NULL,
    body  TEXT NOT NULL,
    PRIMARY KEY (run, place, key)
) STRICT;  -- with row ids: entries are appended, and a page holds several

CREATE TABLE signals (
    run      INTEGER NOT NULL,
    key      TEXT NOT NULL,
    position INTEGER,                                 -- the order of sending; NULL once it is consumed
    body     TEXT,                                    -- NULL once it is consumed; the key is never used again
    PRIMARY KEY (run, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX pending_signals ON signals (run, position) WHERE position IS NOT NULL;

CREATE TABLE requests (
    position      INTEGER PRIMARY KEY,                -- the order of asking
    run_id        TEXT NOT NULL,
    request_id    TEXT NOT NULL,
    workflow      TEXT NOT NULL,
    executor      TEXT NOT NULL,
    request_type  TEXT NOT NULL,
    response_type TEXT NOT NULL,
    schema        TEXT NOT NULL,
    at            TEXT NOT NULL,
    deadline      TEXT,
    body          TEXT NOT NULL,                      -- what is asked
    UNIQUE (run_id, request_id)
) STRICT;
CREATE INDEX requests_by_id ON requests (request_id);
CREATE INDEX requests_by_age ON requests (at, run_id, position);
CREATE INDEX requests_by_workflow ON requests (workflow, at, run_id, position);
CREATE INDEX requests_by_deadline ON requests (deadline, run_id, position) WHERE deadline IS NOT NULL;
CREATE INDEX requests_by_workflow_and_deadline ON requests (workflow, deadline, run_id, position)
    WHERE deadline IS NOT NULL;

CREATE TABLE tags (
    run    INTEGER NOT NULL,
    name   TEXT NOT NULL,
    value  TEXT NOT NULL,
    called INTEGER NOT NULL,                          -- as in `runs`, like the next two
    began  TEXT NOT NULL,
    run_id TEXT NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_by_tag ON tags (name, value, called, began, run_id);

CREATE TABLE workers (
    name    TEXT PRIMARY KEY,
    process TEXT NOT NULL,                            -- which process has that name
    seen    REAL NOT NULL,                            -- when it announced itself last; seconds since 1970
    body    TEXT NOT NULL                             -- what it says of itself: a JSON object
) STRICT, WITHOUT ROWID;

CREATE TABLE webhooks (
    id       TEXT PRIMARY KEY,
    workflow TEXT,                                    -- NULL for those of all workflows
    kinds    TEXT NOT NULL,                           -- of messages: a JSON list, empty for all
    stopped  INTEGER NOT NULL,
    body     TEXT NOT NULL                            -- where it sends to: a JSON object
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox (                                 -- messages that are not delivered yet
    position INTEGER PRIMARY KEY,                     -- their order
    webhook  TEXT NOT NULL,
    run_id   TEXT NOT NULL,
    number   INTEGER NOT NULL,                        -- of the commit
    kind     TEXT NOT NULL,
    workflow TEXT NOT NULL,
    at       TEXT NOT NULL,
    request  TEXT,                                    -- the columns of `requests`, as a JSON object
    attempts INTEGER NOT NULL,
    due      TEXT,                                    -- when the next attempt is, NULL for one that is set aside
    error    TEXT                                     -- why the last attempt failed
) STRICT;
CREATE INDEX outbox_by_run ON outbox (run_id, webhook, position);
CREATE INDEX outbox_by_webhook ON outbox (webhook, due, position);
"""

# The upgrade steps, oldest first: a file of format n has had the first n of them applied.
STEPS = (FIRST,)
FORMAT = len(STEPS)


def prepare(db: sqlite3.Connection, path: str) -> None:
    """Set up a new connection, and create or upgrade the tables.

    Raises StoreUnavailable or NewerFormat, and changes nothing, if the file is not ours to use.
    """
    # A first attempt that met a lock may have left a transaction open: this function is retried.
    if db.in_transaction:
        db.execute("ROLLBACK")
    db.execute("BEGIN")
    version = _read_format(db, path)
    db.execute("COMMIT")
    if version == 0:
        # Half of what SQLite would choose. A commit changes two pages or three, and writes all of
        # each.
        db.execute("PRAGMA page_size = 2048")
    if db.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
        raise StoreUnavailable(
            f"the file system of the store {path} does not support SQLite's WAL mode (a network drive?); "
            f"put the store on a local disk"
        )
    # Explicitly: some builds of SQLite default to NORMAL, which in WAL mode may lose commits in a
    # power failure.
    db.execute("PRAGMA synchronous = FULL")
    # In pages. Syncing a log that is overwritten takes half as long as syncing one that grows, so
    # the log must not get long. With a much shorter one, pages that change in every commit would be
    # copied back too often.
    db.execute("PRAGMA wal_autocheckpoint = 2000")
    if version < FORMAT:
        db.execute("BEGIN IMMEDIATE")
        # Read again under the write lock: another process may have upgraded the file meanwhile.
        for step in STEPS[_read_format(db, path) :]:
            # One by one, because `executescript` would commit the transaction first.
            for statement in _statements(step):
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {FORMAT}")
        db.execute("COMMIT")


def _read_format(db: sqlite3.Connection, path: str) -> int:
    """Return the format of the file, 0 for an empty one. Raises if the file is not ours to use.

    Must be called inside a transaction, so that the three answers agree.
    """
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if application == 0 and version == 0 and tables == 0:
        return 0
    if application != APPLICATION:
        raise StoreUnavailable(f"{path} is a database of another program and was not changed; choose another file")
    if version > FORMAT:
        raise NewerFormat(
            f"the store {path} was written by a newer Stepwell (format {version}, this one knows {FORMAT}) "
            f"and was not changed; upgrade Stepwell to use it"
        )
    return version


def _statements(step: str) -> Iterator[str]:
    statement = ""
    for line in step.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):  # not fooled by the semicolons inside a comment
            yield statement
            statement = ""
