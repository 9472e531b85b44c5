"""Says why instances of a class cannot be stored."""

from __future__ import annotations

from dataclasses import is_dataclass
from datetime import tzinfo

from stepwell.codec.numpy_arrays import is_special_array
from stepwell.codec.standard_values import BUILT_IN


def explain_unstorable(cls: type) -> str:
    """Return why instances of a class cannot be stored, and what to do instead."""
    name = cls.__qualname__
    if issubclass(cls, tzinfo):
        return f"`{name}` is a time zone that cannot be stored: use `zoneinfo.ZoneInfo` or a fixed `datetime.timezone`"
    if is_special_array(cls):
        return f"`{name}` extends `ndarray` and would come back as a plain array: store numpy.asarray(...) instead"
    base = next((base for base in cls.__mro__[1:] if base in BUILT_IN), None)
    if base is not None:
        return f"`{name}` extends `{base.__name__}` and would lose its type: use a plain `{base.__name__}`"
    if is_dataclass(cls):
        return f"`{name}` is a dataclass that extends a built-in class, and would lose its content: remove that base"
    return (
        f"`{name}` cannot be stored: use a dataclass, a pydantic model, or plain data, "
        f"or keep it out of messages and state"
    )
