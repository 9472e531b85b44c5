"""An event of a run with its time, as people and programs read it: on one line, and as JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepwell.admin.calls import call_under_way, calls_of
from stepwell.admin.event_documents import data_of, event_to_dict, steps_of
from stepwell.admin.questions import question_of
from stepwell.admin.values import TEXT, main_part, to_line
from stepwell.declarative.conductor import CONDUCTOR
from stepwell.declarative.stored_run import find_node, is_internal
from stepwell.model.event import WorkflowEvent
from stepwell.model.timing import StepRecord
from stepwell.model.visible_text import visible
from stepwell.viz.durations import format_seconds


@dataclass(frozen=True)
class TimedEvent:
    """An event and its time: for a durable event, the time of its commit."""

    event: WorkflowEvent
    at: str
    of_named_agents: bool = False  # then people read the names of nodes

    @property
    def executor_path(self) -> tuple[str, ...]:
        """The executor as people know it, after those whose sub-workflows it is in; empty if there is none."""
        outer, *inner = (*self.event.path, self.event.executor_id)
        first = find_node(outer) if self.of_named_agents and outer is not None else outer
        return tuple(id for id in (first, *inner) if id is not None)

    @property
    def steps(self) -> Sequence[StepRecord]:
        """The steps of the handler that the event is about."""
        return steps_of(self.event)

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON data."""
        return event_to_dict(self.event, self.at)

    def describe(self, *, full: bool = False) -> str:
        """Return the event on one line, without the number of its commit and its time."""
        fields = self.to_dict()
        parts = [self.event.type]
        if self.event.type == "status":
            parts.append(fields["state"])
        fields["executor"] = "/".join(self.executor_path) or None
        parts += [
            f"{name}={fields[name]}"
            for name in ("executor", "iteration", "request_id", "by", "comment", "error")
            if fields.get(name) is not None
        ]
        if self.event.time is not None:
            parts.append(format_seconds(self.event.time.seconds))
        return "  ".join(filter(None, [visible("  ".join(parts)), self._describe_data(full)]))

    def to_lines(self, *, full: bool = False) -> list[str]:
        """Return the event as lines: what happened, and each call that its handler made."""
        return [self.describe(full=full), *(visible(call.describe()) for call in calls_of(self.steps))]

    def _describe_data(self, full: bool) -> str:
        if self.event.type == "step_completed":
            call = call_under_way(self.event.data)
            return "" if call is None else visible(call.describe())
        data = data_of(self.event)
        if data is None or is_internal(data):
            return ""
        if self.event.type == "request_info":
            return question_of(data, longest=None if full else TEXT)
        if isinstance(data, list):  # what a handler sent
            data = [main_part(message) for message in data if not is_internal(message)]
        return "" if data == [] else to_line(data, longest=None if full else TEXT)


def only_of_nodes(timed: TimedEvent) -> TimedEvent | None:
    """Return an event of a run of named agents with names of nodes; None if only the conductor was called."""
    event = timed.event
    if event.executor_id == CONDUCTOR and event.type.startswith(("executor_", "step_")) and event.details is None:
        return None
    return replace(timed, of_named_agents=True)
