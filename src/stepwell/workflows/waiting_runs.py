"""The runs of a workflow object that wait for responses."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stepwell.errors import CheckpointMissing, RunBusy, RunError
from stepwell.graph.executor import Executor
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowRunState
from stepwell.storage.archive import Archive
from stepwell.storage.checkpoint_storage import CheckpointStorage

# Stored runs can be found in their storage: remembering them here is for short programs only.
_MOST = 1000


class WaitingRun(msgspec.Struct, frozen=True):
    """A run that waits for responses: in a storage, or, without one, right here."""

    run_id: str
    storage: CheckpointStorage | None
    # Of a run without a storage: where it is kept, and its executors as they were.
    archive: Archive | None = None
    executors: Mapping[str, Executor] | None = None


class WaitingRuns:
    """Knows which runs wait, so that `run(responses=...)` need not name one."""

    def __init__(self) -> None:
        self._runs: dict[str, WaitingRun] = {}

    def record(
        self,
        at: Checkpoint,
        archive: Archive,
        executors: Mapping[str, Executor],
        storage: CheckpointStorage | None,
    ) -> None:
        """Record that a drive of this workflow has stopped at a checkpoint."""
        self._runs.pop(at.run_id, None)
        if at.status is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            here = WaitingRun(at.run_id, None, archive, executors)
            self._runs[at.run_id] = here if storage is None else WaitingRun(at.run_id, storage)
            if len(self._runs) > _MOST:
                # A run without a storage exists only here, so it is never dropped.
                stored = next((id for id, run in self._runs.items() if run.storage is not None), None)
                self._runs.pop(stored or "", None)

    def only_run(self) -> WaitingRun:
        """Return the one run that waits. Raises RunError, listing them, if there are several."""
        if not self._runs:
            raise CheckpointMissing("no run of this workflow object waits for a response; pass run_id or checkpoint_id")
        if len(self._runs) > 1:
            listed = ", ".join(repr(id) for id in self._runs)
            raise RunError(f"several runs of this workflow object wait: {listed}; choose one with run_id", run_id="")
        return next(iter(self._runs.values()))

    def get(self, run_id: str) -> WaitingRun | None:
        return self._runs.get(run_id)

    def claim(self, run: WaitingRun) -> None:
        """Take a run that is not stored, to resume it. Raises RunBusy if another call was first."""
        if run.archive is not None and self._runs.pop(run.run_id, None) is not run:
            text = f"run {run.run_id!r} is being answered by another call in this process"
            raise RunBusy(text, run_id=run.run_id, owner="this process")
