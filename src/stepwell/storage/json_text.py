"""The JSON text of what is stored."""

from __future__ import annotations

from stepwell.codec.codec import Encoded
from stepwell.errors import CodecError
from stepwell.model.payload import Payload
from stepwell.model.state import GrownList


def json_of(parcel: Payload) -> bytes:
    """The JSON text of a stored payload."""
    if isinstance(parcel, Encoded):
        return parcel.json
    if isinstance(parcel, GrownList):
        parts = [json_of(item) for item in parcel.items]
        if parcel.base is not None and (before := json_of(parcel.base)[1:-1].strip()):
            parts.insert(0, before)
        return b"[" + b",".join(parts) + b"]"
    raise CodecError(f"`{type(parcel).__name__}` was never made to be stored", path="$")


def size_of(parcel: Payload) -> int:
    """How many bytes a stored payload takes, about."""
    if isinstance(parcel, GrownList):
        items = sum(len(json_of(item)) + 1 for item in parcel.items)
        return items + (0 if parcel.base is None else size_of(parcel.base))
    return len(json_of(parcel))
