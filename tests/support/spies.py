"""Functions that a test puts in the place of others, to see what they are called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def spy(original: Callable[P, R], calls: list[T], detail: Callable[..., T]) -> Callable[P, R]:
    """Return a function that appends `detail(*args, **kwargs)` to `calls` and then calls the original."""

    def spied(*args: P.args, **kwargs: P.kwargs) -> R:
        calls.append(detail(*args, **kwargs))
        return original(*args, **kwargs)

    return spied


def first(argument: T, *rest: Any, **options: Any) -> T:
    """The detail of a spy that notes the first argument."""
    return argument
