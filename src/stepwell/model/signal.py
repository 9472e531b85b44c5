"""Signals: what a run receives from outside."""

from __future__ import annotations

import msgspec

from stepwell.model.payload import Payload


class ReceivedResponse(msgspec.Struct, frozen=True):
    """A response to a request, of the requested type."""

    request_id: str
    value: Payload
    by: str | None = None  # who sent it, as the sender says
    comment: str | None = None
    at: str = ""  # when it was sent; empty if that is not known


class ReceivedJson(msgspec.Struct, frozen=True):
    """A response in plain JSON; the driver of the run, which has the type, converts it."""

    request_id: str
    value: bytes  # JSON text
    by: str | None = None
    comment: str | None = None
    at: str = ""


class ReceivedInput(msgspec.Struct, frozen=True):
    """A further message for the start executor."""

    value: Payload


class ReceivedCancel(msgspec.Struct, frozen=True):
    """A request to cancel the run."""

    number: int  # the commit at which the run was when it was sent
    by: str | None = None
    reason: str | None = None
    at: str = ""


Signal = ReceivedResponse | ReceivedJson | ReceivedInput | ReceivedCancel
