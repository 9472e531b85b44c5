"""Storages as they are given: an object, or the name of one that another floor provides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # `import stepwell` loads this module, and nothing that it need not
    from stepwell.storage.checkpoint_storage import CheckpointStorage

StorageLike: TypeAlias = "CheckpointStorage | str"
BY_NAME: dict[str, Callable[[], CheckpointStorage]] = {}
"""What a name stands for. `defaults` fills it: this floor knows no concrete store."""

OF_KIND: dict[str, Callable[..., CheckpointStorage]] = {}
"""Makes a storage of a kind ("memory", "files") with options of its own. `defaults` fills it, too."""


def storage_of(storage: StorageLike | None) -> CheckpointStorage | None:
    """The storage that is meant. Raises DefinitionError if there is none such."""
    if storage is None:
        return None
    from stepwell.errors import DefinitionError
    from stepwell.storage.checkpoint_storage import check_contract

    if isinstance(storage, str):
        if storage not in BY_NAME:
            raise DefinitionError(
                f"no storage is called {storage!r}; give a storage object, or one of {sorted(BY_NAME)}"
            )
        return BY_NAME[storage]()
    check_contract(storage)
    return storage
