"""Spans and moments as a person types them: `30d`, `1h30min`, `2026-11-16`, `2026-11-16T10:00`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

_UNITS = {"w": 604800, "d": 86400, "h": 3600, "min": 60, "m": 60, "s": 1}
_PART = re.compile(r"(\d+)(w|d|h|min|m|s)")
_LONGEST = timedelta(days=365_000)  # so that it can be taken from now, and still is a time


def span_of(text: str) -> timedelta | None:
    """How long that is; None if it is no span."""
    if re.fullmatch(f"(?:{_PART.pattern})+", text, re.ASCII) is None or len(text) > 30:
        return None
    seconds = sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return timedelta(seconds=seconds) if seconds <= _LONGEST.total_seconds() else None


def moment_of(text: str, now: datetime) -> datetime | None:
    """When that is: so long ago, or a time, in UTC unless it says otherwise. None if it is neither."""
    if (span := span_of(text)) is not None:
        earliest = datetime.min.replace(tzinfo=UTC)
        return now - span if now - earliest > span else earliest
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


class Span(click.ParamType):
    """A span, given as a timedelta."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        if (span := span_of(str(value))) is None:
            self.fail(f"{value!r} is no span: say 30d, 12h, 90min, 45s or 1h30min", param, ctx)
        return span


class Moment(click.ParamType):
    """A moment, given as a datetime in UTC."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        from ..durable import clock

        if isinstance(value, datetime):
            return value
        if (at := moment_of(str(value), clock.now())) is None:
            self.fail(
                f"{value!r} is no time: say 2026-11-16, 2026-11-16T10:00 (UTC), or how long ago: 30d, 12h, 90min",
                param,
                ctx,
            )
        return at
