"""What time it is. Everybody asks here, so that whoever tests a week of waiting can say that it has passed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_source: Callable[[], float] = time.time


def seconds() -> float:
    """Seconds since 1970, the same for every process of a machine."""
    return _source()


def since_boot() -> float:
    """Seconds since the machine was started, the same for every process of it, whatever their wall clocks show.

    Linux only.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def is_replaced() -> bool:
    """Whether somebody else is asked for the time: a test."""
    return _source is not time.time


def now() -> datetime:
    return datetime.fromtimestamp(_source(), UTC)


def stamp() -> str:
    """Now, as it is stored: UTC, ISO 8601."""
    return now().isoformat()


def set_source(source: Callable[[], float] = time.time) -> None:
    """Ask somebody else from now on; without one, the machine again."""
    global _source
    _source = source


def until(moment: str) -> timedelta:
    """How long it is until a stored moment; negative if it has passed."""
    return datetime.fromisoformat(moment) - now()
