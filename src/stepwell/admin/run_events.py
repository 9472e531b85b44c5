"""An event of a run with its time, as people and programs read it: on one line, and as JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.admin.event_documents import data_of, event_to_dict, steps_of
from stepwell.admin.questions import question_of
from stepwell.admin.values import to_line
from stepwell.model.event import WorkflowEvent
from stepwell.model.timing import StepRecord
from stepwell.model.visible_text import visible
from stepwell.viz.durations import format_seconds


@dataclass(frozen=True)
class TimedEvent:
    """An event and its time: for a durable event, the time of its commit."""

    event: WorkflowEvent
    at: str

    @property
    def steps(self) -> Sequence[StepRecord]:
        """The steps of the handler that the event is about."""
        return steps_of(self.event)

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON data."""
        return event_to_dict(self.event, self.at)

    def describe(self) -> str:
        """Return the event on one line, without the number of its commit and its time."""
        fields = self.to_dict()
        parts = [self.event.type]
        if self.event.type == "status":
            parts.append(fields["state"])
        if self.event.path:
            # Through its sub-workflows: `outer/inner`.
            fields["executor"] = "/".join(id for id in (*self.event.path, self.event.executor_id) if id is not None)
        parts += [
            f"{name}={fields[name]}"
            for name in ("executor", "iteration", "request_id", "by", "comment", "error")
            if name in fields
        ]
        if self.event.time is not None:
            parts.append(format_seconds(self.event.time.seconds))
        data = data_of(self.event)
        if data is None:
            return visible("  ".join(parts))
        text = question_of(data) if self.event.type == "request_info" else to_line(data)
        return f"{visible('  '.join(parts))}  {text}"
