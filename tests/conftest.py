"""What several rooms of tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import FileCheckpointStorage, InMemoryCheckpointStorage, SQLiteCheckpointStorage


@pytest.fixture(params=["memory", "sqlite", "file"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each of the built-in storages, new and empty."""
    return {
        "memory": lambda: InMemoryCheckpointStorage(),
        "sqlite": lambda: SQLiteCheckpointStorage(tmp_path / "runs.db"),
        "file": lambda: FileCheckpointStorage(tmp_path / "runs"),
    }[request.param]()
