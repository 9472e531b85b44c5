"""Text and times for the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TextIO

from stepwell.cli.settings import Settings

_NARROWEST = 40  # columns: wrapping for less would leave no room beside the margin


def format_moment(stored: str) -> str:
    """Format a stored time to the second, with its zone: in local time, or in UTC with --utc.

    A text that is not a time, in a damaged list for example, is returned as it is.
    """
    try:
        at = datetime.fromisoformat(stored).astimezone(UTC if Settings.current().utc else None)
    except (ValueError, OverflowError):
        return stored
    return f"{at:%Y-%m-%d %H:%M:%S} {at.tzname()}"


def format_brief_moment(stored: str, now: datetime) -> str:
    """Format a stored time that is ahead as briefly as it stays clear: its time of the day, or its date."""
    exact = format_moment(stored)
    with suppress(ValueError):
        date, time, zone = exact.split(" ", 2)
        is_near = datetime.fromisoformat(stored) - now < timedelta(days=1)
        return f"{time.rpartition(':')[0] if is_near else date} {zone}"
    return exact


def wrap_line(line: str, to: TextIO) -> Iterator[str]:
    """Yield a line as those of a terminal that fit its width, the later ones indented; elsewhere as it is."""
    width = shutil.get_terminal_size().columns if to.isatty() else 0
    if width < _NARROWEST or len(line) <= width:
        yield line
        return
    margin = " " * (len(line) - len(line.lstrip()) + 4)
    # Ids and paths are there to be copied, so words stay whole.
    yield from textwrap.wrap(
        line,
        width,
        subsequent_indent=margin,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
