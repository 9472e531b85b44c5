"""`count = persistent(0)`: an attribute of an executor that lives in the run."""

from __future__ import annotations

from functools import cache
from typing import Any, Generic, Self, TypeVar, overload

from stepwell.model.payload import plain_copy

T = TypeVar("T")


class persistent(Generic[T]):  # noqa: N801 - reads as a word in a class body
    """Declares an attribute that is saved in every checkpoint, restored with it, and is each run's own.

    The default is copied, so `persistent([])` is a list of each run's own too.
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
        if self._name not in values:  # kept from the first look on: a list must stay the list it was
            values[self._name] = plain_copy(self._default)
        return values[self._name]

    def __set__(self, instance: object, value: T) -> None:
        vars(instance)[self._name] = value


def persistent_names(cls: type) -> tuple[str, ...]:
    """The persistent attributes of a class, its bases' first."""
    hashable: Any = cls
    return _names(hashable)


@cache
def _names(cls: type) -> tuple[str, ...]:
    attributes = {name: attribute for base in reversed(cls.__mro__) for name, attribute in vars(base).items()}
    return tuple(name for name, attribute in attributes.items() if isinstance(attribute, persistent))
