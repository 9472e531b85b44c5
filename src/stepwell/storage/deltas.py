"""A large value that changed a little is stored as what changed in its text."""

from __future__ import annotations

import msgspec

from stepwell.codec.codec import Codec, Encoded
from stepwell.errors import CheckpointCorrupt
from stepwell.model.payload import Payload
from stepwell.storage.json_text import json_of

WORTH_IT = 1024  # bytes; what is smaller is written as it is, so that it can be read as it is
_BLOCK = 1 << 16


class Splice(msgspec.Struct, frozen=True):
    """What changed in a text: from `start` on up to the last `tail` bytes it says something else now."""

    start: int
    tail: int
    text: bytes


def splice_of(before: bytes, after: bytes) -> Splice | None:
    """What changed between two texts; None if it is not worth telling apart from all of it."""
    if min(len(before), len(after)) < WORTH_IT:
        return None
    start = _boundary(after, _same_beginning(before, after))
    tail = _same_end(before, after, min(len(before), len(after)) - start)
    while tail and _is_inside(after[len(after) - tail]):
        tail -= 1
    changed = after[start : len(after) - tail]
    return Splice(start, tail, changed) if len(changed) * 2 < len(after) else None


def _boundary(text: bytes, at: int) -> int:
    """The nearest place before that is not inside a character: what changed is stored as text."""
    while at and at < len(text) and _is_inside(text[at]):
        at -= 1
    return at


def _is_inside(byte: int) -> bool:
    return byte & 0b11000000 == 0b10000000


def _same_beginning(before: bytes, after: bytes) -> int:
    """How many bytes are the same from the beginning; compared in blocks, at the speed of the memory."""
    most, at = min(len(before), len(after)), 0
    while at < most and before[at : at + _BLOCK] == after[at : at + _BLOCK]:
        at += _BLOCK
    low, high = min(at, most), min(at + _BLOCK, most)
    while low < high:
        middle = (low + high + 1) // 2
        if before[at:middle] == after[at:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _same_end(before: bytes, after: bytes, most: int) -> int:
    """How many of the last `most` bytes are the same."""
    at = 0
    while at < most and _last(before, at, at + _BLOCK) == _last(after, at, at + _BLOCK):
        at += _BLOCK
    low, high = min(at, most), min(at + _BLOCK, most)
    while low < high:
        middle = (low + high + 1) // 2
        if _last(before, at, middle) == _last(after, at, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _last(text: bytes, after: int, upto: int) -> bytes:
    """The bytes that are between so many and so many from the end."""
    return text[max(0, len(text) - upto) : len(text) - after]


class Spliced(Encoded):
    """A parcel that says what changed since another; put together only when somebody asks for it."""

    __slots__ = ("_before", "_splice", "_what")

    def __init__(self, before: Payload, splice: Splice, codec: Codec, what: str) -> None:
        super().__init__(None, codec)
        self._before, self._splice, self._what = before, splice, what

    @property
    def json(self) -> bytes:
        if self._json is None:
            self._json = self._join()
        return self._json

    def _join(self) -> bytes:
        """All changes since the last text that is whole, made in one go: a long chain copies it once."""
        splices: list[Splice] = []
        at: Payload = self
        while isinstance(at, Spliced) and at._json is None:
            splices.append(at._splice)
            at = at._before
        parts = [memoryview(json_of(at))]
        for splice in reversed(splices):
            size = sum(len(part) for part in parts)
            if splice.start + splice.tail > size:
                raise CheckpointCorrupt(f"{self._what} cannot be put together: what it changed is not there")
            parts = [
                *_slice(parts, 0, splice.start),
                memoryview(splice.text),
                *_slice(parts, size - splice.tail, size),
            ]
        return b"".join(parts)


def _slice(parts: list[memoryview], start: int, end: int) -> list[memoryview]:
    slices, at = [], 0
    for part in parts:
        low, high = max(start - at, 0), min(end - at, len(part))
        if low < high:
            slices.append(part[low:high])
        at += len(part)
    return slices


class StoredEdit(msgspec.Struct, frozen=True):
    """A splice as it was read, to be made to what was there before."""

    splice: Splice
    codec: Codec
    what: str

    def apply_to(self, before: Payload | None) -> Payload:
        if before is None:
            raise CheckpointCorrupt(f"{self.what} tells only what changed, and what it changed from is missing")
        return Spliced(before, self.splice, self.codec, self.what)
