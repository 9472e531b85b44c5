"""Events as JSON data: what `stepwell events --json` prints and what the server sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stepwell.admin.calls import calls_of
from stepwell.admin.diffs.documents import plain_value
from stepwell.admin.values import to_data
from stepwell.model.event import WorkflowEvent
from stepwell.model.payload import PayloadList
from stepwell.model.status_words import status_word
from stepwell.model.timing import StepRecord

_OF_REQUESTS = ("request_info", "request_answered")


def event_to_dict(event: WorkflowEvent, at: str) -> dict[str, Any]:
    """Return an event as JSON data. `at` is its time: of a durable one, that of its commit."""
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
        "calls": [call.to_dict() for call in calls_of(steps_of(event))] or None,
        "data": to_data(data_of(event)),
    }
    present = {name: value for name, value in optional.items() if value is not None}
    state = None if event.state is None else status_word(event.state)
    return {
        "run_id": event.run_id,
        "commit": event.commit,
        "at": at,
        "type": event.type,
        "state": state,
        **present,
    }


def steps_of(event: WorkflowEvent) -> Sequence[StepRecord]:
    """Return the steps of the handler that an event is about."""
    # An `executor_returned` event is live: it says in its data what the handler did.
    steps: Sequence[StepRecord] = event.data.steps if event.type == "executor_returned" else event.steps
    return steps


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
