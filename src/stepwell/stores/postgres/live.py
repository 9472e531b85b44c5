"""The live ring in two unlogged tables: a crash of the server empties them, and nothing is written twice.

Each write notifies in its own transaction, which holds no commit of a run and is not synced to disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from stepwell.storage.live_ring import KEPT, WATCHED_FOR, LiveRow, Occasion
from stepwell.stores.postgres.connection import Connection
from stepwell.stores.postgres.database import PostgresDatabase
from stepwell.stores.postgres.notifications import channel_of, listen
from stepwell.stores.postgres.schema import quote_schema
from stepwell.stores.postgres.values import escape, unescape

# Two processes that create a table at once would fail, even with IF NOT EXISTS.
_CREATE = """
DO $stepwell$ BEGIN
PERFORM pg_advisory_xact_lock(hashtextextended('stepwell live ' || {name}, 0));
CREATE UNLOGGED TABLE IF NOT EXISTS {schema}.live_watched (run_id text PRIMARY KEY, until timestamptz NOT NULL);
CREATE UNLOGGED TABLE IF NOT EXISTS {schema}.live_events (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id text NOT NULL, body bytea NOT NULL
);
CREATE INDEX IF NOT EXISTS live_events_by_run ON {schema}.live_events (run_id, position);
END $stepwell$
"""
_EXISTS = "SELECT to_regclass($1) IS NOT NULL"
_NOTIFY = "set_config('synchronous_commit', 'off', true), pg_notify('{channel}', '')"
# Rows are locked in the order of their ids, or not at all: no two processes wait for each other.
_WATCH = f"""
WITH watched AS (
    INSERT INTO {{schema}}.live_watched
    SELECT run_id, now() + make_interval(secs => $2) FROM unnest($1::text[]) AS run_id ORDER BY run_id
    ON CONFLICT (run_id) DO UPDATE SET until = excluded.until
), forgotten AS (
    DELETE FROM {{schema}}.live_watched WHERE run_id IN (
        SELECT run_id FROM {{schema}}.live_watched
        WHERE until < now() AND run_id <> ALL ($1::text[]) FOR UPDATE SKIP LOCKED
    )
)
SELECT coalesce((SELECT max(position) FROM {{schema}}.live_events), 0), {_NOTIFY}
"""
_WATCHED = "SELECT run_id FROM {schema}.live_watched WHERE until > now()"
_WRITE = f"""
WITH written AS (
    INSERT INTO {{schema}}.live_events (run_id, body)
    SELECT run_id, body FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS event (run_id, body, place)
    ORDER BY place
    RETURNING position
), dropped AS (
    DELETE FROM {{schema}}.live_events WHERE position IN (
        SELECT position FROM {{schema}}.live_events
        WHERE position <= (SELECT max(position) FROM {{schema}}.live_events) + cardinality($1::text[]) - $3
        FOR UPDATE SKIP LOCKED
    )
)
SELECT count(*), {_NOTIFY} FROM written
"""
_READ = """
SELECT event.run_id, event.position, event.body
FROM unnest($1::text[], $2::bigint[]) AS seen (run_id, position)
JOIN {schema}.live_events AS event ON event.run_id = seen.run_id AND event.position > seen.position
ORDER BY event.position
"""


class PostgresRing:
    """The live ring of a schema; its tables are created when somebody watches."""

    notifies = True

    def __init__(self, db: PostgresDatabase, schema: str) -> None:
        self._db, self._name, self._schema = db, schema, quote_schema(schema)
        self._exists = False

    async def watch(self, run_ids: Collection[str]) -> int:
        if not await self._is_there():
            await self._run(_CREATE)
            self._exists = True
        ids = sorted(escape(run_id) for run_id in run_ids)
        return int((await self._run(_WATCH, ids, WATCHED_FOR, occasion="watched"))[0][0])

    async def watched(self) -> frozenset[str]:
        if not await self._is_there():
            return frozenset()
        return frozenset(unescape(run_id) for (run_id,) in await self._run(_WATCHED))

    async def write(self, events: Sequence[tuple[str, bytes]]) -> None:
        ids, bodies = [escape(run_id) for run_id, _ in events], [body for _, body in events]
        await self._run(_WRITE, ids, bodies, KEPT, occasion="written")

    async def read(self, after: Mapping[str, int]) -> list[LiveRow]:
        rows = await self._run(_READ, [escape(run_id) for run_id in after], list(after.values()))
        return [LiveRow(unescape(run_id), position, bytes(body)) for run_id, position, body in rows]

    async def listen(self, occasion: Occasion, wake: Callable[[], None]) -> None:
        await listen(self._db.dsn, self._channel(occasion), wake)

    def _channel(self, occasion: Occasion) -> str:
        return f"{channel_of(self._name)}_{occasion}"

    async def _is_there(self) -> bool:
        if not self._exists:
            ((self._exists,),) = await self._run(_EXISTS, f"{self._schema}.live_events")
        return self._exists

    async def _run(self, query: str, *values: object, occasion: Occasion | None = None) -> list[tuple[Any, ...]]:
        if occasion is not None:
            query = query.replace("{channel}", self._channel(occasion))
        name = sql.quote(self._name)
        statement = query.replace("{schema}", self._schema).replace("{name}", name).encode()

        def run(db: Connection, again: bool) -> list[tuple[Any, ...]]:
            # A raw cursor: a schema may contain a %, which others read as a placeholder.
            cursor = psycopg.RawCursor(db).execute(statement, values or None)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

        return await self._db.use(run)
