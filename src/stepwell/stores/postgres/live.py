"""The live ring in two unlogged tables: a crash of the server empties them, and nothing is written twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepwell.storage.live_ring import KEPT, WATCHED_FOR, LiveRow
from stepwell.stores.postgres.connection import Connection
from stepwell.stores.postgres.database import PostgresDatabase
from stepwell.stores.postgres.schema import quote_schema

_CREATE = """
CREATE UNLOGGED TABLE IF NOT EXISTS {schema}.live_watched (run_id text PRIMARY KEY, until timestamptz NOT NULL);
CREATE UNLOGGED TABLE IF NOT EXISTS {schema}.live_events (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id text NOT NULL, body bytea NOT NULL
);
CREATE INDEX IF NOT EXISTS live_events_by_run ON {schema}.live_events (run_id, position);
"""
_WATCH = """
INSERT INTO {schema}.live_watched VALUES (%s, now() + make_interval(secs => %s))
ON CONFLICT (run_id) DO UPDATE SET until = excluded.until
"""
_WATCHED = "SELECT run_id FROM {schema}.live_watched WHERE until > now()"
_WRITE = "INSERT INTO {schema}.live_events (run_id, body) SELECT %s, unnest(%s::bytea[])"
_SHRINK = """
DELETE FROM {schema}.live_events WHERE position <= (SELECT max(position) FROM {schema}.live_events) - %s
"""
_READ = "SELECT position, body FROM {schema}.live_events WHERE run_id = %s AND position > %s ORDER BY position"
_LAST = "SELECT coalesce(max(position), 0) FROM {schema}.live_events"


class PostgresRing:
    """The live ring of a schema; its tables are created when somebody watches."""

    def __init__(self, db: PostgresDatabase, schema: str) -> None:
        self._db, self._schema = db, quote_schema(schema)
        self._exists = False

    async def watch(self, run_id: str) -> None:
        if not await self._is_there():
            await self._run(_CREATE)
            self._exists = True
        await self._run(_WATCH, run_id, WATCHED_FOR)

    async def watched(self) -> frozenset[str]:
        return (
            frozenset(str(run_id) for (run_id,) in await self._run(_WATCHED)) if await self._is_there() else frozenset()
        )

    async def write(self, run_id: str, bodies: Sequence[bytes]) -> None:
        await self._run(_WRITE, run_id, list(bodies))
        await self._run(_SHRINK, KEPT)

    async def read(self, run_id: str, after: int) -> list[LiveRow]:
        return [LiveRow(position, bytes(body)) for position, body in await self._run(_READ, run_id, after)]

    async def last(self) -> int:
        return int((await self._run(_LAST))[0][0])

    async def _is_there(self) -> bool:
        if not self._exists:
            query = "SELECT to_regclass(%s) IS NOT NULL"
            ((self._exists,),) = await self._run(query, f"{self._schema}.live_events")
        return self._exists

    async def _run(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        statement = query.replace("{schema}", self._schema).encode()

        def run(db: Connection, again: bool) -> list[tuple[Any, ...]]:
            cursor = db.execute(statement, values or None)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

        return await self._db.use(run)
