"""The one place that picks a store when none was named. Each is loaded when it is made."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from stepwell.workflows.storage_options import BY_NAME, OF_KIND

if TYPE_CHECKING:
    from pathlib import Path

    from stepwell.storage.checkpoint_storage import CheckpointStorage


def default_path() -> Path:
    """`$STEPWELL_HOME/runs.db`; without the variable, in `.stepwell` of the working directory."""
    from pathlib import Path

    return Path(os.environ.get("STEPWELL_HOME", ".stepwell")).resolve() / "runs.db"


_OPEN: dict[Path, CheckpointStorage] = {}


def default_storage() -> CheckpointStorage:
    """What `checkpoint_storage="default"` means: one SQLite file, one storage object for the whole process."""
    from stepwell.stores.sqlite.store import SQLiteCheckpointStorage

    path = default_path()
    if path not in _OPEN:
        _OPEN[path] = SQLiteCheckpointStorage(path)
    return _OPEN[path]


def _memory(**options: Any) -> CheckpointStorage:
    from stepwell.stores.memory.store import InMemoryCheckpointStorage

    return InMemoryCheckpointStorage(**options)


def _files(folder: Path, **options: Any) -> CheckpointStorage:
    from stepwell.stores.files.store import FileCheckpointStorage

    return FileCheckpointStorage(folder, **options)


BY_NAME["default"] = default_storage
BY_NAME["memory"] = _memory
OF_KIND["memory"] = _memory
OF_KIND["files"] = _files
