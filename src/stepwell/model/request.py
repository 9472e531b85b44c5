"""A question to the world outside a run."""

from __future__ import annotations

import msgspec

from stepwell.model.payload import Payload


class Request(msgspec.Struct, frozen=True):
    """A question put to somebody outside the run."""

    id: str
    executor: str  # who asked, and gets the answer
    payload: Payload
    request_type: str
    response_type: str
    schema: str  # of an acceptable answer, as JSON text
    at: str
    deadline: str | None = None
    default: Payload | None = None  # the answer if the deadline passes; None: then the run fails
    child: str | None = None  # the run inside the asking one whose question it is
