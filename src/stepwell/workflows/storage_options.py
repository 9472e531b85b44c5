"""Storages as callers pass them: an object, the name of one, or a folder.

This package may not import a concrete store; `stepwell.defaults` provides the factories.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

# `import stepwell` loads this module, so it imports nothing it does not need.
if TYPE_CHECKING:
    from stepwell.storage.checkpoint_storage import CheckpointStorage

StorageLike: TypeAlias = "CheckpointStorage | str | os.PathLike[str]"

# Filled by `stepwell.defaults` when `stepwell` is imported: it is above this package and may name stores.
# "files" takes a directory, "folder" too, and always returns the same object for it; the others need no
# argument.
STORAGE_FACTORIES: dict[str, Callable[..., CheckpointStorage]] = {}

# Those a caller may pass instead of an object.
_NAMES = ("default", "memory")


def is_folder(storage: object) -> bool:
    """Return whether an argument means a folder: a path, or a string with a separator, or of an existing folder."""
    if isinstance(storage, os.PathLike):
        return True
    # A single word may be a misspelled name of a storage, and must not become a new folder.
    has_separator = isinstance(storage, str) and any(sep in storage for sep in (os.sep, os.altsep) if sep)
    return isinstance(storage, str) and storage not in _NAMES and (has_separator or os.path.isdir(storage))


def storage_of(storage: StorageLike | None) -> CheckpointStorage | None:
    """Return the storage that an argument means. Raises DefinitionError if it is not one.

    A folder means a file storage in it.
    """
    if storage is None:
        return None
    from stepwell.errors import DefinitionError  # lazy: `import stepwell` does not need it
    from stepwell.storage.checkpoint_storage import check_contract  # lazy: `import stepwell` does not need it

    if isinstance(storage, str | os.PathLike):
        if is_folder(storage):
            return STORAGE_FACTORIES["folder"](os.path.abspath(storage))
        if storage not in _NAMES:
            raise DefinitionError(
                f"there is no storage called {storage!r}; pass a storage object, one of {list(_NAMES)}, or a folder, "
                f"such as './{storage}'"
            )
        return STORAGE_FACTORIES[storage]()
    check_contract(storage)
    return storage
