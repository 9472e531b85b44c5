"""Text and times for the terminal."""

from __future__ import annotations

from datetime import UTC, datetime

from stepwell.cli.settings import Settings
from stepwell.model.visible_text import visible


def printable(text: str) -> str:
    """Escape control characters and invisible characters."""
    return visible(text)


def format_moment(stored: str) -> str:
    """Format a stored time to the second, with its zone: in local time, or in UTC with --utc.

    A text that is not a time, in a damaged list for example, is returned as it is.
    """
    try:
        at = datetime.fromisoformat(stored).astimezone(UTC if Settings.current().utc else None)
    except (ValueError, OverflowError):
        return stored
    return f"{at:%Y-%m-%d %H:%M:%S} {at.tzname()}"
