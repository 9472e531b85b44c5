"""Spans and moments as a person types them: `30d`, `1h30min`, `2026-11-16`, `2026-11-16T10:00`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

from stepwell.storage import clock

_UNITS = {"w": 604800, "d": 86400, "h": 3600, "min": 60, "m": 60, "s": 1}
_PART = re.compile(r"(\d+)(w|d|h|min|m|s)")
_LONGEST = timedelta(days=365_000)  # so that it can be taken from now, and still is a time


def parse_span(text: str) -> timedelta | None:
    """How long that is; None if it is no span."""
    if re.fullmatch(f"(?:{_PART.pattern})+", text, re.ASCII) is None or len(text) > 30:
        return None
    seconds = sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return timedelta(seconds=seconds) if seconds <= _LONGEST.total_seconds() else None


def parse_moment(text: str, now: datetime) -> datetime | None:
    """When that is: so long ago, or a time, in UTC unless it says otherwise. None if it is neither."""
    if (span := parse_span(text)) is not None:
        earliest = datetime.min.replace(tzinfo=UTC)
        return now - span if now - earliest > span else earliest
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def parse_span_option(context: click.Context, option: click.Parameter, text: str | None) -> timedelta | None:
    """What an option gives: a span."""
    if text is None or (span := parse_span(text)) is not None:
        return None if text is None else span
    raise click.BadParameter(f"{text!r} is no span: say 30d, 12h, 90min, 45s or 1h30min")


def parse_moment_option(context: click.Context, option: click.Parameter, text: str | None) -> datetime | None:
    """What an option gives: a moment, in UTC."""
    if text is None or (at := parse_moment(text, clock.now())) is not None:
        return None if text is None else at
    raise click.BadParameter(
        f"{text!r} is no time: say 2026-11-16, 2026-11-16T10:00 (UTC), or how long ago: 30d, 12h, 90min"
    )
