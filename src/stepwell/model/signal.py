"""Signals: what a run receives from outside."""

from __future__ import annotations

import msgspec

from stepwell.model.payload import Payload


class ReceivedResponse(msgspec.Struct, frozen=True):
    """A response to a request, of the requested type."""

    request_id: str
    value: Payload


class ReceivedJson(msgspec.Struct, frozen=True):
    """A response in plain JSON; the driver of the run, which has the type, converts it."""

    request_id: str
    value: bytes  # JSON text


class ReceivedInput(msgspec.Struct, frozen=True):
    """A further message for the start executor."""

    value: Payload


class ReceivedCancel(msgspec.Struct, frozen=True):
    """A request to cancel the run."""

    number: int  # the commit at which the run was when it was sent


Signal = ReceivedResponse | ReceivedJson | ReceivedInput | ReceivedCancel
