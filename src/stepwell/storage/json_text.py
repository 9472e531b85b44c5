"""The JSON text of stored payloads."""

from __future__ import annotations

from stepwell.codec.codec import Encoded
from stepwell.errors import CodecError
from stepwell.model.payload import Payload
from stepwell.model.state import GrownList


def json_of(payload: Payload) -> bytes:
    """Return the JSON text of a payload. Raises CodecError for one that was never encoded."""
    if isinstance(payload, Encoded):
        return payload.json
    if isinstance(payload, GrownList):
        # The encoded items are joined, not parsed: appending to a long list must not cost a decode of it.
        parts = [json_of(item) for item in payload.items]
        if payload.base is not None and (before := json_of(payload.base)[1:-1].strip()):
            parts.insert(0, before)
        return b"[" + b",".join(parts) + b"]"
    raise CodecError(f"a `{type(payload).__name__}` payload cannot be stored: it was never encoded", path="$")


def size_of(payload: Payload) -> int:
    """Return about how many bytes a payload takes when it is stored."""
    if isinstance(payload, GrownList):  # without joining the encoded items
        items = sum(len(json_of(item)) + 1 for item in payload.items)
        return items + (0 if payload.base is None else size_of(payload.base))
    return len(json_of(payload))
