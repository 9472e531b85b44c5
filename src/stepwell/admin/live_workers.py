"""The workers that would drive a run: alive, and with its workflow."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.worker_registry import WorkerInfo

_NAMED = 3  # workers that are called by their names


async def find_live_workers(storage: BuiltInStorage, workflow: str) -> tuple[WorkerInfo, ...]:
    """Return the workers of a storage that are alive and have a workflow, by name."""
    return tuple(worker for worker in await storage.list_workers() if worker.is_alive and workflow in worker.workflows)


def describe_workers(workers: Sequence[WorkerInfo]) -> str:
    """Say which of several workers will act: `worker one`, `worker one or two`, `one of 5 workers`."""
    names = [worker.name for worker in workers]
    if len(names) > _NAMED:
        return f"one of {len(names)} workers"
    return f"worker {' or '.join(filter(None, [', '.join(names[:-1]), names[-1]]))}"
