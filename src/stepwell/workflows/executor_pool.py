"""The executors of each run: the given instances for the first run of a workflow, clones for all others."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from stepwell.graph.executor import Executor
from stepwell.workflows.executor_specs import ExecutorSpec, reset_state


class ExecutorPool:
    """Gives each run of one workflow its executors.

    The first run gets the given instances, except those that another workflow is using.
    """

    def __init__(self, specs: Mapping[str, ExecutorSpec]) -> None:
        self._specs = specs
        self._first = True
        self._lock = threading.Lock()

    def acquire(self) -> dict[str, Executor]:
        # Two threads may start runs of one workflow at once.
        with self._lock:
            first, self._first = self._first, False
        executors = {id: self._acquire_one(spec, first) for id, spec in self._specs.items()}
        for executor in executors.values():
            reset_state(executor)
        return executors

    def release(self, executors: Mapping[str, Executor]) -> None:
        """Take back the executors of a run that has stopped."""
        with _BUSY_LOCK:
            for executor in executors.values():
                _BUSY.discard(id(executor))

    def _acquire_one(self, spec: ExecutorSpec, first: bool) -> Executor:
        if first and spec.instance is not None:
            # An instance given to two workflows serves one run at a time; the other run gets a clone.
            with _BUSY_LOCK:
                if id(spec.instance) not in _BUSY:
                    _BUSY.add(id(spec.instance))
                    return spec.instance
        return spec.make()


# Instances in use, by identity. For the whole process: one instance may be given to several workflows.
_BUSY: set[int] = set()
# Reentrant: a drive that is garbage-collected inside may release its own.
_BUSY_LOCK = threading.RLock()
