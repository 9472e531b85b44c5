"""Format events, as lines and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import msgspec

from stepwell.admin.diffs.documents import plain_value
from stepwell.admin.values import to_data, to_line
from stepwell.cli.type_names import WorkflowEvent
from stepwell.cli.views.text import printable
from stepwell.model.payload import PayloadList
from stepwell.model.status_words import status_word


@dataclass(frozen=True)
class TimedEvent:
    """An event and its time: for a durable event, the time of its commit."""

    event: WorkflowEvent
    at: str

    def as_dict(self) -> dict[str, Any]:
        """Return the event as JSON."""
        event = self.event
        # Fields that most events lack are left out; the five below are always there.
        optional = {
            "executor": event.executor_id,
            "path": list(event.path) or None,
            "iteration": event.iteration,
            "attempt": event.attempt,
            "request_id": event.request_id if event.type == "request_info" else None,
            "error": None if event.details is None else f"{event.details.error_type}: {event.details.message}",
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

    def format_line(self) -> str:
        """Return the event as one line for a person."""
        # Live progress has no commit, and shows that by a dash.
        number = "-" if self.event.commit is None else self.event.commit
        return f"{number:>4}  {self.at[:19].replace('T', ' ')}  {self.describe()}"

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
            f"{name}={fields[name]}" for name in ("executor", "iteration", "request_id", "error") if name in fields
        ]
        data = data_of(self.event)
        return printable("  ".join(parts)) + ("" if data is None else f"  {to_line(data)}")


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
    payload = event.payload
    if payload is None:
        # Live data was never stored, and may hold objects that cannot be.
        return None if event.details is not None else msgspec.to_builtins(event.data, str_keys=True, enc_hook=repr)
    if isinstance(payload, PayloadList):
        return [plain_value(item) for item in payload.payloads]
    return plain_value(payload)
