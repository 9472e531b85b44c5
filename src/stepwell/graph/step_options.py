"""The options of a step, as one value: the keywords of `ctx.step` are those of the function it calls."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Generic, Literal, TypeVar, overload

from stepwell.graph.retry import Limits, RetryPolicy, limits
from stepwell.model.valid_text import is_text

IsTransaction = TypeVar("IsTransaction", bound=bool, covariant=True)
StoredErrors = type[Exception] | tuple[type[Exception], ...]


class StepOptions(Generic[IsTransaction]):
    """The name of a step, and how it is executed: `ctx.step(StepOptions("charge", timeout=5), charge, order)`.

    `retry` and `timeout` are those of one call of the function. An error of a class in `remember` is a result:
    it is stored, and raised again. With `key`, name and key identify the step within its handler call, and the
    arguments are not compared. With `transaction=True`, on PostgreSQL storage, a plain function is called with a
    `psycopg.Connection` as its first argument: what it writes is committed together with its result.
    """

    __slots__ = ("key", "limits", "name", "remember", "transaction")

    @overload
    def __init__(
        self: StepOptions[Literal[False]],
        name: str,
        *,
        retry: RetryPolicy | None = ...,
        timeout: float | timedelta | None = ...,
        remember: StoredErrors = ...,
        key: str | None = ...,
        transaction: Literal[False] = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: StepOptions[Literal[True]],
        name: str,
        *,
        retry: RetryPolicy | None = ...,
        timeout: float | timedelta | None = ...,
        remember: StoredErrors = ...,
        key: str | None = ...,
        transaction: Literal[True],
    ) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        retry: RetryPolicy | None = None,
        timeout: float | timedelta | None = None,
        remember: StoredErrors = (),
        key: str | None = None,
        transaction: bool = False,
    ) -> None:
        if not isinstance(name, str) or not name or not is_text(name):
            raise ValueError(f"a step has a name, a non-empty string of whole characters, not {name!r}")
        self.name, self.transaction = name, transaction
        self.key = None if key is None else _check_key(name, key)
        self.limits: Limits = limits(retry, timeout, None)
        self.remember: StoredErrors = remember

    def with_key(self, key: str) -> StepOptions[IsTransaction]:
        """Return the same options with a key."""
        options = copy.copy(self)
        options.key = _check_key(self.name, key)
        return options

    def __repr__(self) -> str:
        return f"<StepOptions of {self.name!r}>"


def _check_key(name: str, key: str) -> str:
    if not isinstance(key, str) or not key or not is_text(key):
        raise ValueError(f"the key of the step {name!r} is a non-empty string of whole characters, not {key!r}")
    return key
