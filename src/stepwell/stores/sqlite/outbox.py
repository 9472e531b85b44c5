"""Webhooks and their messages in a SQLite file.

The functions keep the promises of the methods of `Outbox`, inside the transaction that is open on
their connection.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from stepwell.storage import clock
from stepwell.storage.checked_reads import decode_stored
from stepwell.storage.outbox import Attempt, OutboxRow, WebhookRow, find_messages
from stepwell.storage.stored_values import CommitEffects, Entry, LogEffects, RequestEntry

REQUEST = "run_id, request_id, workflow, executor, request_type, response_type, schema, at, deadline, body"
_MESSAGE = "webhook, run_id, position, number, kind, workflow, at, request, attempts, due, error"
SELECT_REQUEST = f"SELECT {REQUEST} FROM requests WHERE run_id = ? AND request_id = ?"
INSERT_MESSAGE = """
INSERT INTO outbox (webhook, run_id, number, kind, workflow, at, request, attempts, due)
VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?)
"""
SELECT_MESSAGES = f"SELECT {_MESSAGE} FROM outbox WHERE webhook = ? ORDER BY position LIMIT ?"
SELECT_DUE = f"""
SELECT {_MESSAGE} FROM outbox AS m WHERE webhook = ? AND due <= ? AND NOT EXISTS (
    SELECT 1 FROM outbox AS earlier WHERE earlier.run_id = m.run_id AND earlier.webhook = m.webhook
        AND earlier.position < m.position AND earlier.due IS NOT NULL)
ORDER BY due, position LIMIT ?
"""
# A position is given to another message once it is free: the rest tells the two apart.
_THIS = "position = ? AND webhook = ? AND run_id = ? AND number = ? AND at = ?"

_decode_kinds = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_request = msgspec.json.Decoder(RequestEntry).decode


def enqueue(db: sqlite3.Connection, entry: Entry, before: str | None, effects: CommitEffects | LogEffects) -> None:
    """Write the messages of a commit, before its requests are changed. Without webhooks, one look."""
    wanted = webhooks(db)
    if not wanted:
        return
    (caller,) = db.execute("SELECT caller FROM runs WHERE run_id = ?", (entry.run_id,)).fetchone()
    expired = [_find_request(db, entry.run_id, request_id) for request_id in effects.expired]
    messages = find_messages(
        wanted,
        before=before,
        entry=entry,
        expired=filter(None, expired),
        asked=[request for request in effects.asked if not _is_open(db, request)],
        ends=caller is None,
    )
    for row in messages:
        request = None if row.request is None else msgspec.json.encode(row.request).decode()
        columns = (row.webhook, row.run_id, row.number, row.kind, row.workflow, row.at, request, row.due)
        db.execute(INSERT_MESSAGE, columns)


def next_entry(run_id: str, workflow: str, latest: int) -> Entry:
    """Return the entry of the commit that is still to come, as far as messages need it."""
    return Entry(
        run_id,
        latest + 1,
        checkpoint_id="",
        workflow=workflow,
        status="",
        iteration=0,
        at=clock.stamp(),
        is_snapshot=False,
        outputs=False,
    )


def _find_request(db: sqlite3.Connection, run_id: str, request_id: str) -> RequestEntry | None:
    row = db.execute(SELECT_REQUEST, (run_id, request_id)).fetchone()
    return None if row is None else RequestEntry(*row)


def _is_open(db: sqlite3.Connection, request: RequestEntry) -> bool:
    """Return whether a request is open already: the superstep log has asked it before the commit does."""
    other = _find_request(db, request.run_id, request.request_id)
    return other is not None and other.at == request.at


def put_webhook(db: sqlite3.Connection, webhook: WebhookRow) -> None:
    kinds = msgspec.json.encode(webhook.kinds).decode()
    columns = (webhook.id, webhook.workflow, kinds, webhook.is_stopped, webhook.body)
    db.execute("INSERT OR REPLACE INTO webhooks VALUES (?, ?, ?, ?, CAST(? AS TEXT))", columns)


def remove_webhook(db: sqlite3.Connection, webhook_id: str) -> bool:
    db.execute("DELETE FROM outbox WHERE webhook = ?", (webhook_id,))
    return db.execute("DELETE FROM webhooks WHERE id = ?", (webhook_id,)).rowcount == 1


def webhooks(db: sqlite3.Connection) -> list[WebhookRow]:
    rows = db.execute("SELECT id, workflow, kinds, stopped, CAST(body AS BLOB) FROM webhooks ORDER BY id")
    return [
        WebhookRow(id, workflow, decode_stored(_decode_kinds, kinds.encode(), f"webhook {id!r}"), stopped != 0, body)
        for id, workflow, kinds, stopped, body in rows
    ]


def messages(db: sqlite3.Connection, webhook_id: str, due_by: str | None, limit: int | None) -> list[OutboxRow]:
    count = -1 if limit is None else limit
    if due_by is None:
        return [_message(row) for row in db.execute(SELECT_MESSAGES, (webhook_id, count))]
    return [_message(row) for row in db.execute(SELECT_DUE, (webhook_id, due_by, count))]


def settle(db: sqlite3.Connection, message: OutboxRow, attempt: Attempt | None) -> None:
    this = (message.position, message.webhook, message.run_id, message.number, message.at)
    if attempt is None:
        db.execute(f"DELETE FROM outbox WHERE {_THIS}", this)
    else:
        values = (attempt.attempts, attempt.due, attempt.error, *this)
        db.execute(f"UPDATE outbox SET attempts = ?, due = ?, error = ? WHERE {_THIS}", values)


def _message(row: tuple[Any, ...]) -> OutboxRow:
    what, request = f"a message of run {row[1]!r} to webhook {row[0]!r}", row[7]
    read = None if request is None else decode_stored(_decode_request, request.encode(), what)
    return OutboxRow(*(*row[:7], read, *row[8:]))
