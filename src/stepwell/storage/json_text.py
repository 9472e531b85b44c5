"""The JSON text of stored payloads."""

from __future__ import annotations

import msgspec

from stepwell.codec.encoded import Chunk, Encoded
from stepwell.errors import CodecError
from stepwell.model.payload import ChunkedList, Payload, PayloadDict, PayloadList

_encode = msgspec.json.Encoder().encode


def json_of(payload: Payload) -> bytes:
    """Return the JSON text of a payload. Raises CodecError for one that was never encoded."""
    return payload.json if isinstance(payload, Encoded) else b"".join(pieces_of(payload))


def pieces_of(payload: Payload) -> list[bytes]:
    """Return the JSON text of a payload in pieces. Parts that two payloads share are the same pieces."""
    if isinstance(payload, Encoded):
        return [payload.json]
    pieces: list[bytes] = []
    if isinstance(payload, ChunkedList):
        for chunk in payload.chunks:
            if text := _items_of(chunk):
                pieces += (b",", text)
        return [b"[", *pieces[1:], b"]"]
    if isinstance(payload, PayloadDict):
        for key, part in payload.payloads.items():
            pieces += (b",", _encode(key), b":", *pieces_of(part))
        return [b"{", *pieces[1:], b"}"]
    raise CodecError(f"a `{type(payload).__name__}` payload cannot be stored: it was never encoded", path="$")


def _items_of(chunk: Payload) -> bytes:
    """Return the items of a list, separated by commas. They are joined, not parsed."""
    if isinstance(chunk, Chunk):
        return chunk.text
    if isinstance(chunk, PayloadList):
        return b",".join([json_of(item) for item in chunk.payloads])
    return json_of(chunk)[1:-1].strip()


def size_of(payload: Payload) -> int:
    """Return about how many bytes a payload takes when it is stored."""
    if isinstance(payload, ChunkedList):
        return sum(map(size_of, payload.chunks))
    if isinstance(payload, PayloadDict):
        return sum(map(size_of, payload.payloads.values()))
    if isinstance(payload, PayloadList):  # without joining them
        return sum([len(json_of(item)) + 1 for item in payload.payloads])
    return len(payload.text) if isinstance(payload, Chunk) else len(json_of(payload))
