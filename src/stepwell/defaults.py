"""The one place that picks a store when the program names none.

Stores are imported when one is created: a program pays only for the back end it uses.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from stepwell.workflows.storage_options import STORAGE_FACTORIES

if TYPE_CHECKING:
    from pathlib import Path

    from stepwell.storage.checkpoint_storage import CheckpointStorage


def default_path() -> Path:
    """Return `$STEPWELL_HOME/runs.db`; without the variable, `.stepwell/runs.db` in the working directory."""
    from pathlib import Path  # lazy: most programs name their storage and never need it

    return Path(os.environ.get("STEPWELL_HOME", ".stepwell")).resolve() / "runs.db"


def default_storage() -> CheckpointStorage:
    """Return what `checkpoint_storage="default"` means: one SQLite file, one storage object per process and path."""
    return _open_sqlite(default_path())


# One object per file: two of them in one process would each hold connections and locks of their own.
@cache
def _open_sqlite(path: Path) -> CheckpointStorage:
    from stepwell.stores.sqlite.store import SQLiteCheckpointStorage  # lazy: a program loads only the store it uses

    return SQLiteCheckpointStorage(path)


def _memory(**options: Any) -> CheckpointStorage:
    from stepwell.stores.memory.store import InMemoryCheckpointStorage  # lazy: a program loads only the store it uses

    return InMemoryCheckpointStorage(**options)


@cache
def _folder(path: str) -> CheckpointStorage:
    return _files(path)


def _files(folder: str | Path, **options: Any) -> CheckpointStorage:
    from stepwell.stores.files.store import FileCheckpointStorage  # lazy: a program loads only the store it uses

    return FileCheckpointStorage(folder, **options)


# `workflows` may not import a concrete store, so the factories are registered with it when this module is imported.
STORAGE_FACTORIES.update(default=default_storage, memory=_memory, files=_files, folder=_folder)
