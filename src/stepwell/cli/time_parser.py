"""Parse durations and times as people type them: `1h30min`, `2026-11-16T10:00`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

from stepwell.cli.settings import Settings
from stepwell.storage import clock

_UNITS = {"w": 604800, "d": 86400, "h": 3600, "min": 60, "m": 60, "s": 1}
_PART = re.compile(r"(\d+)(w|d|h|min|m|s)")
_LONGEST = timedelta(days=365_000)  # a longer one could not be subtracted from any date


def parse_span(text: str) -> timedelta | None:
    """Parse a duration; return None if the string is not one."""
    # The length limit keeps `int` from parsing thousands of digits.
    if re.fullmatch(f"(?:{_PART.pattern})+", text, re.ASCII) is None or len(text) > 30:
        return None
    seconds = sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return timedelta(seconds=seconds) if seconds <= _LONGEST.total_seconds() else None


def parse_moment(text: str, now: datetime) -> datetime | None:
    """Parse a time, or a duration that is subtracted from now.

    Local time unless it has an offset, or UTC with --utc; None if it is neither.
    """
    if (span := parse_span(text)) is not None:
        # A duration may reach back beyond the year 1, which no datetime can hold.
        earliest = datetime.min.replace(tzinfo=UTC)
        return now - span if now - earliest > span else earliest
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None and Settings.current().utc:
            return at.replace(tzinfo=UTC)
        return at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def parse_span_option(context: click.Context, option: click.Parameter, text: str | None) -> timedelta | None:
    """Callback of an option that takes a duration."""
    span = None if text is None else parse_span(text)
    if text is not None and span is None:
        raise click.BadParameter(f"{text!r} is not a duration such as 30d, 12h, 90min, 45s or 1h30min")
    return span


def parse_moment_option(context: click.Context, option: click.Parameter, text: str | None) -> datetime | None:
    """Callback of an option that takes a time."""
    moment = None if text is None else parse_moment(text, clock.now())
    if text is not None and moment is None:
        raise click.BadParameter(
            f"{text!r} is not a time such as 2026-11-16, 2026-11-16T10:00, or a duration ago: 30d, 12h, 90min"
        )
    return moment
