"""Submits a run at most once for a key, within a window of time."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from datetime import timedelta

from stepwell.engine.durability.lease_renewal import hold_run
from stepwell.errors import DefinitionError, RunBusy
from stepwell.storage import clock
from stepwell.storage.archive import Archive
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.checkpoint_storage import CheckpointStorage

KEY_TAG = "deduplication_key"
_LOOK_EVERY = 0.02  # seconds, while another process submits with the same key


async def submit_once(
    storage: CheckpointStorage,
    archive: Archive,
    workflow: str,
    *,
    key: str,
    window: timedelta,
    submit: Callable[[], Awaitable[str]],
) -> str:
    """Return the run that was submitted with this key within the window; if there is none, submit one."""
    if not isinstance(storage, BuiltInStorage) or not archive.is_durable:
        raise DefinitionError("a deduplication key needs a built-in storage, which can look for runs by their tags")
    # The lease of a run that never exists is a lock that all processes share, and that a dead one loses.
    lock = "deduplication-" + hashlib.sha256("\0".join((workflow, key)).encode()).hexdigest()
    while True:
        try:
            async with hold_run(archive, lock):
                runs = await storage.list_runs(
                    workflow_name=workflow, tags={KEY_TAG: key}, since=clock.now() - window, limit=1
                )
                return runs[0].run_id if runs else await submit()
        except RunBusy as busy:
            if busy.run_id != lock:
                raise
        await asyncio.sleep(_LOOK_EVERY)
