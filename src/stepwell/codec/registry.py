"""The classes that reading may find: those registered, with the terms they are stored under, and those loaded."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

import msgspec

from stepwell.codec.class_kinds import is_storable
from stepwell.codec.classes import tag_of
from stepwell.codec.modules import ROOT
from stepwell.codec.numpy_arrays import numpy_kind
from stepwell.codec.standard_values import VALUES
from stepwell.codec.stored_names import find_class, is_ours
from stepwell.codec.traversal import shorten
from stepwell.codec.versions import FIRST, Upcast, Versions

_TAG = re.compile(r"[^:\s]+:[^:]+")
_NEVER_PICKLED = frozenset({str, bool, type(None), int, float, list, *VALUES})


class Terms(msgspec.Struct, frozen=True):
    """What was said about a class when it was registered."""

    versions: Versions = FIRST
    names: tuple[str, ...] = ()
    pickled: bool = False
    needs: tuple[Callable[..., Any], ...] = ()


class Learner(Protocol):
    """Whoever keeps what it has learned about classes."""

    def forget(self) -> None:
        """A class was registered: what was learned may be so no more."""


_PLAIN = Terms()
_terms: WeakKeyDictionary[type, Terms] = WeakKeyDictionary()
_learners: WeakSet[Learner] = WeakSet()

registered: dict[str, type] = {}
"""The registered classes, by the names they are stored under."""

renamed: dict[str, type] = {}
"""The registered classes that say they were stored under another name before, by that name."""


def subscribe(learner: Learner) -> None:
    """Tell it, as long as it lives, when a class is registered."""
    _learners.add(learner)


def terms_of(cls: type) -> Terms:
    return _terms.get(cls, _PLAIN)


def find_loaded(tag: str) -> type | None:
    """The class in a loaded module, or one of ours; looked up without any hook that could import, or run code."""
    module, names = _split_tag(tag)
    if module.partition(".")[0] == ROOT:
        return find_class(tag)
    place: Any = sys.modules.get(module)
    for name in names:
        try:
            place = object.__getattribute__(place, "__dict__").get(name)
        except AttributeError:
            return None
    # a class that was moved, and that its old module still leads to under its name, is the one that is meant
    return place if isinstance(place, type) and place.__qualname__ == ".".join(names) else None


@functools.lru_cache(maxsize=1024)
def _split_tag(tag: str) -> tuple[str, tuple[str, ...]]:
    module, _, name = tag.partition(":")
    return module, (name,) if "[" in name else tuple(name.split("."))  # pydantic's `Page[int]` is one name


# --- registering ------------------------------------------------------------------------------------------------------


def register(cls: Any, terms: Terms) -> None:
    """Make a class known under these terms; saying nothing about a known class leaves its terms as they are."""
    _refuse_class(cls, terms)
    tag = tag_of(cls)
    for name in terms.names:
        if name in renamed and tag_of(renamed[name]) != tag:
            raise ValueError(f"`{name}` is an old name of `{tag_of(renamed[name])}` already")
    if terms != _PLAIN or registered.get(tag) is not cls:
        for name in [name for name, other in renamed.items() if tag_of(other) == tag]:
            del renamed[name]
        renamed.update({name: cls for name in terms.names if name != tag})
        registered[tag], _terms[cls] = cls, terms
    for learner in list(_learners):
        learner.forget()


def _refuse_class(cls: Any, terms: Terms) -> None:
    if not isinstance(cls, type):
        raise TypeError(f"register_checkpoint_type takes a class, not {shorten(repr(cls))}")
    if terms.pickled and (cls in _NEVER_PICKLED or numpy_kind(cls) or is_ours(cls)):
        raise TypeError(f"`{cls.__qualname__}` is stored without pickle")
    if not terms.pickled and not is_storable(cls):
        raise TypeError(
            f"`{cls.__qualname__}` cannot be stored: register a dataclass, an enum, a named tuple, "
            f"a pydantic model, a msgspec struct or an exception, or say pickle=True"
        )


def terms_from(
    version: Any, upcast: Any, names: Iterable[str], pickle: bool, pickle_needs: Iterable[Callable[..., Any]]
) -> Terms:
    """The terms, if they make sense; TypeError or ValueError if they do not."""
    if pickle and (version != 1 or upcast):
        raise ValueError("a pickle has no fields: `version` and `upcast` are for classes stored without it")
    needs = tuple(pickle_needs)
    if needs and not pickle:
        raise ValueError("`pickle_needs` is for classes with pickle=True")
    if any(not hasattr(need, "__qualname__") for need in needs):
        raise TypeError("`pickle_needs` lists classes and functions")
    return Terms(_versions(version, upcast or {}), tuple(_tags(names)), bool(pickle), needs)


def _versions(version: Any, upcast: Mapping[int, Upcast]) -> Versions:
    if type(version) is not int or version < 1:
        raise ValueError(f"a version is a whole number from 1 on, not {shorten(repr(version))}")
    for step, function in upcast.items():
        if type(step) is not int or not 1 <= step < version:
            raise ValueError(
                f"`upcast` says how each version before {version} becomes the next, and names {shorten(repr(step))}"
            )
        if not callable(function):
            raise TypeError(f"`upcast` should hold a function for version {step}")
    return FIRST if version == 1 else Versions(version, dict(upcast))


def _tags(names: Iterable[str]) -> Iterator[str]:
    if isinstance(names, str):
        raise TypeError("`names` is a list of names, each like 'shop.orders:Order'")
    for name in names:
        if not isinstance(name, str) or not _TAG.fullmatch(name):
            raise ValueError(f"an old name is like 'shop.orders:Order', not {shorten(repr(name))}")
        yield name
