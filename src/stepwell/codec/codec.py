"""Typed values to JSON and back: a closed, inert, readable format.

What JSON can say is plain JSON; everything else is an object whose first key is `$`:
`{"$":"tuple","v":[1,2]}`, `{"$":"shop.orders:Order","v":{"id":7}}`. Reading never imports a module
and calls no constructor of a user's class because data says so: a class is found only where it
is already known, and only if it is of a kind that holds data.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from datetime import tzinfo
from math import isfinite
from typing import Any, TypeVar, overload
from weakref import WeakValueDictionary

import msgspec

from stepwell.codec import registry
from stepwell.codec.annotations import reachable_types
from stepwell.codec.class_kinds import is_storable, kind_of
from stepwell.codec.classes import tag_of
from stepwell.codec.cycles import circle_in
from stepwell.codec.numpy_arrays import NUMPY_BY_TAG, is_special_array, numpy_kind
from stepwell.codec.pickles import PickleKind
from stepwell.codec.plain_json import AS_THEY_ARE, ATOMS, INT_MAX, INT_MIN, is_object
from stepwell.codec.standard_values import VALUES, VALUES_BY_TAG, dump, dump_canonical
from stepwell.codec.stored_names import is_ours, stored_name
from stepwell.codec.traversal import DEPTH, NO_ROOM, TOO_DEEP, Refused, ValueKind, key_step, shorten
from stepwell.codec.versions import Upcast
from stepwell.errors import CodecError

__all__ = ["DEFAULT_CODEC", "Codec", "Encoded", "reachable_types", "register_checkpoint_type"]

T = TypeVar("T")

_DEEPEST = DEPTH + 1  # a text that UTF-8 cannot say is not counted when it is written, and is an object when read

_BY_TAG = VALUES_BY_TAG | NUMPY_BY_TAG

_parse = msgspec.json.Decoder().decode

_CLOSED: Any = object()  # stands where a parcel holds no atom
_LATER: Any = object()  # stands where a decorator gets its class later

_of_any_codec: WeakValueDictionary[str, type] = WeakValueDictionary()


@overload
def register_checkpoint_type(
    cls: type[T],
    *,
    version: int = 1,
    upcast: Mapping[int, Upcast] | None = None,
    names: Iterable[str] = (),
    pickle: bool = False,
    pickle_needs: Iterable[Callable[..., Any]] = (),
) -> type[T]: ...


@overload
def register_checkpoint_type(
    *,
    version: int = 1,
    upcast: Mapping[int, Upcast] | None = None,
    names: Iterable[str] = (),
    pickle: bool = False,
    pickle_needs: Iterable[Callable[..., Any]] = (),
) -> Callable[[type[T]], type[T]]: ...


def register_checkpoint_type(
    cls: Any = _LATER,
    *,
    version: int = 1,
    upcast: Mapping[int, Upcast] | None = None,
    names: Iterable[str] = (),
    pickle: bool = False,
    pickle_needs: Iterable[Callable[..., Any]] = (),
) -> Any:
    """Let every codec of this process find `cls`; a later class of the same name takes its place.

    `version` is stored with each instance. `upcast` says, for each version before, how its fields become
    those of the next. `names` are those it was stored under before, each like `"shop.orders:Order"`.

    `pickle=True` stores instances of exactly this class by pickle. Reading a pickle runs code: of this
    class, of the others registered so, and of what `pickle_needs` lists; it can name nothing else.
    """
    terms = registry.terms_from(version, upcast, names, pickle, pickle_needs)

    def register(cls: type[T]) -> type[T]:
        registry.register(cls, terms)
        return cls

    return register if cls is _LATER else register(cls)


class Codec:
    """Writes and reads values, among them instances of the classes it was given, local ones too."""

    def __init__(self, types: Iterable[type] = ()) -> None:
        self._types = {tag_of(cls): cls for cls in types if is_storable(cls)}
        self._kinds: dict[type, ValueKind] = {}
        _of_any_codec.update(self._types)
        registry.subscribe(self)

    def forget(self) -> None:
        """A class was registered: how each is written is to be found out again."""
        self._kinds.clear()

    def encode(self, value: object, what: str = "$") -> bytes:
        """The bytes of a value; CodecError, with the path from `what`, if it cannot be stored."""
        try:
            return dump(self._close(value, 0))
        except Refused as refused:
            raise self._refusal(refused, value, what) from refused.__cause__
        except RecursionError:
            raise self._refusal(Refused(NO_ROOM), value, what) from None

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
            raise CodecError(NO_ROOM, path=what) from None
        except (msgspec.MsgspecError, ValueError) as error:
            raise CodecError(
                f"what is stored is not JSON, so it is damaged or cut short ({error})", path=what
            ) from error

    def pack(self, value: object, what: str) -> Encoded:
        """Close a value, so that nobody can change it any more; CodecError if it cannot be stored."""
        kind = type(value)
        if kind in ATOMS and (kind is not int or INT_MIN <= value <= INT_MAX):  # type: ignore[operator]
            return Encoded(None, self, value)
        return Encoded(self.encode(value, what), self)

    def digest(self, value: object, what: str = "$") -> str:
        """A fingerprint: equal for equal values, whatever the order of their dicts and sets."""
        try:
            return hashlib.sha256(dump_canonical(self._close(value, 0))).hexdigest()
        except Refused as refused:
            raise self._refusal(refused, value, what) from refused.__cause__
        except RecursionError:
            raise self._refusal(Refused(NO_ROOM), value, what) from None

    # --- writing ------------------------------------------------------------------------------------------------------

    def _close(self, value: Any, depth: int) -> Any:
        """The JSON tree of a value. Most parts are plain, so they are asked for first, and in one frame.

        What JSON can say as it is becomes part of the tree itself, not a copy: the tree is to be read only.
        """
        kind = type(value)
        if kind in AS_THEY_ARE:
            return value
        if kind is int:
            if INT_MIN <= value <= INT_MAX:
                return value
        elif kind is float and isfinite(value):
            return value
        if depth >= DEPTH:
            raise Refused(TOO_DEEP)
        if kind is list or (kind is dict and is_object(value)):
            closed, step = value, None
            try:
                for step, item in enumerate(value) if kind is list else value.items():
                    if (
                        type(item) not in AS_THEY_ARE
                        and (type(item) is not int or not INT_MIN <= item <= INT_MAX)
                        and (part := self._close(item, depth + 1)) is not item
                    ):
                        if closed is value:
                            closed = value.copy()
                        closed[step] = part
            except Refused as refused:
                refused.at(key_step(step))
                raise
            return closed
        value_kind = self._find_kind(kind)
        try:
            return value_kind.close(value, self._close, depth)
        except (Refused, RecursionError):
            raise
        except Exception as error:
            raise Refused(f"this `{kind.__qualname__}` cannot be stored: {shorten(error)}") from error

    def _find_kind(self, cls: type) -> ValueKind:
        return VALUES.get(cls) or self._kinds.get(cls) or self._learn(cls)

    def _learn(self, cls: type) -> ValueKind:
        """How to write a class; refused unless it would be found again at reading."""
        kind = numpy_kind(cls) or self._kind_now(cls)
        if kind is None:
            raise Refused(_why_not(cls))
        if is_ours(cls) and stored_name(cls) is None:
            raise Refused(f"`{cls.__qualname__}` is a working part of the library, which is not stored")
        readable = cls if kind.tag in NUMPY_BY_TAG else self._find(kind.tag)
        if readable is None:
            raise Refused(
                f"`{cls.__qualname__}` could not be found again when this is read: define it at the top of a module, "
                f"name it in the annotation of a handler, or pass it to register_checkpoint_type"
            )
        if readable is not cls:
            raise Refused(
                f"`{cls.__qualname__}` would come back as another class of the same name: "
                f"rename one of the two, or build the workflow again after defining it again"
            )
        self._kinds[cls] = kind
        return kind

    def _kind_now(self, cls: type) -> ValueKind | None:
        """How a user's class is stored, under the terms it was registered with."""
        terms = registry.terms_of(cls)
        kind = kind_of(cls, terms.versions)
        return PickleKind(cls, kind) if terms.pickled else kind

    def _refusal(self, refused: Refused, value: object, what: str) -> CodecError:
        """The error for people. A value that is too deep may contain itself, and then that is what to say."""
        circle = circle_in(value, self._find_kind) if refused.message in (TOO_DEEP, NO_ROOM) else None
        if circle is not None:
            return CodecError(circle.describe(what), path=circle.path(what))
        return CodecError(refused.message, path=refused.path(what))

    # --- reading ------------------------------------------------------------------------------------------------------

    def _open(self, tree: Any, depth: int) -> Any:
        """The value of a JSON tree, made where the tree lies: it is fresh from the parser and ours."""
        kind = type(tree)
        if kind is not dict and kind is not list:
            return tree
        if depth >= _DEEPEST:
            raise Refused(TOO_DEEP)
        if kind is dict and "$" in tree:
            value_kind = self._kind_of(tree)
            try:
                return value_kind.open(tree, self._open, depth)
            except (Refused, RecursionError):
                raise
            except Exception as error:  # a class of a user takes part in this: its defaults, its hash
                raise Refused(f"a stored `{shorten(value_kind.tag)}` cannot be read: {shorten(error)}") from error
        step: Any = 0
        try:
            for step, item in tree.items() if kind is dict else enumerate(tree):
                if type(item) is dict or type(item) is list:
                    tree[step] = self._open(item, depth + 1)
        except Refused as refused:
            refused.at(key_step(step))
            raise
        return tree

    def _kind_of(self, tree: dict[str, Any]) -> ValueKind:
        tag = tree["$"]
        if type(tag) is not str:
            raise Refused("`$` should name a type, and holds something else")
        kind = _BY_TAG.get(tag) or self._kind_for(tag, "by" in tree)
        if "v" not in tree or not tree.keys() <= kind.members:
            raise Refused(
                f"a stored `{shorten(tag)}` should have {_list_names(kind.members)}, and has {_list_names(tree)}"
            )
        return kind

    def _kind_for(self, tag: str, pickled: bool) -> ValueKind:
        own = self._find(tag)
        cls = own or _of_any_codec.get(tag)
        if cls is None:
            raise Refused(
                f"the type `{shorten(tag)}` is not known here: import the module that defines it before this is read, "
                f"or pass it to register_checkpoint_type"
            )
        kind = self._kinds.get(cls) or self._kind_now(cls)
        if pickled and not isinstance(kind, PickleKind):
            raise Refused(
                f"a `{shorten(tag)}` was stored by pickle, and is read so only where the program says "
                f"register_checkpoint_type({cls.__qualname__}, pickle=True)"
            )
        if kind is None:
            raise Refused(_why_not(cls))
        if own is not None:  # a class that only another codec knows may go when that codec goes
            self._kinds[cls] = kind
        return kind

    def _find(self, tag: str) -> type | None:
        """The class of a tag, from where classes are already known. What somebody said goes before what is so."""
        return (
            registry.renamed.get(tag)
            or self._types.get(tag)
            or registry.registered.get(tag)
            or registry.find_loaded(tag)
            or self._find_moved(tag)
        )

    def _find_moved(self, tag: str) -> type | None:
        """The one known class of that name whose module goes by another name now, as a script's does."""
        module, _, name = tag.partition(":")
        anywhere = module == "__main__" or module not in sys.modules
        candidates = {
            cls
            for cls in (*self._types.values(), *registry.registered.values())
            if cls.__qualname__ == name and (anywhere or cls.__module__ == "__main__")
        }
        return candidates.pop() if len(candidates) == 1 else None


def _refuse_depth(tree: Any, depth: int) -> None:
    if depth >= DEPTH:
        raise Refused(TOO_DEEP)
    for item in tree.values() if type(tree) is dict else tree:
        if type(item) is dict or type(item) is list:
            _refuse_depth(item, depth + 1)


def _list_names(names: Iterable[str]) -> str:
    return shorten(", ".join(f"`{shorten(name)}`" for name in sorted(names)))


def _why_not(cls: type) -> str:
    """Why instances of a class cannot be stored, and what to do."""
    name = cls.__qualname__
    if issubclass(cls, tzinfo):
        return f"`{name}` is a time zone that cannot be stored: use `zoneinfo.ZoneInfo` or a fixed `datetime.timezone`"
    if is_special_array(cls):
        return f"`{name}` extends `ndarray` and would not come back as itself: use a plain array (numpy.asarray)"
    base = next((base for base in cls.__mro__[1:] if base in ATOMS or base in VALUES or base is list), None)
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
        return _restore, (self.json,)

    def __repr__(self) -> str:
        return f"Encoded({shorten(self.json.decode('utf-8', 'replace'))})"


def _restore(json: bytes) -> Encoded:
    return Encoded(json, DEFAULT_CODEC)


DEFAULT_CODEC = Codec()
"""Knows the registered types and the loaded modules, and reads what any other codec still alive can."""
