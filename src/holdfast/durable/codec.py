"""Typed values to JSON and back: a closed, inert, readable format.

What JSON can say is plain JSON; everything else is an object whose first key is `$`:
`{"$":"tuple","v":[1,2]}`, `{"$":"shop.orders:Order","v":{"id":7}}`. Reading never imports a module
and calls no constructor of a user's class because data says so: a class is found only where it
is already known, and only if it is of a kind that holds data.
"""

from __future__ import annotations

import functools
import hashlib
import math
import sys
from collections.abc import Iterable
from dataclasses import is_dataclass
from datetime import tzinfo
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec

from holdfast.core.errors import CodecError
from holdfast.durable.codec_kinds import is_storable, kind_of, tag_of
from holdfast.durable.codec_reach import reachable_types
from holdfast.durable.codec_values import VALUES, VALUES_BY_TAG, dump, dump_canonical
from holdfast.durable.codec_walk import DEPTH, TOO_DEEP, Kind, Refused, key_step, shown

__all__ = ["DEFAULT_CODEC", "Codec", "Encoded", "encoded", "reachable_types", "register_checkpoint_type"]

T = TypeVar("T")

_AS_THEY_ARE = frozenset({str, bool, type(None)})
_ATOMS = _AS_THEY_ARE | {int, float}
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_DEEPEST = DEPTH + 1  # a text that UTF-8 cannot say is not counted when it is written, and is an object when read

_parse = msgspec.json.Decoder().decode

_CLOSED: Any = object()  # stands where a parcel holds no atom

_registered: dict[str, type] = {}
_of_any_codec: WeakValueDictionary[str, type] = WeakValueDictionary()


def register_checkpoint_type(cls: type[T]) -> type[T]:
    """Let every codec of this process find `cls`; a later class of the same name takes its place."""
    if not isinstance(cls, type):
        raise TypeError(f"register_checkpoint_type takes a class, not {shown(repr(cls))}")
    if not is_storable(cls):
        raise TypeError(
            f"`{cls.__qualname__}` cannot be stored: register a dataclass, an enum, a named tuple, "
            f"a pydantic model or a msgspec struct"
        )
    _registered[tag_of(cls)] = cls
    return cls


class Codec:
    """Writes and reads values, among them instances of the classes it was given, local ones too."""

    def __init__(self, types: Iterable[type] = ()) -> None:
        self._types = {tag_of(cls): cls for cls in types if is_storable(cls)}
        self._kinds: dict[type, Kind] = {}
        _of_any_codec.update(self._types)

    def encode(self, value: object, what: str = "$") -> bytes:
        """The bytes of a value; CodecError, with the path from `what`, if it cannot be stored."""
        try:
            return dump(self._close(value, 0))
        except Refused as refused:
            raise CodecError(refused.message, path=refused.path(what)) from refused.__cause__
        except RecursionError:
            raise CodecError(TOO_DEEP, path=what) from None

    def decode(self, body: bytes, what: str = "$") -> Any:
        """The value of stored bytes; CodecError, and nothing else, if they hold none."""
        try:
            tree = _parse(body)
            if b'"$"' in body:
                return self._open(tree, 0)
            if body.count(b"[") + body.count(b"{") > DEPTH:  # only then can it be too deep
                _refuse_depth(tree, 0)
            return tree
        except Refused as refused:
            raise CodecError(refused.message, path=refused.path(what)) from refused.__cause__
        except RecursionError:
            raise CodecError(TOO_DEEP, path=what) from None
        except (msgspec.MsgspecError, ValueError) as error:
            raise CodecError(
                f"what is stored is not JSON, so it is damaged or cut short ({error})", path=what
            ) from error

    def pack(self, value: object, what: str) -> Encoded:
        """Close a value, so that nobody can change it any more; CodecError if it cannot be stored."""
        kind = type(value)
        if kind in _ATOMS and (kind is not int or _INT_MIN <= value <= _INT_MAX):  # type: ignore[operator]
            return Encoded(None, self, value)
        return Encoded(self.encode(value, what), self)

    def digest(self, value: object, what: str = "$") -> str:
        """A fingerprint: equal for equal values, whatever the order of their dicts and sets."""
        try:
            return hashlib.sha256(dump_canonical(self._close(value, 0))).hexdigest()
        except Refused as refused:
            raise CodecError(refused.message, path=refused.path(what)) from refused.__cause__
        except RecursionError:
            raise CodecError(TOO_DEEP, path=what) from None

    # --- writing ------------------------------------------------------------------------------------------------------

    def _close(self, value: Any, depth: int) -> Any:
        """The JSON tree of a value. Most values are plain, so they are asked for first, and in one frame."""
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value
        if kind is int:
            if _INT_MIN <= value <= _INT_MAX:
                return value
        elif kind is float and math.isfinite(value):
            return value
        if depth >= DEPTH:
            raise Refused(TOO_DEEP)
        step: Any = 0
        try:
            if kind is list:
                items: list[Any] = []
                for item in value:
                    items.append(item if type(item) in _AS_THEY_ARE else self._close(item, depth + 1))
                    step += 1
                return items
            if kind is dict and "$" not in value:
                members: dict[str, Any] = {}
                for step, item in value.items():
                    if type(step) is not str:
                        break
                    members[step] = item if type(item) in _AS_THEY_ARE else self._close(item, depth + 1)
                else:
                    return members
        except Refused as refused:
            refused.at(f"[{step}]" if kind is list else key_step(step))
            raise
        how = VALUES.get(kind) or self._kinds.get(kind) or self._learn(kind)
        try:
            return how.close(value, self._close, depth)
        except (Refused, RecursionError):
            raise
        except Exception as error:
            raise Refused(f"this `{kind.__qualname__}` cannot be stored: {shown(error)}") from error

    def _learn(self, cls: type) -> Kind:
        """How to write a user's class; refused unless the class would be found again at reading."""
        kind = kind_of(cls)
        if kind is None:
            raise Refused(_why_not(cls))
        found = self._find(kind.tag)
        if found is None:
            raise Refused(
                f"`{cls.__qualname__}` could not be found again when this is read: define it at the top of a module, "
                f"name it in the annotation of a handler, or pass it to register_checkpoint_type"
            )
        if found is not cls:
            raise Refused(
                f"`{cls.__qualname__}` would come back as another class of the same name: "
                f"rename one of the two, or build the workflow again after defining it again"
            )
        self._kinds[cls] = kind
        return kind

    # --- reading ------------------------------------------------------------------------------------------------------

    def _open(self, tree: Any, depth: int) -> Any:
        """The value of a JSON tree, made where the tree lies: it is fresh from the parser and ours."""
        kind = type(tree)
        if kind is not dict and kind is not list:
            return tree
        if depth >= _DEEPEST:
            raise Refused(TOO_DEEP)
        if kind is dict and "$" in tree:
            how = self._kind_of(tree)
            try:
                return how.open(tree, self._open, depth)
            except (Refused, RecursionError):
                raise
            except Exception as error:  # a class of a user takes part in this: its defaults, its hash
                raise Refused(f"a stored `{shown(how.tag)}` cannot be read: {shown(error)}") from error
        step: Any = 0
        try:
            for step, item in tree.items() if kind is dict else enumerate(tree):
                if type(item) is dict or type(item) is list:
                    tree[step] = self._open(item, depth + 1)
        except Refused as refused:
            refused.at(key_step(step))
            raise
        return tree

    def _kind_of(self, tree: dict[str, Any]) -> Kind:
        tag = tree["$"]
        if type(tag) is not str:
            raise Refused("`$` should name a type, and holds something else")
        how = VALUES_BY_TAG.get(tag) or self._kind_for(tag)
        if "v" not in tree or not tree.keys() <= how.members:
            raise Refused(f"a stored `{shown(tag)}` should have {_listed(how.members)}, and has {_listed(tree)}")
        return how

    def _kind_for(self, tag: str) -> Kind:
        found = self._find(tag)
        cls = found or _of_any_codec.get(tag)
        if cls is None:
            raise Refused(
                f"the type `{shown(tag)}` is not known here: import the module that defines it before this is read, "
                f"or pass it to register_checkpoint_type"
            )
        kind = self._kinds.get(cls) or kind_of(cls)
        if kind is None:
            raise Refused(_why_not(cls))
        if found is not None:  # a class that only another codec knows may go when that codec goes
            self._kinds[cls] = kind
        return kind

    def _find(self, tag: str) -> type | None:
        """The class of a tag, from where classes are already known."""
        return self._types.get(tag) or _registered.get(tag) or _loaded(tag) or self._moved(tag)

    def _moved(self, tag: str) -> type | None:
        """The one known class of that name whose module goes by another name now, as a script's does."""
        module, _, name = tag.partition(":")
        anywhere = module == "__main__" or module not in sys.modules
        candidates = {
            cls
            for cls in (*self._types.values(), *_registered.values())
            if cls.__qualname__ == name and (anywhere or cls.__module__ == "__main__")
        }
        return candidates.pop() if len(candidates) == 1 else None


def _loaded(tag: str) -> type | None:
    """The class in a loaded module; looked up without any hook that could import, or run code."""
    module, names = _way(tag)
    place: Any = sys.modules.get(module)
    for name in names:
        try:
            place = object.__getattribute__(place, "__dict__").get(name)
        except AttributeError:
            return None
    return place if isinstance(place, type) and tag_of(place) == tag else None


@functools.lru_cache(maxsize=1024)
def _way(tag: str) -> tuple[str, tuple[str, ...]]:
    module, _, name = tag.partition(":")
    return module, (name,) if "[" in name else tuple(name.split("."))  # pydantic's `Page[int]` is one name


def _refuse_depth(tree: Any, depth: int) -> None:
    if depth >= DEPTH:
        raise Refused(TOO_DEEP)
    for item in tree.values() if type(tree) is dict else tree:
        if type(item) is dict or type(item) is list:
            _refuse_depth(item, depth + 1)


def _listed(names: Iterable[str]) -> str:
    return shown(", ".join(f"`{shown(name)}`" for name in sorted(names)))


def _why_not(cls: type) -> str:
    """Why instances of a class cannot be stored, and what to do."""
    name = cls.__qualname__
    if issubclass(cls, tzinfo):
        return f"`{name}` is a time zone that cannot be stored: use `zoneinfo.ZoneInfo` or a fixed `datetime.timezone`"
    base = next((base for base in cls.__mro__[1:] if base in _ATOMS or base in VALUES or base is list), None)
    if base is not None:
        return f"`{name}` extends `{base.__name__}` and would not come back as itself: use a plain `{base.__name__}`"
    if is_dataclass(cls):
        return f"`{name}` is a dataclass that extends a built-in class, whose content would be lost: let it stand alone"
    return (
        f"`{name}` cannot be stored: use a dataclass, a pydantic model, or plain data, "
        f"or keep it out of what is sent and saved"
    )


class Encoded:
    """A parcel closed by encoding: opened afresh for each reader, and ready to be stored as it is."""

    __slots__ = ("_atom", "_codec", "_json")

    def __init__(self, json: bytes | None, codec: Codec, atom: object = _CLOSED) -> None:
        self._json, self._codec, self._atom = json, codec, atom

    @property
    def json(self) -> bytes:
        """What is stored. An atom, which nobody can change, is encoded only when this is asked for."""
        if self._json is None:
            self._json = self._codec.encode(self._atom)
        return self._json

    def open(self) -> Any:
        """The value, as the reader's own; CodecError if the bytes hold none."""
        return self._codec.decode(self.json) if self._atom is _CLOSED else self._atom

    def __eq__(self, other: object) -> bool:
        return self.json == other.json if isinstance(other, Encoded) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.json)

    def __copy__(self) -> Encoded:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Encoded:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.json,)

    def __repr__(self) -> str:
        return f"Encoded({shown(self.json.decode('utf-8', 'replace'))})"


def encoded(json: bytes, codec: Codec) -> Encoded:
    """A parcel from storage; nothing is read before it is opened."""
    return Encoded(json, codec)


def _reopened(json: bytes) -> Encoded:
    return Encoded(json, DEFAULT_CODEC)


DEFAULT_CODEC = Codec()
"""Knows the registered types and the loaded modules, and reads what any other codec still alive can."""
