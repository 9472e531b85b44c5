"""Facts about a class that every kind of the codec needs: its tag, its slots, its hidden state, its version."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepwell.codec.stored_names import stored_name
from stepwell.codec.traversal import Refused, shorten

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: created at run time, not a static type of C code
_POINTER = struct.calcsize("P")


def import_path(cls: Any) -> str:
    """Return the place where a program finds a class or function, as `module:qualified.name`."""
    return f"{cls.__module__}:{cls.__qualname__}"


def tag_of(cls: type) -> str:
    """Return the name a class is stored under: a stable one for ours, the import path for a user's."""
    return stored_name(cls) or import_path(cls)


def hides_nothing(cls: type) -> bool:
    """Return whether everything this class adds to its base is visible from Python.

    State that lives in C would be lost without notice. Extension modules make heap types too
    (`io.BytesIO` became one in Python 3.12), so the flag alone proves nothing: a class hides state
    if its instances are larger than its slots, `__dict__` and `__weakref__` account for.
    """
    base = cls.__base__
    if base is None or not cls.__flags__ & _HEAP_TYPE or cls.__itemsize__ != base.__itemsize__:
        return False
    slots = vars(cls).get("__slots__", ())
    visible = {slots} if isinstance(slots, str) else set(slots)
    visible |= vars(cls).keys() & {"__dict__", "__weakref__"}
    return cls.__basicsize__ - base.__basicsize__ <= _POINTER * len(visible)


def slots_of(cls: type) -> frozenset[str]:
    """Return the names that instances keep in slots, without the dunder slots of Python and pydantic."""
    names: set[str] = set()
    for base in cls.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            # `__name` in a class body is stored as `_Class__name`, without the underscores of the class
            private = name.startswith("__") and not name.endswith("__")
            names.add(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return frozenset(name for name in names if not name.endswith("__"))


def computed_names(cls: type) -> frozenset[str]:
    """Return the attributes that instances compute by themselves, which are therefore not stored."""
    cached = (
        name
        for base in cls.__mro__
        for name, attribute in vars(base).items()
        if isinstance(attribute, functools.cached_property)
    )
    return frozenset({*cached, "__orig_class__"})  # set by `typing` on instances made as `Box[int](1)`


# Classes that changed: the version a class is stored as, and how older versions are upgraded

Upcast = Callable[[Any], Any]
"""Turns what one version stored (the fields; for an enum, its name or number) into that of the next."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The current version of a class in this program, and the upcasts that lead to it."""

    current: int = 1
    upcast: Mapping[int, Upcast] = field(default_factory=dict)

    def head(self, tag: str) -> dict[str, Any]:
        """Return the first keys of an instance's object; version 1 is left out to keep most objects short."""
        return {"$": tag} if self.current == 1 else {"$": tag, "n": self.current}

    def upgrade(self, tree: dict[str, Any], stored: Any, name: str) -> Any:
        """Return the stored data in the shape of the current version, or raise Refused."""
        version = tree.get("n", 1)
        # the type is part of the check because True == 1 and 1.0 == 1
        if version == self.current and type(version) is int:
            return stored
        if type(version) is not int or version < 1:
            raise Refused(f"`n`, the stored version of `{name}`, is not a positive integer")
        if version > self.current:
            raise Refused(
                f"`{name}` was stored as version {shorten(version)}, but this program knows it only up to version "
                f"{self.current}: read it with the newer program"
            )
        for step in range(version, self.current):
            stored = self._upgrade_once(step, stored, name)
        return stored

    def _upgrade_once(self, version: int, stored: Any, name: str) -> Any:
        upcast = self.upcast.get(version)
        if upcast is None:
            raise Refused(
                f"version {version} of `{name}` is stored, but it has no upcast to version {version + 1}: "
                f"register `{name}` with upcast={{{version}: ...}}"
            )
        kind = type(stored)
        try:
            upgraded = upcast(stored)
        except Exception as error:  # a user's function may raise anything
            raise Refused(
                f"the upcast of `{name}` from version {version} to {version + 1} failed: "
                f"{type(error).__name__}: {shorten(error)}"
            ) from error
        if type(upgraded) is not kind:
            raise Refused(
                f"the upcast of `{name}` from version {version} to {version + 1} must return "
                f"a `{kind.__name__}`, but returned a `{type(upgraded).__name__}`"
            )
        return upgraded


FIRST = Versions()
"""The versions of a class that was registered without any, or not at all. Compared by identity."""
