"""Facts about a class that every kind of the codec needs: its tag, its slots, its hidden state."""

from __future__ import annotations

import functools
import struct
from typing import Any

from stepwell.codec.stored_names import stored_name

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
