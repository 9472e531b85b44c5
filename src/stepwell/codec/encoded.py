"""Encoded payloads, and how a large value that changed a little is encoded again: only where it changed.

A large list is kept in chunks, each with a template of its items (see `Template`). Packing the next
version of the list compares it with the templates, and reuses the bytes of every chunk that is the
same. A dict with a large value becomes a payload for each of its values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from math import isfinite
from typing import Any

import msgspec

from stepwell.codec.traversal import ATOMS, INT_MAX, INT_MIN, Refused, is_object, shorten
from stepwell.model.payload import ChunkedList, Payload, PayloadDict, Template, template_of

# Bytes. Encoding less than this again costs less than a superstep. The size of a chunk, too.
LARGE = 1 << 16
# A dict with more keys is a collection itself, and is encoded as a whole.
_MOST_KEYS = 64
# Items of the first chunk of a list, when nothing is known of their lengths yet.
_FIRST_COUNT = 64

_NO_ATOM: Any = object()  # marks an `Encoded` that holds only bytes


_encode = msgspec.json.Encoder().encode


def is_atom(value: Any) -> bool:
    """Return whether a value is immutable, and can be encoded later without being refused."""
    kind = type(value)
    return kind in ATOMS and (kind is not int or INT_MIN <= value <= INT_MAX)


class PayloadCodec(ABC):
    """Makes payloads, and is what they need of the codec, which is defined in a module that imports this one."""

    @staticmethod
    @abstractmethod
    def payload_from_json(json: bytes) -> Encoded:
        """Make a payload of its JSON bytes, when an `Encoded` is unpickled."""

    @abstractmethod
    def encode(self, value: object, what: str = "$") -> bytes: ...
    @abstractmethod
    def decode(self, body: bytes, what: str = "$", *, is_checked: bool = False) -> Any: ...
    @abstractmethod
    def dump_part(self, value: object, depth: int) -> bytes:
        """Return the bytes of a part of a value that is inside of `depth` others. Raises Refused."""

    def pack(self, value: object, what: str, before: Payload | None = None, /) -> Payload:
        """Make a value into a payload that later changes cannot reach. Raises CodecError.

        Of a large value, only the parts that differ from `before` are encoded.
        """
        # Its encoding can wait until somebody stores it
        if is_atom(value):
            return Encoded(None, self, value)
        if is_large(before):
            # What cannot be stored in parts is refused below, with the path to the offending part
            with suppress(Refused, RecursionError, UnicodeEncodeError):
                return pack_part(value, before, self)
        return Encoded(self.encode(value, what), self, is_checked=True)


class Encoded:
    """A payload closed by encoding: decoded afresh for each reader, and stored as it is."""

    __slots__ = ("_atom", "_codec", "_is_checked", "_json", "_template", "_was_read")

    def __init__(
        self, json: bytes | None, codec: PayloadCodec, atom: object = _NO_ATOM, *, is_checked: bool = False
    ) -> None:
        self._json, self._codec, self._atom, self._is_checked = json, codec, atom, is_checked
        self._template: Template | None = None
        self._was_read = False

    @property
    def json(self) -> bytes:
        """The stored bytes. An atom is encoded only when they are first needed."""
        if self._json is None:
            atom = self._atom
            try:
                # What JSON cannot express, such as infinity, has a form of its own
                plain = type(atom) is not float or isfinite(atom)
                self._json = _encode(atom) if plain else self._codec.encode(atom)
            except UnicodeEncodeError:  # a lone surrogate
                self._json = self._codec.encode(atom)
        return self._json

    def open(self) -> Any:
        """Return a fresh copy of the value. Raises CodecError if the bytes cannot be read."""
        if self._atom is not _NO_ATOM:
            return self._atom
        if self._template is not None:
            return self._template.copy()
        value = self._codec.decode(self.json, is_checked=self._is_checked)
        # Most values are read once. A list that is read again is worth the memory of a template.
        if self._was_read and type(value) is list:
            self._template = template_of(value)
        self._is_checked = self._was_read = True
        return value

    def __eq__(self, other: object) -> bool:
        return self.json == other.json if isinstance(other, Encoded) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.json)

    # Immutable, so a copy would only cost memory
    def __copy__(self) -> Encoded:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Encoded:
        return self

    # The codec is not pickled: it refers to classes and caches of this process
    def __reduce__(self) -> tuple[Any, ...]:
        return self._codec.payload_from_json, (self.json,)

    def __repr__(self) -> str:
        return f"Encoded({shorten(self.json.decode('utf-8', 'replace'))})"


class Chunk(Encoded):
    """Consecutive items of a large list."""

    __slots__ = ("count", "text")

    def __init__(self, items: list[Any], codec: PayloadCodec, depth: int) -> None:
        super().__init__(None, codec, is_checked=True)
        self.count = len(items)
        self.text = codec.dump_part(items, depth)[1:-1]  # without the brackets
        # Of the packed values themselves: the next version is compared with them by identity
        self._template = template_of(items)

    @property
    def json(self) -> bytes:
        return b"[%b]" % self.text


def is_large(payload: Payload | None) -> bool:
    """Return whether the next version of a value is worth a comparison with this one."""
    if isinstance(payload, Encoded):
        return len(payload.json) >= LARGE
    return isinstance(payload, ChunkedList | PayloadDict)


def pack_part(value: Any, before: Payload | None, codec: PayloadCodec, depth: int = 0) -> Payload:
    """Return the payload of a value, or of a part of one, with what did not change taken from `before`.

    Raises Refused, RecursionError or UnicodeEncodeError; the path to the offending part is not known.
    """
    if is_atom(value):
        return before if isinstance(before, Encoded) and before._atom is value else Encoded(None, codec, value)
    if type(value) is list and is_large(before):
        return _pack_list(value, before, codec, depth)
    if type(value) is dict and len(value) <= _MOST_KEYS and is_large(before) and is_object(value):
        "".join(value).encode()  # a key that is not valid Unicode makes it a tagged object, which has no parts
        earlier = before.payloads if isinstance(before, PayloadDict) else {}
        return PayloadDict({key: pack_part(item, earlier.get(key), codec, depth + 1) for key, item in value.items()})
    return Encoded(codec.dump_part(value, depth), codec, is_checked=True)


def _pack_list(items: list[Any], before: Payload | None, codec: PayloadCodec, depth: int) -> Payload:
    chunks: list[Chunk] = []
    at = 0
    for chunk in before.chunks if isinstance(before, ChunkedList) else ():
        if not isinstance(chunk, Chunk) or at + chunk.count > len(items):
            break
        section, template = items[at : at + chunk.count], chunk._template
        is_same = template is not None and template.is_same(section)
        chunks.append(chunk if is_same else Chunk(section, codec, depth))
        at += chunk.count
    count = _FIRST_COUNT
    # What was appended joins the last chunk until that is large
    if at < len(items) and chunks and len(chunks[-1].text) < LARGE:
        last = chunks.pop()
        at, count = at - last.count, max(count, 2 * last.count)
    while at < len(items):
        chunks.append(Chunk(items[at : at + count], codec, depth))
        at += count
        # The next items are probably about as long as these
        count = min(max(1, count * LARGE // len(chunks[-1].text)), 4 * count)
    return ChunkedList(tuple(chunks))
