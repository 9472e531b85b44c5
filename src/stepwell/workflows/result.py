"""The result of a run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic

from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.viz.notebook import result_html
from stepwell.viz.progress import progress_in
from stepwell.viz.workflow_diagram import Graph

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    OutputT = TypeVar("OutputT", default=Any)
else:
    # `typing` has defaults only since Python 3.13; at run time the parameter means nothing.
    from typing import TypeVar

    OutputT = TypeVar("OutputT")

_UNDER_WAY = (WorkflowRunState.IN_PROGRESS, WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS)


class WorkflowRunResult(list[WorkflowEvent], Generic[OutputT]):
    """The events of a run in order, and what they come to.

    Outputs from before a resume are included: they are replayed (`replayed`) when the run is resumed. Events of
    sub-workflows are in the list, with their `path`; the methods are about the run itself.
    """

    def __init__(
        self, events: Iterable[WorkflowEvent], *, include_status_events: bool = False, graph: Graph | None = None
    ) -> None:
        # A request that was emitted before its commit is there again if it was committed.
        every = [event for event in events if event.type != "request_info" or event.path or event.commit is not None]
        own = [event for event in every if not event.path]
        self._statuses = [event for event in own if event.type == "status"]
        # Kept apart from the list: most callers want results, and ask for the status with a method.
        hidden = {"started"} if include_status_events else {"started", "status"}
        super().__init__(event for event in every if event.type not in hidden)
        self._graph = graph  # what a notebook draws
        self.run_id: str = next((event.run_id for event in own if event.run_id and not event.replayed), "")

    def get_outputs(self) -> list[OutputT]:
        """Return all outputs, oldest first."""
        return [event.data for event in self._own("output")]

    def get_intermediate_outputs(self) -> list[Any]:
        """Return all outputs of executors named in `intermediate_output_from`."""
        return [event.data for event in self._own("intermediate")]

    def get_request_info_events(self) -> list[WorkflowEvent]:
        """Return the requests of the run, without those that it has withdrawn since."""
        requests: list[WorkflowEvent] = []
        for event in self:
            if event.type == "request_info" and not event.path:
                requests.append(event)
            elif event.type == "request_withdrawn" and not event.path:
                requests = [request for request in requests if request.request_id != event.data]
        return requests

    @property
    def wakes_at(self) -> datetime | None:
        """When a parked run can be resumed; None if it is not parked."""
        if self._statuses and self._statuses[-1].state not in _UNDER_WAY:
            return None
        last = next((e for e in reversed(self) if not e.path and e.type in ("sleeping", "superstep_started")), None)
        return last.data if last is not None and last.type == "sleeping" else None

    def _own(self, type: str) -> list[WorkflowEvent]:
        """Return events of the run itself: what those of a sub-workflow mean for it, it emits itself."""
        return [event for event in self if event.type == type and not event.path]

    def get_final_state(self) -> WorkflowRunState:
        """Return the last status of the run."""
        if not self._statuses or self._statuses[-1].state is None:
            raise RuntimeError("the result has no status: the run was never opened")
        return self._statuses[-1].state

    def _repr_html_(self) -> str:
        state, outputs = self.get_final_state(), self.get_outputs()
        progress = progress_in(self, waits=state is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS)
        return result_html(self._graph, progress, run_id=self.run_id, state=state, outputs=outputs)

    def status_timeline(self) -> list[WorkflowEvent]:
        """Return the status events in order."""
        return list(self._statuses)
