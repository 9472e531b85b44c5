"""Workers that say that they are there, and drive nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from stepwell.storage import clock
from stepwell.storage.lease import this_process
from stepwell.storage.worker_registry import WorkerProfile


async def announce(storage: Any, name: str, *workflows: str, slots: int = 5, runs: tuple[str, ...] = ()) -> None:
    """A worker says of itself what a real one says."""
    profile = WorkerProfile(this_process(name), "1", slots, dict.fromkeys(workflows, 1), runs, clock.stamp())
    assert await storage._registry.announce_worker(name, f"process of {name}", msgspec.json.encode(profile))
