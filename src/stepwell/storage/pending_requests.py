"""Open requests, as the people who respond to them see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from stepwell.model.signal import ReceivedJson, ReceivedResponse
from stepwell.storage import clock
from stepwell.storage.answers import PendingAnswer
from stepwell.storage.checked_reads import decode_stored, read_moment
from stepwell.storage.port import Store
from stepwell.storage.request_bodies import question_text, read_request_body
from stepwell.storage.signals import find_signalled, first_answer_key, read_signal
from stepwell.storage.stored_values import RequestEntry

_read_schema = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request that waits for a response, known without reading the run."""

    request_id: str
    run_id: str
    workflow_name: str
    executor_id: str
    request_type: str
    response_type: str
    response_schema: dict[str, Any] = field(repr=False)
    asked_at: datetime
    deadline: datetime | None
    # A response was sent, and the run has not applied it yet.
    answered: PendingAnswer | None
    _entry: RequestEntry = field(repr=False, compare=False)  # from which the next page continues

    @property
    def age(self) -> timedelta:
        """How long it has been waiting."""
        return clock.now() - self.asked_at

    @property
    def data(self) -> Any:
        """What is asked, in its stored JSON form, classes as their tags. Raises CannotUnseal if it is sealed."""
        return msgspec.json.decode(read_request_body(self._entry).payload)

    @property
    def question(self) -> str:
        """The text of the question, or a short form of what is asked, on one line."""
        return question_text(self.data)


def pending_request(stored: RequestEntry, answered: PendingAnswer | None = None) -> PendingRequest:
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
        answered=answered,
        _entry=stored,
    )


async def with_answers(store: Store, requests: Sequence[RequestEntry]) -> list[PendingRequest]:
    """Return requests as users see them, with the responses that are on their way.

    Reads the signals of the runs that have pending ones.
    """
    signalled = await find_signalled(store, dict.fromkeys(request.run_id for request in requests))
    answers: dict[tuple[str, str | None], PendingAnswer] = {}
    for run_id in signalled:
        for row in await store.pending_signals(run_id):
            signal = read_signal(run_id, row)
            if isinstance(signal, ReceivedResponse | ReceivedJson):
                answers.setdefault((run_id, first_answer_key(row.key)), PendingAnswer(signal.by, signal.at))
    return [
        pending_request(
            request,
            answers.get((request.run_id, read_request_body(request).key)) if request.run_id in signalled else None,
        )
        for request in requests
    ]
