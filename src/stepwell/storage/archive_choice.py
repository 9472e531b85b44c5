"""The archive for runs on a storage: on its store, or on the six methods alone."""

from __future__ import annotations

from stepwell.codec.codec import Codec
from stepwell.storage.archive import Archive
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.checkpoint_storage import CONTRACT, CheckpointStorage, ContractArchive, check_contract
from stepwell.storage.store_archive import StoreArchive


def open_archive(storage: CheckpointStorage, workflow: str, codec: Codec, *, needed: int | None = None) -> Archive:
    """Return the best archive that a storage allows.

    `needed` is the number of a commit that another run refers to: it and all later ones stay.
    """
    check_contract(storage)
    if isinstance(storage, BuiltInStorage) and not _overrides_contract(storage):
        return StoreArchive(storage._store, codec, storage.retention, lease=storage._lease, needed=needed)
    return ContractArchive(storage, workflow, codec)


def _overrides_contract(storage: BuiltInStorage) -> bool:
    return any(
        name in vars(storage) or getattr(type(storage), name) is not getattr(BuiltInStorage, name) for name in CONTRACT
    )
