"""The registry of workers in a SQLite file.

The functions have the names and keep the promises of the methods of `WorkerRegistry`, inside the
transaction that is open on their connection.
"""

from __future__ import annotations

import sqlite3

from stepwell.storage import clock
from stepwell.storage.worker_registry import ALIVE_FOR, KEPT_FOR, WorkerRow
from stepwell.stores.sqlite.records import BODY

ANNOUNCE = """
INSERT INTO workers (name, process, seen, body) VALUES (:name, :process, :now, CAST(:body AS TEXT))
ON CONFLICT DO UPDATE SET process = :process, seen = :now, body = excluded.body
    WHERE process = :process OR seen < :now - :alive
"""


def announce_worker(db: sqlite3.Connection, name: str, process: str, body: bytes) -> bool:
    now = clock.seconds()
    db.execute("DELETE FROM workers WHERE seen < ?", (now - KEPT_FOR,))
    values = {"name": name, "process": process, "now": now, "body": body, "alive": ALIVE_FOR}
    return db.execute(ANNOUNCE, values).rowcount == 1


def withdraw_worker(db: sqlite3.Connection, name: str, process: str) -> None:
    db.execute("DELETE FROM workers WHERE name = ? AND process = ?", (name, process))


def workers(db: sqlite3.Connection) -> list[WorkerRow]:
    now = clock.seconds()
    rows = db.execute(f"SELECT name, process, seen, {BODY} FROM workers ORDER BY name")
    return [WorkerRow(name, process, now - seen, body) for name, process, seen, body in rows]
