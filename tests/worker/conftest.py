"""Storages for workers, and a worker that ends with its test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stepwell import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    PostgresCheckpointStorage,
    SQLiteCheckpointStorage,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from tests.support.postgres_server import dsn, fresh_schema


@pytest.fixture(params=["memory", "sqlite", "file", "postgres"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BuiltInStorage]:
    """Each of the built-in storages, new and empty."""
    if request.param == "postgres":
        with fresh_schema() as schema:
            async with PostgresCheckpointStorage(dsn(), schema=schema) as on_server:
                yield on_server
        return
    made: dict[str, Callable[[], BuiltInStorage]] = {
        "memory": lambda: InMemoryCheckpointStorage(),
        "sqlite": lambda: SQLiteCheckpointStorage(tmp_path / "runs.db"),
        "file": lambda: FileCheckpointStorage(tmp_path / "runs"),
    }
    yield made[request.param]()
