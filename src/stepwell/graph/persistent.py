"""Persistent attributes of executors: `count = persistent(0)` is saved with the run."""

from __future__ import annotations

from functools import cache
from typing import Any, Generic, Self, TypeVar, overload

from stepwell.model.payload import plain_copy

T = TypeVar("T")


class persistent(Generic[T]):  # noqa: N801 - reads as a word in a class body
    """An attribute that is saved in every checkpoint and restored with it. Each run has its own value.

    The default is copied, so with `persistent([])` each run has its own list.
    """

    def __init__(self, default: T) -> None:
        self._default, self._name = default, ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        values = vars(instance)
        # Kept on the instance at the first access: `self.items.append(...)` must change the same list
        # that the next access returns.
        if self._name not in values:
            values[self._name] = plain_copy(self._default)
        return values[self._name]

    def __set__(self, instance: object, value: T) -> None:
        vars(instance)[self._name] = value


def persistent_names(cls: type) -> tuple[str, ...]:
    """Return the names of the persistent attributes of a class, those of its bases first."""
    # Any: `cache` requires a Hashable, and mypy does not accept a class as one.
    hashable: Any = cls
    return _names(hashable)


@cache
def _names(cls: type) -> tuple[str, ...]:
    attributes = {name: attribute for base in reversed(cls.__mro__) for name, attribute in vars(base).items()}
    return tuple(name for name, attribute in attributes.items() if isinstance(attribute, persistent))
