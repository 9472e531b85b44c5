"""Format events, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from stepwell.admin.calls import calls_of
from stepwell.admin.diffs.documents import plain_value
from stepwell.admin.questions import question_of
from stepwell.admin.values import to_data, to_line
from stepwell.cli.type_names import StepRecord, WorkflowEvent
from stepwell.cli.views.text import format_moment, printable
from stepwell.model.payload import PayloadList
from stepwell.model.status_words import status_word
from stepwell.viz.durations import format_seconds

_OF_REQUESTS = ("request_info", "request_answered")


@dataclass(frozen=True)
class TimedEvent:
    """An event and its time: for a durable event, the time of its commit."""

    event: WorkflowEvent
    at: str

    @property
    def steps(self) -> Sequence[StepRecord]:
        """The steps of the handler that the event is about."""
        # An `executor_returned` event is live: it says in its data what the handler did.
        return self.event.data.steps if self.event.type == "executor_returned" else self.event.steps

    def as_dict(self) -> dict[str, Any]:
        """Return the event as JSON."""
        event = self.event
        # Fields that most events lack are left out; the five below are always there.
        optional = {
            "executor": event.executor_id,
            "path": list(event.path) or None,
            "iteration": event.iteration,
            "attempt": event.attempt,
            "began": None if event.time is None else event.time.began,
            "seconds": None if event.time is None else event.time.seconds,
            "request_id": event.request_id if event.type in _OF_REQUESTS else None,
            "by": event.by,
            "comment": event.comment,
            "error": None if event.details is None else f"{event.details.error_type}: {event.details.message}",
            "calls": [call.to_dict() for call in calls_of(self.steps)] or None,
            "data": to_data(data_of(event)),
        }
        present = {name: value for name, value in optional.items() if value is not None}
        state = None if event.state is None else status_word(event.state)
        return {
            "run_id": event.run_id,
            "commit": event.commit,
            "at": self.at,
            "type": event.type,
            "state": state,
            **present,
        }

    def format_lines(self) -> Iterator[str]:
        """Yield the event as a line for a person, and a line for each call that its handler made."""
        # Live progress has no commit, and shows that by a dash.
        number = "-" if self.event.commit is None else self.event.commit
        yield f"{number:>4}  {format_moment(self.at)}  {self.describe()}"
        yield from (f"{'':>8}{printable(call.describe())}" for call in calls_of(self.steps))

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


def data_of(event: WorkflowEvent) -> Any:
    """Return the data of an event in its stored form, which needs none of the program's classes."""
    if event.type == "executor_returned":
        done = {name: list(getattr(event.data, name)) for name in ("sent", "outputs", "requests")}
        return {name: items for name, items in done.items() if items} or None
    payload = event.payload
    if payload is None:
        # Live data was never stored, and may hold objects that cannot be.
        return None if event.details is not None else msgspec.to_builtins(event.data, str_keys=True, enc_hook=repr)
    if isinstance(payload, PayloadList):
        return [plain_value(item) for item in payload.payloads]
    return plain_value(payload)
