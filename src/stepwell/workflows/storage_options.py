"""Storages as callers pass them: an object, or the name of one.

This package may not import a concrete store; `stepwell.defaults` provides the factories.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

# `import stepwell` loads this module, so it imports nothing it does not need.
if TYPE_CHECKING:
    from stepwell.storage.checkpoint_storage import CheckpointStorage

StorageLike: TypeAlias = "CheckpointStorage | str"

# Filled by `stepwell.defaults` when `stepwell` is imported: it is above this package and may name stores.
# "files" takes a directory; the others need no argument.
STORAGE_FACTORIES: dict[str, Callable[..., CheckpointStorage]] = {}

# Those a caller may pass instead of an object.
_NAMES = ("default", "memory")


def storage_of(storage: StorageLike | None) -> CheckpointStorage | None:
    """Return the storage that an argument means. Raises DefinitionError if it is not one."""
    if storage is None:
        return None
    from stepwell.errors import DefinitionError  # lazy: `import stepwell` does not need it
    from stepwell.storage.checkpoint_storage import check_contract  # lazy: `import stepwell` does not need it

    if isinstance(storage, str):
        if storage not in _NAMES:
            raise DefinitionError(
                f"there is no storage called {storage!r}; pass a storage object, or one of {list(_NAMES)}"
            )
        return STORAGE_FACTORIES[storage]()
    check_contract(storage)
    return storage
