"""The clock. All code asks here for the time, so that a test can let a week pass in a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

# A mutable global, because a process has one time: leases, deadlines and timestamps are compared
# with each other, and objects with clocks of their own could disagree. Only tests replace it.
_source: Callable[[], float] = time.time


def seconds() -> float:
    """Return the seconds since 1970, by the machine's wall clock."""
    return _source()


def since_boot() -> float:
    """Return the seconds since boot, which all processes share and nobody can set.

    Linux only.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def is_replaced() -> bool:
    """Return whether a test has replaced the machine's clock."""
    return _source is not time.time


def now() -> datetime:
    return datetime.fromtimestamp(_source(), UTC)


def stamp() -> str:
    """Return the current time as it is stored: UTC, ISO 8601."""
    global _second  # Every superstep needs several: within a second only the fraction changes.
    moment = _source()
    second = int(moment)
    micros = round((moment - second) * 1_000_000)
    if micros == 1_000_000:
        second, micros = second + 1, 0
    latest, text = _second
    if second != latest:
        text = datetime.fromtimestamp(second, UTC).isoformat().removesuffix("+00:00")
        _second = second, text
    # As `isoformat` writes it: without a fraction at a full second.
    return f"{text}.{micros:06d}+00:00" if micros else f"{text}+00:00"


_second = (0, "1970-01-01T00:00:00")  # the latest second that was written, and its text


def stored_moment(at: datetime) -> str:
    """Return a time as stores compare it: UTC, ISO 8601. Raises ValueError if it has no time zone.

    As strings, such times sort chronologically. A time at a full second lacks the fraction, but the
    `+` that follows the seconds instead sorts before the point.
    """
    if at.tzinfo is None:
        raise ValueError(f"{at} has no time zone; pass an aware time such as datetime.now(UTC)")
    return at.astimezone(UTC).isoformat()


def set_source(source: Callable[[], float] = time.time) -> None:
    """Replace the clock, for tests; without an argument, return to that of the machine."""
    global _source
    _source = source


def until(moment: str) -> timedelta:
    """Return how long it is until a stored time; negative if it has passed."""
    return datetime.fromisoformat(moment) - now()
