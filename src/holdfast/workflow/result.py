"""What came of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.events import WorkflowEvent, WorkflowRunState


class WorkflowRunResult(list[WorkflowEvent]):
    """The events of a run in order, and what they come to.

    Outputs from before a resume are there too: they are told again (`replayed`) when the run goes on.
    """

    def __init__(self, events: Iterable[WorkflowEvent], *, include_status_events: bool = False) -> None:
        told = list(events)
        self._statuses = [event for event in told if event.type == "status"]
        hidden = {"started"} if include_status_events else {"started", "status"}
        super().__init__(event for event in told if event.type not in hidden)
        self.run_id: str = next((event.run_id for event in told if event.run_id and not event.replayed), "")

    def get_outputs(self) -> list[Any]:
        """Everything yielded as an output, oldest first."""
        return [event.data for event in self if event.type == "output"]

    def get_intermediate_outputs(self) -> list[Any]:
        """Everything yielded by executors named in `intermediate_output_from`."""
        return [event.data for event in self if event.type == "intermediate"]

    def get_request_info_events(self) -> list[WorkflowEvent]:
        """The requests that were told."""
        return [event for event in self if event.type == "request_info"]

    def get_final_state(self) -> WorkflowRunState:
        """Where the run was when it was last told."""
        if not self._statuses or self._statuses[-1].state is None:
            raise RuntimeError("no status was told: the run was never opened")
        return self._statuses[-1].state

    def status_timeline(self) -> list[WorkflowEvent]:
        """The status events in order."""
        return list(self._statuses)
