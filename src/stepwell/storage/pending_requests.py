"""A question as whoever answers it sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from stepwell.storage import clock
from stepwell.storage.damage import decode_stored, read_moment
from stepwell.storage.port import Pending

_read_schema = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A question that waits for an answer. The question itself is in the run: this is known without reading it."""

    request_id: str
    run_id: str
    workflow_name: str
    executor_id: str
    request_type: str
    response_type: str
    response_schema: dict[str, Any] = field(repr=False)
    asked_at: datetime
    deadline: datetime | None
    _entry: Pending = field(repr=False, compare=False)  # where the next page begins

    @property
    def age(self) -> timedelta:
        """How long it has waited."""
        return clock.now() - self.asked_at


def pending_request(stored: Pending) -> PendingRequest:
    question = f"the question {stored.request_id!r} of run {stored.run_id!r}"
    return PendingRequest(
        stored.request_id,
        stored.run_id,
        stored.workflow,
        stored.executor,
        stored.request_type,
        stored.response_type,
        decode_stored(_read_schema, stored.schema.encode(), f"the schema of {question}"),
        read_moment(stored.at, question),
        None if stored.deadline is None else read_moment(stored.deadline, f"the deadline of {question}"),
        stored,
    )
