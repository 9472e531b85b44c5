"""Open requests, as the people who respond to them see them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from stepwell.storage import clock
from stepwell.storage.checked_reads import decode_stored, read_moment
from stepwell.storage.stored_values import RequestEntry

_read_schema = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request that waits for a response, known without reading the run.

    The payload itself is in the run.
    """

    request_id: str
    run_id: str
    workflow_name: str
    executor_id: str
    request_type: str
    response_type: str
    response_schema: dict[str, Any] = field(repr=False)
    asked_at: datetime
    deadline: datetime | None
    _entry: RequestEntry = field(repr=False, compare=False)  # from which the next page continues

    @property
    def age(self) -> timedelta:
        """How long it has been waiting."""
        return clock.now() - self.asked_at


def pending_request(stored: RequestEntry) -> PendingRequest:
    """Return a request as users see it.

    Raises CheckpointCorrupt if its schema or a time is damaged.
    """
    what = f"request {stored.request_id!r} of run {stored.run_id!r}"
    return PendingRequest(
        request_id=stored.request_id,
        run_id=stored.run_id,
        workflow_name=stored.workflow,
        executor_id=stored.executor,
        request_type=stored.request_type,
        response_type=stored.response_type,
        response_schema=decode_stored(_read_schema, stored.schema.encode(), f"the schema of {what}"),
        asked_at=read_moment(stored.at, what),
        deadline=None if stored.deadline is None else read_moment(stored.deadline, f"the deadline of {what}"),
        _entry=stored,
    )
