"""The classes that reading may find: those registered in this process, and those in loaded modules."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import msgspec

from stepwell.codec.class_kinds import is_storable
from stepwell.codec.classes import FIRST, Upcast, Versions, tag_of
from stepwell.codec.modules import ROOT
from stepwell.codec.numpy_arrays import numpy_kind
from stepwell.codec.standard_values import BUILT_IN
from stepwell.codec.stored_names import find_class, is_ours
from stepwell.codec.traversal import shorten

_TAG = re.compile(r"[^:\s]+:[^:]+")


class Registration(msgspec.Struct, frozen=True):
    """How the instances of one class are stored, as declared when it was registered."""

    versions: Versions = FIRST
    # the tags it was stored under in the past
    names: tuple[str, ...] = ()
    pickled: bool = False
    pickle_needs: tuple[Callable[..., Any], ...] = ()
    # stored by its attributes, except these, with what they are read as; None: stored in another way
    omitted_attributes: Mapping[str, Any] | None = None


class KindCache(Protocol):
    """An object that remembers how classes are stored, and must forget it when a registration changes."""

    def clear_kinds(self) -> None: ...


_UNREGISTERED = Registration()


class TypeRegistry:
    """Everything this process has declared about the classes it stores.

    There is one, `REGISTRY`, for the whole process: `register_checkpoint_type` is a decorator that
    runs while modules are imported, before there is any codec, and every codec must obey it.
    """

    def __init__(self) -> None:
        self.by_tag: dict[str, type] = {}
        """The registered classes, by the tag they are stored under."""

        self.by_former_name: dict[str, type] = {}
        """The registered classes that were renamed or moved, by each tag they had before."""

        # Weak, because a class defined in a function, or a codec, must not live on for the registry's sake.
        self._registrations: WeakKeyDictionary[type, Registration] = WeakKeyDictionary()
        self._caches: WeakSet[KindCache] = WeakSet()
        self.codec_types: WeakValueDictionary[str, type] = WeakValueDictionary()
        """The classes that codecs still alive were given, by their tags."""

    def add_codec(self, codec: KindCache, types: Mapping[str, type]) -> None:
        """Clear the codec's cache whenever a class is registered, and let other codecs find its types."""
        self._caches.add(codec)
        self.codec_types.update(types)

    def registration_of(self, cls: type) -> Registration:
        """Return how a class is stored; the defaults if it was never registered."""
        return self._registrations.get(cls, _UNREGISTERED)

    def register(self, cls: Any, registration: Registration) -> None:
        """Register a class. A bare registration of a class that is already known changes nothing."""
        _check_class(cls, registration)
        tag = tag_of(cls)
        for name in registration.names:
            if name in self.by_former_name and tag_of(self.by_former_name[name]) != tag:
                raise ValueError(f"`{name}` is already a former name of `{tag_of(self.by_former_name[name])}`")
        if registration != _UNREGISTERED or self.by_tag.get(tag) is not cls:
            # a class that is defined again (a reloaded module, a notebook cell) replaces its predecessor
            for name in [name for name, other in self.by_former_name.items() if tag_of(other) == tag]:
                del self.by_former_name[name]
            self.by_former_name.update({name: cls for name in registration.names if name != tag})
            self.by_tag[tag], self._registrations[cls] = cls, registration
        for cache in list(self._caches):
            cache.clear_kinds()


REGISTRY = TypeRegistry()


def find_loaded(tag: str) -> type | None:
    """Return the class of a tag if its module is loaded, or if it is one of ours.

    Attributes are read from `__dict__` directly: a module's `__getattr__` could import or run code,
    and data must not be able to cause that.
    """
    module, names = _split_tag(tag)
    if module.partition(".")[0] == ROOT:
        return find_class(tag)
    place: Any = sys.modules.get(module)
    for name in names:
        try:
            place = object.__getattribute__(place, "__dict__").get(name)
        except AttributeError:
            return None
    # Compare the qualified name only: a class that moved, and that its old module still exports, is meant
    return place if isinstance(place, type) and place.__qualname__ == ".".join(names) else None


@functools.lru_cache(maxsize=1024)
def _split_tag(tag: str) -> tuple[str, tuple[str, ...]]:
    module, _, name = tag.partition(":")
    return module, (name,) if "[" in name else tuple(name.split("."))  # pydantic's `Page[a.B]` is one name


# --- registrations ----------------------------------------------------------------------------------------------------


def make_registration(
    version: Any, upcast: Any, names: Iterable[str], pickle: bool, pickle_needs: Iterable[Callable[..., Any]]
) -> Registration:
    """Check the arguments of `register_checkpoint_type`. Raises TypeError or ValueError."""
    if pickle and (version != 1 or upcast):
        raise ValueError("`version` and `upcast` cannot be combined with pickle=True: a pickle has no fields")
    needs = tuple(pickle_needs)
    if needs and not pickle:
        raise ValueError("`pickle_needs` requires pickle=True")
    if any(not hasattr(need, "__qualname__") for need in needs):
        raise TypeError("`pickle_needs` must contain classes and functions only")
    return Registration(_make_versions(version, upcast or {}), tuple(_check_names(names)), bool(pickle), needs)


def _check_class(cls: Any, registration: Registration) -> None:
    if not isinstance(cls, type):
        raise TypeError(f"register_checkpoint_type takes a class, not {shorten(repr(cls))}")
    if registration.pickled and (cls in BUILT_IN or numpy_kind(cls) or is_ours(cls)):
        raise TypeError(f"`{cls.__qualname__}` is stored without pickle: leave out pickle=True")
    if not registration.pickled and registration.omitted_attributes is None and not is_storable(cls):
        raise TypeError(
            f"`{cls.__qualname__}` cannot be stored: register a dataclass, an enum, a named tuple, "
            f"a pydantic model, a msgspec struct or an exception, or pass pickle=True"
        )


def _make_versions(version: Any, upcast: Mapping[int, Upcast]) -> Versions:
    if type(version) is not int or version < 1:
        raise ValueError(f"version must be an integer of 1 or more, not {shorten(repr(version))}")
    for step, function in upcast.items():
        if type(step) is not int or not 1 <= step < version:
            raise ValueError(f"the keys of `upcast` must be versions before {version}, not {shorten(repr(step))}")
        if not callable(function):
            raise TypeError(f"`upcast` must map version {step} to a function")
    return FIRST if version == 1 else Versions(version, dict(upcast))


def _check_names(names: Iterable[str]) -> Iterator[str]:
    if isinstance(names, str):
        raise TypeError("`names` must be a list of names like 'shop.orders:Order', not a single string")
    for name in names:
        if not isinstance(name, str) or not _TAG.fullmatch(name):
            raise ValueError(f"a former name must look like 'shop.orders:Order', not {shorten(repr(name))}")
        yield name
