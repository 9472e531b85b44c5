"""What the codec asks of a class, whatever kind it is of."""

from __future__ import annotations

import functools
import struct
from typing import Any

from stepwell.codec.stored_names import stored_name

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: not one of the static types of C
_POINTER = struct.calcsize("P")


def import_path(cls: Any) -> str:
    """Where a program finds a class, or a function."""
    return f"{cls.__module__}:{cls.__qualname__}"


def tag_of(cls: type) -> str:
    """The name a class is stored under: for ours a stable one, for a user's where it is found."""
    return stored_name(cls) or import_path(cls)


def hides_nothing(cls: type) -> bool:
    """Do instances of this class keep all that it adds to its base where Python sees it?

    Extension modules make heap types too (`io.BytesIO` became one in Python 3.12), so the flag alone says nothing: a
    class hides something if its instances are larger than its slots, `__dict__` and `__weakref__` account for.
    """
    base = cls.__base__
    if base is None or not cls.__flags__ & _HEAP_TYPE or cls.__itemsize__ != base.__itemsize__:
        return False
    slots = vars(cls).get("__slots__", ())
    visible = {slots} if isinstance(slots, str) else set(slots)
    visible |= vars(cls).keys() & {"__dict__", "__weakref__"}
    return cls.__basicsize__ - base.__basicsize__ <= _POINTER * len(visible)


def slots_of(cls: type) -> frozenset[str]:
    """The names its instances keep in slots, without those that belong to Python, and to pydantic."""
    names: set[str] = set()
    for base in cls.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            private = name.startswith("__") and not name.endswith("__")
            names.add(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return frozenset(name for name in names if not name.endswith("__"))


def computed_names(cls: type) -> frozenset[str]:
    """What its instances carry without having been given it: it is computed again, and not stored."""
    cached = (
        name
        for base in cls.__mro__
        for name, attribute in vars(base).items()
        if isinstance(attribute, functools.cached_property)
    )
    return frozenset({*cached, "__orig_class__"})  # typing leaves that on `Box[int](1)`
