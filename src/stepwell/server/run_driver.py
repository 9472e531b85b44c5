"""Says who moves a run: this server does not."""

from __future__ import annotations

import msgspec

from stepwell.admin.live_workers import describe_workers, find_live_workers
from stepwell.admin.lookup import NotFound
from stepwell.storage.built_in_storage import BuiltInStorage


class RunDriver(msgspec.Struct, frozen=True):
    """Whether anybody moves a run: the process that drives it, or workers that would."""

    is_driven: bool
    by: list[str]  # who
    sentence: str
    command: list[str] | None  # what to run if nobody does


async def find_driver(storage: BuiltInStorage, run_id: str) -> RunDriver:
    """Return who drives a run, or would. Raises NotFound if it was deleted."""
    run = await storage.get_run(run_id)
    if run is None:
        raise NotFound(f"run {run_id!r} was deleted meanwhile")
    if run.standing == "running" and run.owner is not None:
        return RunDriver(True, [run.owner], f"{run.owner} drives it", None)
    if workers := await find_live_workers(storage, run.workflow_name):
        names = [worker.name for worker in workers]
        return RunDriver(True, names, f"it is left to {describe_workers(workers)}", None)
    return RunDriver(
        False,
        [],
        f"nobody drives the runs of {run.workflow_name!r}: start a worker with its code",
        ["stepwell", "worker", "MODULE:WORKFLOW"],
    )
