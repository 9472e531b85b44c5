"""A request: a question that a run puts to somebody outside; and the answer to it."""

from __future__ import annotations

import msgspec

from stepwell.model.payload import Payload


class Request(msgspec.Struct, frozen=True):
    """A request as it is stored, with all that is needed to check a response without the code that asked."""

    id: str
    # made the request, and receives the response
    executor: str
    payload: Payload
    request_type: str
    response_type: str
    # the JSON schema of an acceptable response, as text
    schema: str
    at: str
    deadline: str | None = None
    # the response if the deadline passes; None: the run fails then
    default: Payload | None = None
    # the sub-workflow run that made the request, if it was one
    child: str | None = None
    # where a handler waits for the response, in `ctx.ask`, perhaps one of the child: the key in its
    # superstep log; None: a response handler gets the response
    waiting: str | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether a handler of this run waits for the response; otherwise it becomes a message."""
        return self.waiting is not None and self.child is None


class AnswerRecord(msgspec.Struct, frozen=True):
    """The response that closed a request, as it is on record."""

    request_id: str
    executor: str  # made the request
    value: Payload
    at: str  # when it was sent
    by: str | None = None  # who sent it, as the sender says
    comment: str | None = None
