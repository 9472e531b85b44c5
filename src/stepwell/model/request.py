"""A request: a question that a run puts to somebody outside."""

from __future__ import annotations

import msgspec

from stepwell.model.payload import Payload


class Request(msgspec.Struct, frozen=True):
    """A request as it is stored, with all that is needed to check a response without the code that asked."""

    id: str
    executor: str  # made the request, and receives the response
    payload: Payload
    request_type: str
    response_type: str
    schema: str  # the JSON schema of an acceptable response, as text
    at: str
    deadline: str | None = None
    default: Payload | None = None  # the response if the deadline passes; None: the run fails then
    child: str | None = None  # the sub-workflow run that made the request, if it was one
