"""Retry policies and time limits of handlers, as declared. `engine` enforces them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from stepwell.errors import HandlerTimeout, StepwellError

Errors = type[BaseException] | tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a handler that raised is called again, and after how long.

    Each interval is `backoff_factor` times the one before, up to `max_interval`. `retry_on` names the
    errors worth another attempt, or is a function that takes the error and returns whether it is.
    Errors of Stepwell itself, other than a handler's timeout, are retried only if their class is named.
    """

    max_attempts: int = 3  # including the first
    # seconds before the second attempt
    initial_interval: float | timedelta = 1.0
    backoff_factor: float = 2.0
    max_interval: float | timedelta = 60.0
    # the fraction of an interval that is random
    jitter: float = 0.5
    retry_on: Errors | Callable[[Exception], bool] = Exception

    def __post_init__(self) -> None:
        _number("max_attempts", self.max_attempts, "an integer of 1 or more", lambda n: n >= 1, int)
        _seconds("initial_interval", self.initial_interval, "0 or more seconds, or a timedelta", _not_negative)
        _number("backoff_factor", self.backoff_factor, "a finite number, 1 or more", lambda n: n >= 1)
        _seconds("max_interval", self.max_interval, "0 or more seconds, or a timedelta", _not_negative)
        _number("jitter", self.jitter, "a number from 0 to 1", lambda n: 0 <= n <= 1)
        _check_retry_on(self.retry_on)

    def wants(self, error: Exception) -> bool:
        """Return whether this error is worth another attempt."""
        classes = _classes(self.retry_on)
        if classes is None:
            return bool(self.retry_on(error))  # type: ignore[operator]  # neither a class nor a tuple: a function
        if isinstance(error, StepwellError) and not isinstance(error, HandlerTimeout):
            # A conflict or a value that cannot be stored is the same in every attempt, so the general
            # `Exception` does not include these errors.
            classes = tuple(cls for cls in classes if issubclass(cls, StepwellError))
        return isinstance(error, classes)

    def delay(self, failed: int, chance: float) -> float:
        """Return the seconds to wait after so many failed attempts. `chance` is random, from 0 to below 1."""
        first, longest = _in_seconds(self.initial_interval), _in_seconds(self.max_interval)
        # 0 never grows; 0 times an infinite power would be nan
        grows = first > 0 and self.backoff_factor > 1
        try:
            interval = first * float(self.backoff_factor) ** (failed - 1) if grows else first
        except OverflowError:
            interval = longest
        return min(longest, interval) * (1 - self.jitter * chance)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one handler call; None where none is declared."""

    retry: RetryPolicy | None = None
    timeout: float | None = None  # seconds for one attempt
    idle_timeout: float | None = None  # seconds without a sign of life

    def or_else(self, others: Limits) -> Limits:
        """These, and where they say nothing, the others."""
        if self is NO_LIMITS:
            return others
        return Limits(
            retry=others.retry if self.retry is None else self.retry,
            timeout=others.timeout if self.timeout is None else self.timeout,
            idle_timeout=others.idle_timeout if self.idle_timeout is None else self.idle_timeout,
        )


NO_LIMITS = Limits()


def limits(
    retry: RetryPolicy | None, timeout: float | timedelta | None, idle_timeout: float | timedelta | None
) -> Limits:
    """Check the arguments of a decorator or constructor. Raises TypeError or ValueError."""
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise TypeError(f"retry must be a RetryPolicy, as in RetryPolicy(max_attempts=3), or None, not {retry!r}")
    declared = Limits(retry, _time_limit("timeout", timeout), _time_limit("idle_timeout", idle_timeout))
    return NO_LIMITS if declared == NO_LIMITS else declared  # `or_else` compares by identity


def _time_limit(name: str, limit: float | timedelta | None) -> float | None:
    if limit is None:
        return None
    return _seconds(name, limit, "more than 0 seconds, a timedelta, or None", lambda n: n > 0)


def _seconds(name: str, value: object, allowed: str, fits: Callable[[float], bool]) -> float:
    """Return a time in seconds if it is allowed."""
    return _number(name, value.total_seconds() if isinstance(value, timedelta) else value, allowed, fits)


def _number(
    name: str, value: object, allowed: str, fits: Callable[[float], bool], kind: type[int] | type[float] = float
) -> float:
    """Return a number as a float if it is allowed. Where a float is, an integer is too."""
    message = f"{name} must be {allowed}, not {value!r}"
    if isinstance(value, bool) or not isinstance(value, (int, kind)):
        raise TypeError(message)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or not fits(number):
        raise ValueError(message)
    return number


def _not_negative(number: float) -> bool:
    return number >= 0


def _check_retry_on(retry_on: object) -> None:
    allowed = "an exception class, a tuple of them, or a function that takes the error and returns a boolean"
    classes = _classes(retry_on)
    if classes is None:
        if not callable(retry_on):
            raise TypeError(f"retry_on must be {allowed}, not {retry_on!r}")
        if inspect.iscoroutinefunction(retry_on) or inspect.iscoroutinefunction(type(retry_on).__call__):
            # it would return a coroutine, which is always true
            raise TypeError(f"retry_on must be {allowed}, and must not be async: {retry_on!r}")
        return
    for cls in classes:
        if not isinstance(cls, type) or not issubclass(cls, BaseException):
            raise TypeError(f"retry_on must be {allowed}; {cls!r} is not an exception class")


def _classes(retry_on: object) -> tuple[type[BaseException], ...] | None:
    """Return the classes that `retry_on` names; None if it is a function."""
    if isinstance(retry_on, tuple):
        return retry_on
    return (retry_on,) if isinstance(retry_on, type) else None


def _in_seconds(time: float | timedelta) -> float:
    return time.total_seconds() if isinstance(time, timedelta) else float(time)
