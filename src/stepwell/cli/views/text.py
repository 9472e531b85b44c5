"""Format stored values for people: times, durations, and JSON values as a tree. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from stepwell.model.visible_text import visible

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))

TEXT, ITEMS = 200, 20  # longer strings and lists are cut


def printable(text: str) -> str:
    """Escape control characters and invisible characters."""
    return visible(text)


def format_moment(stored: str) -> str:
    """Format a stored time to the second, in UTC."""
    return stored[:19].replace("T", " ")


def format_span(span: timedelta) -> str:
    """Format a duration in its largest unit: `3 min`."""
    seconds = int(abs(span.total_seconds()))
    unit, name = next(((unit, name) for unit, name in _UNITS if seconds >= unit), _UNITS[-1])
    return f"{seconds // unit} {name}"


def format_deadline(at: datetime | None, now: datetime) -> str:
    if at is None:
        return "-"
    return f"in {format_span(at - now)}" if at > now else f"passed {format_span(now - at)} ago"


def pluralise(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def tree(value: Any, *, full: bool = False) -> Iterator[str]:
    """Yield the lines of a JSON value, nested values indented.

    Large values are cut unless `full`.
    """
    value = _remove_tag(value)
    if not isinstance(value, (dict, list)) or not value:
        yield leaf(value, full=full)
        return
    if isinstance(value, dict):
        items = [(f"{name}:", inner) for name, inner in value.items()]
    else:
        items = [("-", inner) for inner in value]
    shown = items if full else items[:ITEMS]
    for name, inner in shown:
        yield from _under(printable(name), inner, full)
    if len(shown) < len(items):
        yield f"... and {len(items) - len(shown)} more"


def leaf(value: Any, *, full: bool = False) -> str:
    """Format a value on one line: strings as they are, everything else as JSON."""
    # An empty text is shown as "", which can be seen.
    value = _remove_tags(value)
    text = value if isinstance(value, str) and value else msgspec.json.encode(value).decode()
    if full or len(text) <= TEXT:
        return printable(text)
    return f"{printable(text[:TEXT])}... ({len(text)} characters)"


def _under(name: str, value: Any, full: bool) -> Iterator[str]:
    # The class of a value stands beside its name: `order: (shop:Order)`.
    plain = _remove_tag(value)
    kind = f" ({printable(value['$'])})" if plain is not value else ""
    if isinstance(plain, (dict, list)) and plain:
        yield f"{name}{kind}"
        yield from (f"  {line}" for line in tree(plain, full=full))
    else:
        yield f"{name} {leaf(plain, full=full)}{kind}"


def _remove_tag(value: Any) -> Any:
    """Return the value of a stored object, `{"$": class, "v": value}`, without its class."""
    is_tagged = isinstance(value, dict) and set(value) == {"$", "v"} and isinstance(value["$"], str)
    return value["v"] if is_tagged else value


def _remove_tags(value: Any) -> Any:
    """Remove the tags of classes at every level."""
    value = _remove_tag(value)
    if isinstance(value, dict):
        return {key: _remove_tags(inner) for key, inner in value.items()}
    return [_remove_tags(inner) for inner in value] if isinstance(value, list) else value
