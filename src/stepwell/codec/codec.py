"""The codec: typed values to JSON and back, in a closed, inert and readable format.

What JSON expresses directly is plain JSON; everything else is an object with a `$` key that names
its type: `{"$":"tuple","v":[1,2]}`, `{"$":"shop.orders:Order","v":{"id":7}}`. Stored data can
neither import a user's module nor call a constructor (msgspec structs excepted): a class is found
only where it is already known, and only if it is of a kind that holds data.

To *close* a value is to make its JSON tree, to *open* a tree is to read it. Beside `$` and `v`, the
key `n` holds the version of a class, and `by` marks a pickle.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, TypeVar, overload

import msgspec

from stepwell.codec.annotations import reachable_types
from stepwell.codec.attributes import AttributesKind
from stepwell.codec.class_kinds import is_storable, kind_of
from stepwell.codec.classes import Upcast, tag_of
from stepwell.codec.encoded import Encoded, PayloadCodec
from stepwell.codec.numpy_arrays import NUMPY_BY_TAG, numpy_kind
from stepwell.codec.pickles import PickleKind
from stepwell.codec.registry import REGISTRY, find_loaded, make_registration
from stepwell.codec.standard_values import VALUES, VALUES_BY_TAG, dump, dump_canonical
from stepwell.codec.stored_names import is_ours, stored_name
from stepwell.codec.traversal import (
    DEPTH,
    INT_MAX,
    INT_MIN,
    STACK_EXHAUSTED,
    TOO_DEEP,
    VERBATIM,
    Refused,
    ValueKind,
    describe_json,
    find_cycle,
    is_object,
    key_step,
    shorten,
)
from stepwell.codec.unstorable import explain_unstorable
from stepwell.errors import CodecError

__all__ = ["DEFAULT_CODEC", "Codec", "Encoded", "reachable_types", "register_checkpoint_type"]

T = TypeVar("T")

# A string with a lone surrogate has no level of its own when it is written, but is a tagged object
# when it is read: without the extra level, a value at the limit could be stored and not read.
_READ_DEPTH = DEPTH + 1

_BY_TAG = VALUES_BY_TAG | NUMPY_BY_TAG

_parse = msgspec.json.Decoder().decode

_LATER: Any = object()  # marks a decorator that is called with arguments first and with its class later


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
    """Register `cls` with every codec of this process; a later class of the same name replaces it.

    `version` is stored with each instance. `upcast` maps each earlier version to a function that
    turns its fields into those of the next version. `names` lists the names the class was stored
    under before, each like `"shop.orders:Order"`.

    `pickle=True` stores instances of exactly this class by pickle. Reading a pickle runs code: of this
    class, of the others registered with `pickle=True`, and of what `pickle_needs` lists; it can name
    nothing else.
    """
    registration = make_registration(version, upcast, names, pickle, pickle_needs)

    def register(cls: type[T]) -> type[T]:
        REGISTRY.register(cls, registration)
        return cls

    return register if cls is _LATER else register(cls)


class Codec(PayloadCodec):
    """Writes and reads values, among them instances of the given classes, even local ones."""

    def __init__(self, types: Iterable[type] = ()) -> None:
        self._types = {tag_of(cls): cls for cls in types if is_storable(cls)}
        # How each class is written, found out once: most of the work of encoding would be finding it.
        self._kinds: dict[type, ValueKind] = {}
        REGISTRY.add_codec(self, self._types)

    def clear_kinds(self) -> None:
        """Forget how classes are written, because a class was registered."""
        self._kinds.clear()

    def encode(self, value: object, what: str = "$") -> bytes:
        """Return the bytes of a value. Raises CodecError, with a path that starts at `what`."""
        return self._write(value, what, dump)

    def decode(self, body: bytes, what: str = "$", *, is_checked: bool = False) -> Any:
        """Return the value of stored bytes. Raises CodecError, and nothing else.

        `is_checked`: a codec of this process wrote the bytes, or has read them before.
        """
        try:
            tree = _parse(body)
            # A single byte is found at the speed of memory, three are not
            if b"$" in body and b'"$"' in body:
                return self._open(tree, 0)
            # Without a tag the tree is the value. Counting brackets is far cheaper than a walk, and a
            # tree without so many of them cannot be too deep.
            if not is_checked and body.count(b"[") + body.count(b"{") > DEPTH:
                _check_depth(tree, 0)
            return tree
        except Refused as refused:
            raise CodecError(refused.message, path=refused.path(what)) from refused.__cause__
        except RecursionError:
            raise CodecError(STACK_EXHAUSTED, path=what) from None
        except (msgspec.MsgspecError, ValueError) as error:
            raise CodecError(
                f"the stored data is not JSON, so it is damaged or cut short ({error})", path=what
            ) from error

    def dump_part(self, value: object, depth: int) -> bytes:
        return dump(self._close(value, depth))

    @staticmethod
    def payload_from_json(json: bytes) -> Encoded:
        return Encoded(json, DEFAULT_CODEC)

    def digest(self, value: object, what: str = "$") -> str:
        """Return a fingerprint that is the same for equal values, in any order of dicts and sets."""
        return hashlib.sha256(self._write(value, what, dump_canonical)).hexdigest()

    # --- writing ------------------------------------------------------------------------------------------------------

    def _write(self, value: object, what: str, write: Callable[[Any], bytes]) -> bytes:
        try:
            return write(self._close(value, 0))
        except Refused as refused:
            raise self._codec_error(refused, value, what) from refused.__cause__
        except RecursionError:
            raise self._codec_error(Refused(STACK_EXHAUSTED), value, what) from None

    def _close(self, value: Any, depth: int) -> Any:
        """Return the JSON tree of a value.

        Plain parts of the value become part of the tree itself, not a copy: callers must not change it.
        """
        # Most parts of most values are plain. They are checked first, and lists and dicts are walked
        # right here: a helper for each would double the frames per level and the time per item.
        kind = type(value)
        if kind in VERBATIM:
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
                        type(item) not in VERBATIM
                        and (type(item) is not int or not INT_MIN <= item <= INT_MAX)
                        and (part := self._close(item, depth + 1)) is not item
                    ):
                        if closed is value:  # copy on the first change; the value itself is the user's
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
        return VALUES.get(cls) or self._kinds.get(cls) or self._learn_kind(cls)

    def _learn_kind(self, cls: type) -> ValueKind:
        """Find out how to write a class. Raises Refused unless reading would find the same class."""
        kind = numpy_kind(cls) or self._make_kind(cls)
        if kind is None:
            raise Refused(explain_unstorable(cls))
        if is_ours(cls) and stored_name(cls) is None:
            raise Refused(f"`{cls.__qualname__}` is internal to Stepwell and cannot be stored")
        readable = cls if kind.tag in NUMPY_BY_TAG else self._find_class(kind.tag)
        if readable is None:
            raise Refused(
                f"reading could not find the class `{cls.__qualname__}` again: define it at the top of a module, "
                f"name it in the annotation of a handler, or pass it to register_checkpoint_type"
            )
        if readable is not cls:
            raise Refused(
                f"`{cls.__qualname__}` would come back as another class of the same name: "
                f"rename one of them, or build the workflow again after redefining the class"
            )
        self._kinds[cls] = kind
        return kind

    def _make_kind(self, cls: type) -> ValueKind | None:
        registration = REGISTRY.registration_of(cls)
        if registration.omitted_attributes is not None:
            return AttributesKind(cls, registration.omitted_attributes)
        kind = kind_of(cls, registration.versions)
        return PickleKind(cls, kind) if registration.pickled else kind

    def _codec_error(self, refused: Refused, value: object, what: str) -> CodecError:
        # a value that is too deep usually contains itself, and then that is the better message
        cycle = find_cycle(value, self._find_kind) if refused.message in (TOO_DEEP, STACK_EXHAUSTED) else None
        if cycle is not None:
            return CodecError(cycle.describe(what), path=cycle.path(what))
        return CodecError(refused.message, path=refused.path(what))

    # --- reading ------------------------------------------------------------------------------------------------------

    def _open(self, tree: Any, depth: int) -> Any:
        """Return the value of a JSON tree, built in place: the tree comes fresh from the parser."""
        kind = type(tree)
        if kind is not dict and kind is not list:
            return tree
        if depth >= _READ_DEPTH:
            raise Refused(TOO_DEEP)
        if kind is dict and "$" in tree:
            value_kind = self._check_tag(tree)
            try:
                return value_kind.open(tree, self._open, depth)
            except (Refused, RecursionError):
                raise
            except Exception as error:  # code of a user's class takes part: default factories, `__hash__`
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

    def _check_tag(self, tree: dict[str, Any]) -> ValueKind:
        """Return how a tagged object is read, after checking its keys."""
        tag = tree["$"]
        if type(tag) is not str:
            raise Refused(f"expected the name of a type in `$`, found {describe_json(tag)}")
        kind = _BY_TAG.get(tag) or self._find_kind_by_tag(tag, "by" in tree)
        if "v" not in tree or not tree.keys() <= kind.members:
            raise Refused(
                f"a stored `{shorten(tag)}` should have the keys {_list_names(kind.members)}, "
                f"but has {_list_names(tree)}"
            )
        return kind

    def _find_kind_by_tag(self, tag: str, pickled: bool) -> ValueKind:
        own = self._find_class(tag)
        cls = own or REGISTRY.codec_types.get(tag)
        if cls is None:
            raise Refused(
                f"unknown type `{shorten(tag)}`: import the module that defines it before reading, "
                f"or pass the class to register_checkpoint_type"
            )
        kind = self._kinds.get(cls) or self._make_kind(cls)
        if pickled and not isinstance(kind, PickleKind):
            raise Refused(
                f"a `{shorten(tag)}` was stored by pickle: to allow reading it, call "
                f"register_checkpoint_type({cls.__qualname__}, pickle=True)"
            )
        if kind is None:
            raise Refused(explain_unstorable(cls))
        # A class that only another codec knows is not remembered: the strong reference in the cache
        # would keep it readable here after that codec, and the class with it, is gone.
        if own is not None:
            self._kinds[cls] = kind
        return kind

    def _find_class(self, tag: str) -> type | None:
        """Return the class of a tag, from the places where classes are already known.

        Explicit declarations come before whatever happens to be loaded under the name.
        """
        return (
            REGISTRY.by_former_name.get(tag)
            or self._types.get(tag)
            or REGISTRY.by_tag.get(tag)
            or find_loaded(tag)
            or self._find_moved(tag)
        )

    def _find_moved(self, tag: str) -> type | None:
        """Return the only known class of that name in another module.

        A script is called `__main__` while it runs and by its file name when it is imported; a run
        started by one must be readable by the other.
        """
        module, _, name = tag.partition(":")
        anywhere = module == "__main__" or module not in sys.modules
        candidates = {
            cls
            for cls in (*self._types.values(), *REGISTRY.by_tag.values())
            if cls.__qualname__ == name and (anywhere or cls.__module__ == "__main__")
        }
        return candidates.pop() if len(candidates) == 1 else None


def _check_depth(tree: Any, depth: int) -> None:
    if depth >= DEPTH:
        raise Refused(TOO_DEEP)
    for item in tree.values() if type(tree) is dict else tree:
        if type(item) is dict or type(item) is list:
            _check_depth(item, depth + 1)


def _list_names(names: Iterable[str]) -> str:
    return shorten(", ".join(f"`{shorten(name)}`" for name in sorted(names)))


DEFAULT_CODEC = Codec()
"""The codec without types of its own: it knows the registered classes and those of loaded modules,
and reads what any other codec that is still alive can read."""
