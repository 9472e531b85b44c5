"""Says who moves a run: this server does not."""

from __future__ import annotations

import time

import msgspec

from stepwell.admin.live_workers import describe_workers, find_live_workers
from stepwell.admin.lookup import NotFound
from stepwell.storage.built_in_storage import BuiltInStorage

_KNOWN_FOR = 1.0  # seconds for which it is believed that workers are there


class RunDriver(msgspec.Struct, frozen=True):
    """Whether anybody moves a run: the process that drives it, or workers that would."""

    is_driven: bool
    by: list[str]  # who
    sentence: str
    command: list[str] | None  # what to run if nobody does


class RunDrivers:
    """Finds who drives runs of a storage."""

    def __init__(self, storage: BuiltInStorage) -> None:
        self._storage = storage
        self._drivers: dict[str, tuple[RunDriver, float]] = {}  # workers that were there, by workflow, and when

    async def find(self, run_id: str) -> RunDriver:
        """Return who drives a run, or would. Raises NotFound if it was deleted."""
        run = await self._storage.get_run(run_id)
        if run is None:
            raise NotFound(f"run {run_id!r} was deleted meanwhile")
        if run.standing == "running" and run.owner is not None:
            return RunDriver(True, [run.owner], f"{run.owner} drives it", None)
        return await self.find_workers(run.workflow_name)

    async def find_workers(self, workflow: str) -> RunDriver:
        """Return who would drive a run of a workflow that nobody drives now."""
        driver, read_at = self._drivers.get(workflow, (None, 0.0))
        # Workers that have left are missed a moment later; one that comes where there was none is seen at once.
        if driver is not None and time.monotonic() - read_at < _KNOWN_FOR:
            return driver
        if workers := await find_live_workers(self._storage, workflow):
            names = [worker.name for worker in workers]
            driver = RunDriver(True, names, f"it is left to {describe_workers(workers)}", None)
            self._drivers[workflow] = driver, time.monotonic()
            return driver
        return RunDriver(
            False,
            [],
            f"nobody drives the runs of {workflow!r}: start a worker with its code",
            ["stepwell", "worker", "MODULE:WORKFLOW"],
        )
