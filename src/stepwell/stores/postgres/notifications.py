"""Notifications between the processes that use one schema: "look at the runs". They carry nothing else.

A NOTIFY takes a lock of the whole server when its transaction commits, so inside the transaction of
a commit it would cost most of the throughput. It is sent on its own, after the commit, and not
synced to disk: one that gets lost costs a worker the second until it looks anyway. The first is
sent at once; what happens within a few milliseconds after it shares the next.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress

import psycopg

from stepwell.errors import DurabilityError, StoreUnavailable
from stepwell.stores.postgres.database import PostgresDatabase
from stepwell.stores.postgres.errors import first_line

_TOGETHER = 0.005  # seconds in which announcements share one notification


def channel_of(schema: str) -> str:
    """Return the name of the channel of a schema; a name of PostgreSQL cannot be as long as any schema's."""
    return f"stepwell_{hashlib.sha256(schema.encode()).hexdigest()[:16]}"


class Notifier:
    """Notifies all processes that listen, soon and outside of every transaction."""

    def __init__(self, db: PostgresDatabase, channel: str) -> None:
        self._db = db
        # One statement, and so one transaction, in which the setting holds.
        self._statement = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify('{channel}', '')".encode()
        self._is_due = False
        self._task: asyncio.Task[None] | None = None

    def announce(self) -> None:
        """Notify soon; returns at once."""
        self._is_due = True
        if self._task is None or self._task.done() or self._task.get_loop().is_closed():
            self._task = asyncio.get_running_loop().create_task(self._notify())

    async def flush(self) -> None:
        """Return when a notification that is due was sent."""
        if self._task is not None and self._task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([self._task])

    async def _notify(self) -> None:
        while self._is_due:
            self._is_due = False
            with suppress(DurabilityError):  # it is a hint, and the store reports its own outages
                await self._db.use(lambda db, again: db.execute(self._statement))
            await asyncio.sleep(_TOGETHER)


async def listen(dsn: str, channel: str, wake: Callable[[], None]) -> None:
    """Call `wake` for each notification, until cancelled. Raises StoreUnavailable if the server goes away."""
    try:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await connection.execute(f"LISTEN {channel}".encode())
            wake()  # what was announced before we listened
            async for _ in connection.notifies():
                wake()
    except psycopg.Error as error:
        raise StoreUnavailable(f"notifications of the PostgreSQL server cannot be read: {first_line(error)}") from error
