"""The golden stores, as copies that may be changed."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from stepwell import FileCheckpointStorage, PostgresCheckpointStorage, SQLiteCheckpointStorage
from tests.support.postgres_dump import load
from tests.support.postgres_server import dsn, fresh_schema

GOLDEN = Path(__file__).parents[1] / "golden"
FORMATS = sorted(path for path in GOLDEN.glob("v*") if path.is_dir())

KINDS = {"runs.db": "sqlite", "runs": "file", "runs.sql": "postgres"}
STORES = [(format.name, kind) for format in FORMATS for name, kind in KINDS.items() if (format / name).exists()]


@asynccontextmanager
async def copy_of(name: str, kind: str, tmp_path: Path) -> AsyncIterator[Any]:
    """A copy of a golden store: reading must not change what is kept."""
    format = GOLDEN / name
    shutil.copytree(format, tmp_path / "copy")
    if kind == "sqlite":
        yield SQLiteCheckpointStorage(tmp_path / "copy" / "runs.db")
    elif kind == "file":
        yield FileCheckpointStorage(tmp_path / "copy" / "runs")
    else:
        with fresh_schema() as schema:
            load(format / "runs.sql", schema)
            async with PostgresCheckpointStorage(dsn(), schema=schema) as storage:
                yield storage
