"""A store inside a transaction of the caller's: what it writes exists if and only if the caller commits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from stepwell.errors import StoreUnavailable
from stepwell.storage.stored_values import LeaseReport
from stepwell.stores.postgres.connection import Call
from stepwell.stores.postgres.errors import first_line
from stepwell.stores.postgres.store import PostgresStore
from stepwell.stores.postgres.values import Row, encode

CallerConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


class JoinedStore(PostgresStore):
    """A store on a connection of the caller's, to the database of `store`, whose schema must exist."""

    def __init__(self, store: PostgresStore, connection: CallerConnection) -> None:
        if not isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
            raise TypeError(f"connection must be one of psycopg, not a {type(connection).__name__}")
        if connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
            raise ValueError(
                "connection is in autocommit mode and not in a transaction; use `with connection.transaction():`"
            )
        self._db: Any = _CallerDatabase(connection)
        self._schema, self._calls = store._schema, {}
        self._channel, self._notifier = store._channel, store._notifier

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        """Do nothing: the transaction is shorter than a lease, and a thread must not use its connection."""
        return LeaseReport()

    async def close(self) -> None:
        """Do nothing: the connection is the caller's."""


class _CallerDatabase:
    """Sends calls and queries on the connection of the caller."""

    def __init__(self, connection: CallerConnection) -> None:
        self._connection = connection

    async def write(self, call: Call, **_: object) -> list[Row]:
        return await self._execute(call)

    async def read(self, query: str, *values: object) -> list[Row]:
        return await self._execute(Call(query.encode(), encode(*values)))

    async def _execute(self, call: Call) -> list[Row]:
        # As texts of no type: then the server gives them the types of the parameters.
        values = [None if value is None else value.decode() for value in call.values]
        try:
            if isinstance(self._connection, psycopg.AsyncConnection):
                cursor = psycopg.AsyncRawCursor(self._connection, row_factory=tuple_row)
                await cursor.execute(call.query, values)
                return await cursor.fetchall()
            return await asyncio.to_thread(self._execute_waiting, self._connection, call.query, values)
        except psycopg.Error as error:
            raise StoreUnavailable(f"nothing could be stored in your transaction: {first_line(error)}") from error

    @staticmethod
    def _execute_waiting(connection: psycopg.Connection[Any], query: bytes, values: list[str | None]) -> list[Row]:
        return psycopg.RawCursor(connection, row_factory=tuple_row).execute(query, values).fetchall()
