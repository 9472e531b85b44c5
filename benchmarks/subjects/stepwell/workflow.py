"""Where runs are stored, and the workflow that most cases use."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from job import Job, Keeps

import stepwell
from stepwell import Workflow, WorkflowBuilder

WARM = 10
KEEPS: Mapping[str, Keeps] = {"none": "none", "memory": "mem", "files": "sync", "sqlite": "sync", "postgres": "sync"}
DURABLE = ("files", "sqlite", "postgres")


def storage_maker(place: str, job: Job) -> Callable[[], Any]:
    """Import the storage, as a program does at its top, and return what creates it."""
    match place:
        case "memory":
            return stepwell.InMemoryCheckpointStorage
        case "files":
            return partial(stepwell.FileCheckpointStorage, job.folder / "runs")
        case "sqlite":
            return partial(stepwell.SQLiteCheckpointStorage, job.folder / "runs.db")
        case "postgres":
            return partial(stepwell.PostgresCheckpointStorage, str(job.dsn))
    return lambda: None


def storage(place: str, job: Job) -> Any:
    return storage_maker(place, job)()


async def close(kept: Any) -> None:
    if kept is not None:
        await kept.close()


def looping(start: Any, kept: Any, *, limit: int) -> Workflow:
    """Build a workflow of one executor that sends to itself."""
    builder = WorkflowBuilder(limit + WARM, name="loop", start_executor=start, checkpoint_storage=kept)
    return builder.add_edge(start, start).build()
