"""A question as whoever answers it sees it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from . import clock
from .ports import Pending


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
    deadline: datetime | None = None

    @property
    def age(self) -> timedelta:
        """How long it has waited."""
        return clock.now() - self.asked_at


def pending_request(stored: Pending) -> PendingRequest:
    return PendingRequest(
        stored.request_id,
        stored.run_id,
        stored.workflow,
        stored.executor,
        stored.request_type,
        stored.response_type,
        json.loads(stored.schema),
        datetime.fromisoformat(stored.at),
        None if stored.deadline is None else datetime.fromisoformat(stored.deadline),
    )
