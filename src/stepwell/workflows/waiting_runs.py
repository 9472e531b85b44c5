"""The runs of a workflow object that wait for answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stepwell.errors import CheckpointMissing, RunBusy, RunError
from stepwell.graph.executor import Executor
from stepwell.model.event import WorkflowRunState
from stepwell.model.superstep import Checkpoint, Commit
from stepwell.storage.checkpoint_storage import CheckpointStorage

_MOST = 1000  # stored runs can be found in their storage: remembering them here is only for short programs


class Waiting(msgspec.Struct, frozen=True):
    """A run that waits: in a storage, or, if it is kept nowhere else, right here."""

    run_id: str
    storage: CheckpointStorage | None
    at: Checkpoint | None = None
    yielded: Sequence[Commit] = ()  # those with outputs: they are told again
    executors: Mapping[str, Executor] | None = None


class WaitingRuns:
    """Which runs wait, so that `run(responses=...)` need not say which one it means."""

    def __init__(self) -> None:
        self._runs: dict[str, Waiting] = {}

    def note(
        self,
        at: Checkpoint,
        yielded: Sequence[Commit],
        executors: Mapping[str, Executor],
        storage: CheckpointStorage | None,
    ) -> None:
        """A drive of this workflow has stopped at a checkpoint."""
        self._runs.pop(at.run_id, None)
        if at.status is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            here = Waiting(at.run_id, None, at, yielded, executors)
            self._runs[at.run_id] = here if storage is None else Waiting(at.run_id, storage)
            if len(self._runs) > _MOST:
                stored = next((id for id, run in self._runs.items() if run.storage is not None), None)
                self._runs.pop(stored or "", None)

    def only_run(self) -> Waiting:
        """The run that waits. Raises an error that lists them if there are several."""
        if not self._runs:
            raise CheckpointMissing("no run of this workflow object waits for an answer; give run_id or checkpoint_id")
        if len(self._runs) > 1:
            listed = ", ".join(repr(id) for id in self._runs)
            raise RunError(f"several runs of this workflow object wait: {listed}; say which with run_id", run_id="")
        return next(iter(self._runs.values()))

    def get(self, run_id: str) -> Waiting | None:
        return self._runs.get(run_id)

    def take(self, run: Waiting) -> None:
        """A run that is kept nowhere else goes on now. Raises RunBusy if somebody else was first."""
        if run.at is not None and self._runs.pop(run.run_id, None) is not run:
            words = f"run {run.run_id!r} is being answered by another call in this process"
            raise RunBusy(words, run_id=run.run_id, owner="this process")
