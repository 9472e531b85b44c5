"""What the tests of operating share: every built-in storage, and workflows to make runs with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    PostgresCheckpointStorage,
    SQLiteCheckpointStorage,
)
from tests.support.postgres_server import dsn, fresh_schema


@pytest.fixture(params=["memory", "sqlite", "file", "postgres"])
def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Each of the built-in storages, new and empty; called with its options."""
    if request.param == "postgres":
        with fresh_schema() as schema:
            yield lambda **options: PostgresCheckpointStorage(dsn(), schema=schema, **options)
        return
    yield {
        "memory": lambda **options: InMemoryCheckpointStorage(**options),
        "sqlite": lambda **options: SQLiteCheckpointStorage(tmp_path / "runs.db", **options),
        "file": lambda **options: FileCheckpointStorage(tmp_path / "runs", **options),
    }[request.param]
