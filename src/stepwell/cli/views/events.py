"""Format events, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from stepwell.admin.calls import calls_of
from stepwell.admin.event_documents import data_of, event_to_dict, steps_of
from stepwell.admin.questions import question_of
from stepwell.admin.values import to_line
from stepwell.cli.type_names import WorkflowEvent
from stepwell.cli.views.text import format_moment, printable
from stepwell.viz.durations import format_seconds


@dataclass(frozen=True)
class TimedEvent:
    """An event and its time: for a durable event, the time of its commit."""

    event: WorkflowEvent
    at: str

    def as_dict(self) -> dict[str, Any]:
        """Return the event as JSON."""
        return event_to_dict(self.event, self.at)

    def format_lines(self) -> Iterator[str]:
        """Yield the event as a line for a person, and a line for each call that its handler made."""
        # Live progress has no commit, and shows that by a dash.
        number = "-" if self.event.commit is None else self.event.commit
        yield f"{number:>4}  {format_moment(self.at)}  {self.describe()}"
        yield from (f"{'':>8}{printable(call.describe())}" for call in calls_of(steps_of(self.event)))

    def describe(self) -> str:
        """Return the line without the number of the commit and the time."""
        fields = self.as_dict()
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
            return printable("  ".join(parts))
        text = question_of(data) if self.event.type == "request_info" else to_line(data)
        return f"{printable('  '.join(parts))}  {text}"


class Follower:
    """Receives the events of a run in order, inside a `with` block. This one shows nothing."""

    redraws = False  # whether it keeps a place on the terminal, where nothing else may be printed

    def show(self, timed: TimedEvent) -> None:
        """Show the next event."""

    def expect(self, names: list[str]) -> None:
        """Show which executors are called next."""

    def end(self, status: str) -> None:
        """Show the final status."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop showing."""
