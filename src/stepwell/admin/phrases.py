"""Times, ages, durations, deadlines and counts, as people read them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

FormatMoment = Callable[[str], str]

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def format_utc(stored: str) -> str:
    """Format a stored time to the second, in UTC, for what is read in many places."""
    return f"{datetime.fromisoformat(stored).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_age(stored: str, now: datetime) -> str:
    """Format how long ago a stored time was: `3 min ago`."""
    try:
        return f"{format_span(now - datetime.fromisoformat(stored))} ago"
    except (ValueError, TypeError):
        return stored


def format_span(span: timedelta) -> str:
    """Format a duration in its largest unit: `3 min`."""
    seconds = int(abs(span.total_seconds()))
    unit, name = next(((unit, name) for unit, name in _UNITS if seconds >= unit), _UNITS[-1])
    return f"{seconds // unit} {name}"


def format_deadline(at: datetime | None, now: datetime) -> str:
    if at is None:
        return "-"
    from stepwell.viz.durations import format_seconds  # lazy: a list of runs has no deadlines

    # In two units: an hour and 59 minutes are not an hour.
    span = format_seconds(max(abs((at - now).total_seconds()), 1))
    return f"in {span}" if at > now else f"passed {span} ago"


def pluralise(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
