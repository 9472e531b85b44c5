"""Deltas of large values: one that changed a little is stored as the changed part of its JSON."""

from __future__ import annotations

import msgspec

from stepwell.codec.codec import Codec
from stepwell.codec.encoded import Encoded
from stepwell.errors import CheckpointCorrupt
from stepwell.model.payload import Payload
from stepwell.storage.json_text import json_of, pieces_of

# Bytes. A smaller value is written whole: it costs little, and people can read the record.
WORTH_IT = 1024
# Bytes compared at once: equal blocks are found at the speed of memory, and only in the one that
# differs is the place computed.
_BLOCK = 1 << 16


class Splice(msgspec.Struct, frozen=True):
    """A change: `text` replaces what is between the first `start` and the last `tail` bytes."""

    start: int
    tail: int
    text: bytes


def splice_of(before: Payload, after: Payload) -> Splice | None:
    """Return what changed between two versions of a value; None if writing the whole value is as good."""
    new = pieces_of(after)
    size = sum(map(len, new))
    if size < WORTH_IT:
        return None
    old = pieces_of(before)
    # Pieces that both have are skipped, usually without looking at their bytes.
    head = _count_equal(old, new)
    foot = _count_equal(old[head:][::-1], new[head:][::-1])
    changed = _compare(b"".join(old[head : len(old) - foot]), b"".join(new[head : len(new) - foot]))
    # A splice makes the record depend on the one before it: it must at least halve the size.
    if len(changed.text) * 2 >= size:
        return None
    start, tail = sum(map(len, new[:head])), sum(map(len, new[len(new) - foot :]))
    return Splice(start + changed.start, tail + changed.tail, changed.text)


def _compare(before: bytes, after: bytes) -> Splice:
    # Both ends are moved to character boundaries: the changed part is stored as text, and half a
    # UTF-8 character is not text.
    start = _count_common(before, after, min(len(before), len(after)))
    while start and start < len(after) and _is_continuation(after[start]):
        start -= 1
    tail = _count_common(before, after, min(len(before), len(after)) - start, from_end=True)
    while tail and _is_continuation(after[len(after) - tail]):
        tail -= 1
    return Splice(start, tail, after[start : len(after) - tail])


def _is_continuation(byte: int) -> bool:
    """Return whether a byte is inside of a UTF-8 character, not its first."""
    return byte & 0b11000000 == 0b10000000


def _count_common(before: bytes, after: bytes, most: int, *, from_end: bool = False) -> int:
    """Return how many of the first or last `most` bytes are equal."""
    for done in range(0, most, _BLOCK):
        upto = min(done + _BLOCK, most)
        old, new = (
            text[len(text) - upto : len(text) - done] if from_end else text[done:upto] for text in (before, after)
        )
        if old != new:
            # As numbers in which the first byte, or the last one, counts most: their bits differ where the bytes do.
            numbers = [int.from_bytes(part, "little" if from_end else "big") for part in (old, new)]
            return upto - ((numbers[0] ^ numbers[1]).bit_length() + 7) // 8
    return most


def _count_equal(old: list[bytes], new: list[bytes]) -> int:
    """Return how many pieces at the start are equal."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((n for n, (a, b) in pairs if a is not b and a != b), min(len(old), len(new)))


class Spliced(Encoded):
    """A payload stored as a change of another one; its text is assembled when it is first read."""

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
        """Apply all changes since the last complete text at once.

        Slices of the values are collected first and joined at the end, so a long chain copies the
        bytes once and not once per change.
        """
        splices: list[Splice] = []
        at: Payload = self
        while isinstance(at, Spliced) and at._json is None:
            splices.append(at._splice)
            at = at._before
        parts = [memoryview(json_of(at))]
        for splice in reversed(splices):
            size = sum(len(part) for part in parts)
            if splice.start + splice.tail > size:
                raise CheckpointCorrupt(f"{self._what} is damaged: it changes text that does not exist")
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
    """A splice as it was read, to be applied to the value before it."""

    splice: Splice
    codec: Codec
    what: str

    def apply_to(self, before: Payload | None) -> Payload:
        if before is None:
            raise CheckpointCorrupt(f"{self.what} is a delta, and the value it changes is missing")
        return Spliced(before, self.splice, self.codec, self.what)
