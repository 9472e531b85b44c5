"""The one place that picks a store when none was named."""

from __future__ import annotations

import os
from pathlib import Path

from .durable.contract import CheckpointStorage
from .stores.file import FileCheckpointStorage
from .stores.memory import InMemoryCheckpointStorage
from .stores.sqlite import SQLiteCheckpointStorage
from .workflow.storages import BY_NAME, OF_KIND


def default_path() -> Path:
    """`$HOLDFAST_HOME/runs.db`; without the variable, in `.holdfast` of the working directory."""
    return Path(os.environ.get("HOLDFAST_HOME", ".holdfast")).resolve() / "runs.db"


_OPEN: dict[Path, SQLiteCheckpointStorage] = {}


def default_storage() -> CheckpointStorage:
    """What `checkpoint_storage="default"` means: one SQLite file, one storage object for the whole process."""
    path = default_path()
    if path not in _OPEN:
        _OPEN[path] = SQLiteCheckpointStorage(path)
    return _OPEN[path]


BY_NAME["default"] = default_storage
BY_NAME["memory"] = InMemoryCheckpointStorage
OF_KIND["memory"] = InMemoryCheckpointStorage
OF_KIND["files"] = FileCheckpointStorage
