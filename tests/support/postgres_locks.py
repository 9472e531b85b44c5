"""Runs that somebody else has locked, and statements that wait for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import psycopg

from tests.support.postgres_server import ask, dsn


@contextlib.contextmanager
def nobody_moves(run_id: str, schema: str) -> Iterator[None]:
    """Somebody else has locked the row of a run."""
    with psycopg.connect(dsn()) as db:
        found = db.execute(f"SELECT FROM {schema}.runs WHERE run_id = %s FOR UPDATE".encode(), [run_id]).fetchall()
        assert len(found) == 1
        yield


async def come_to_wait(schema: str, count: int = 1) -> None:
    """Until so many statements of the store wait for a lock."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
    while ask(query, f"%{schema}%") < [(count,)]:  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0.005)
