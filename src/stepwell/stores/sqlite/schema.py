"""The tables of the SQLite file, how our files are recognised, and how an older file is upgraded."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from stepwell.errors import NewerFormat, StoreUnavailable

APPLICATION = 0x53746570  # "Step": the application id in the header of our files

FIRST = """
CREATE TABLE commits (
    seq           INTEGER PRIMARY KEY,  -- the order of commits over all runs
    run_id        TEXT NOT NULL,
    number        INTEGER NOT NULL,
    checkpoint_id TEXT NOT NULL,
    workflow      TEXT NOT NULL,
    status        TEXT NOT NULL,
    iteration     INTEGER NOT NULL,
    at            TEXT NOT NULL,
    frame         INTEGER NOT NULL,
    outputs       INTEGER NOT NULL,
    fleeting      INTEGER NOT NULL,
    body          TEXT NOT NULL,                      -- last, so that reading the others does not load its pages
    UNIQUE (run_id, number)
) STRICT;
CREATE INDEX commits_by_checkpoint ON commits (checkpoint_id);
CREATE INDEX commits_by_workflow ON commits (workflow, seq);
CREATE INDEX commits_with_frame ON commits (run_id, number) WHERE frame;
CREATE INDEX commits_with_outputs ON commits (run_id, number) WHERE outputs;

CREATE TABLE memory (
    run_id TEXT NOT NULL,
    place  INTEGER NOT NULL,
    key    TEXT NOT NULL,
    body   TEXT NOT NULL,
    PRIMARY KEY (run_id, place, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    run_id  TEXT PRIMARY KEY,
    host    TEXT NOT NULL,
    machine TEXT NOT NULL,
    pid     INTEGER NOT NULL,
    started TEXT NOT NULL,
    drive   TEXT NOT NULL,
    until   REAL NOT NULL,
    fence   INTEGER NOT NULL
) STRICT;

CREATE TABLE mail (
    seq      INTEGER PRIMARY KEY,                     -- the order of sending
    run_id   TEXT NOT NULL,
    key      TEXT NOT NULL,
    consumed INTEGER NOT NULL,                        -- a consumed signal stays: its key is never reused
    body     TEXT NOT NULL,
    UNIQUE (run_id, key)
) STRICT;
CREATE INDEX mail_to_read ON mail (run_id, seq) WHERE NOT consumed;

CREATE TABLE requests (
    seq           INTEGER PRIMARY KEY,                -- the order of asking
    run_id        TEXT NOT NULL,
    request_id    TEXT NOT NULL,
    workflow      TEXT NOT NULL,
    executor      TEXT NOT NULL,
    request_type  TEXT NOT NULL,
    response_type TEXT NOT NULL,
    schema        TEXT NOT NULL,
    at            TEXT NOT NULL,
    deadline      TEXT,
    UNIQUE (run_id, request_id)
) STRICT;
CREATE INDEX requests_by_age ON requests (at, run_id, seq);
CREATE INDEX requests_by_workflow ON requests (workflow, at, run_id, seq);
CREATE INDEX requests_by_deadline ON requests (deadline, run_id, seq) WHERE deadline IS NOT NULL;
CREATE INDEX requests_by_workflow_and_deadline ON requests (workflow, deadline, run_id, seq)
    WHERE deadline IS NOT NULL;

CREATE TABLE wakes (
    run_id   TEXT PRIMARY KEY,
    workflow TEXT NOT NULL,
    at       TEXT NOT NULL
) STRICT;
CREATE INDEX wakes_by_time ON wakes (at, run_id);

-- maintained by the triggers below, so that it always agrees with `commits`
CREATE TABLE runs (
    run_id        TEXT PRIMARY KEY,
    workflow      TEXT NOT NULL,
    status        TEXT NOT NULL,                      -- of the newest record, like the columns down to `at`
    number        INTEGER NOT NULL,
    checkpoint_id TEXT NOT NULL,
    iteration     INTEGER NOT NULL,
    at            TEXT NOT NULL,
    began         TEXT NOT NULL,                      -- `at` of the first record that was stored
    caller        TEXT,                               -- the run that called this one as a sub-workflow
    called        INTEGER NOT NULL DEFAULT 0,         -- 1 if there is a caller
    tags          TEXT NOT NULL DEFAULT '{}',         -- a JSON object
    swept         INTEGER NOT NULL DEFAULT 0,         -- below this number only records with outputs are left
    mixed         INTEGER NOT NULL DEFAULT 0          -- 1 if its numbers may differ from the order of commits
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_by_age ON runs (called, began, run_id);
CREATE INDEX runs_by_workflow ON runs (workflow, called, began, run_id);
CREATE INDEX runs_by_status ON runs (status, called, began, run_id);
CREATE INDEX runs_by_workflow_and_status ON runs (workflow, status, called, began, run_id);

CREATE TABLE tags (
    name   TEXT NOT NULL,
    value  TEXT NOT NULL,
    called INTEGER NOT NULL,                          -- as in `runs`
    began  TEXT NOT NULL,                             -- as in `runs`
    run_id TEXT NOT NULL,
    PRIMARY KEY (name, value, called, began, run_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX tags_by_run ON tags (run_id);

CREATE TRIGGER commit_added AFTER INSERT ON commits BEGIN
    INSERT INTO runs (run_id, workflow, status, number, checkpoint_id, iteration, at, began)
        VALUES (new.run_id, new.workflow, new.status, new.number, new.checkpoint_id, new.iteration, new.at, new.at)
        ON CONFLICT (run_id) DO UPDATE SET number = excluded.number, checkpoint_id = excluded.checkpoint_id,
            iteration = excluded.iteration, at = excluded.at
        WHERE excluded.number >= number;
    -- a separate statement, so that the indexes on the status are touched only if it changes
    UPDATE runs SET status = new.status
        WHERE run_id = new.run_id AND number = new.number AND status <> new.status;
END;
CREATE TRIGGER commit_changed AFTER UPDATE ON commits BEGIN
    UPDATE runs SET status = new.status, checkpoint_id = new.checkpoint_id, iteration = new.iteration, at = new.at
        WHERE run_id = new.run_id AND number = new.number;
END;
CREATE TRIGGER commit_removed AFTER DELETE ON commits
    WHEN old.number = (SELECT number FROM runs WHERE run_id = old.run_id)
BEGIN
    DELETE FROM runs WHERE run_id = old.run_id AND NOT EXISTS (SELECT 1 FROM commits WHERE run_id = old.run_id);
    UPDATE runs SET (number, status, checkpoint_id, iteration, at) = (
            SELECT number, status, checkpoint_id, iteration, at FROM commits
            WHERE run_id = old.run_id ORDER BY number DESC LIMIT 1)
        WHERE run_id = old.run_id;
END;
CREATE TRIGGER run_removed AFTER DELETE ON runs BEGIN
    DELETE FROM tags WHERE run_id = old.run_id;
END;
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
    version = _format(db, path)
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
    db.execute("PRAGMA wal_autocheckpoint = 1000")
    if version < FORMAT:
        db.execute("BEGIN IMMEDIATE")
        _bring_up_to_date(db, path)
        db.execute("COMMIT")


def _format(db: sqlite3.Connection, path: str) -> int:
    """Return the format of the file, 0 for an empty one. Raises if the file is not ours to use."""
    # One transaction, so that the three answers agree: another process may be creating the store.
    db.execute("BEGIN")
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    db.execute("COMMIT")
    if application == 0 and version == 0 and tables == 0:
        return 0
    if application != APPLICATION:
        raise StoreUnavailable(f"{path} is a database of another program and was not changed; choose another file")
    _refuse_newer(version, path)
    return version


def _bring_up_to_date(db: sqlite3.Connection, path: str) -> None:
    # Read again under the write lock: another process may have upgraded the file meanwhile.
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    _refuse_newer(version, path)
    for step in STEPS[version:]:
        # One by one, because `executescript` would commit the transaction first.
        for statement in _statements(step):
            db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {FORMAT}")


def _statements(step: str) -> Iterator[str]:
    statement = ""
    for line in step.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):  # not fooled by the semicolons inside a trigger
            yield statement
            statement = ""


def _refuse_newer(version: int, path: str) -> None:
    if version > FORMAT:
        raise NewerFormat(
            f"the store {path} was written by a newer Stepwell (format {version}, this one knows {FORMAT}) "
            f"and was not changed; upgrade Stepwell to use it"
        )
