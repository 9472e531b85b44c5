"""The JSON text of what is stored."""

from __future__ import annotations

from stepwell.codec.codec import Encoded
from stepwell.errors import CodecError
from stepwell.model.payload import Payload
from stepwell.model.state import GrownList


def json_of(payload: Payload) -> bytes:
    """The JSON text of a stored payload."""
    if isinstance(payload, Encoded):
        return payload.json
    if isinstance(payload, GrownList):
        parts = [json_of(item) for item in payload.items]
        if payload.base is not None and (before := json_of(payload.base)[1:-1].strip()):
            parts.insert(0, before)
        return b"[" + b",".join(parts) + b"]"
    raise CodecError(f"`{type(payload).__name__}` was never made to be stored", path="$")


def size_of(payload: Payload) -> int:
    """How many bytes a stored payload takes, about."""
    if isinstance(payload, GrownList):
        items = sum(len(json_of(item)) + 1 for item in payload.items)
        return items + (0 if payload.base is None else size_of(payload.base))
    return len(json_of(payload))
