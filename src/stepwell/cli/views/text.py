"""What is stored, in words that a person reads: statuses, times, values as a tree. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from stepwell.model.visible_text import visible

STATUS = {
    "running": "IN_PROGRESS",
    "waiting": "IDLE_WITH_PENDING_REQUESTS",
    "done": "IDLE",
    "failed": "FAILED",
    "cancelled": "CANCELLED",
    "asking": "IN_PROGRESS_PENDING_REQUESTS",
    "started": "STARTED",
}
"""A word for each status. `asking`: it moves, and has asked something."""

_WORDS = {status: word for word, status in STATUS.items()}
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))

TEXT, ITEMS = 200, 20  # what is longer is cut


def status_word(status: str) -> str:
    return _WORDS.get(status, status)


def printable(text: str) -> str:
    """The text with what a terminal would obey, or nobody would see, written out."""
    return visible(text)


def format_moment(stored: str) -> str:
    """A stored time, to the second, in UTC."""
    return stored[:19].replace("T", " ")


def format_span(span: timedelta) -> str:
    """How long that is, in its largest unit: `3 min`."""
    seconds = int(abs(span.total_seconds()))
    unit, name = next(((unit, name) for unit, name in _UNITS if seconds >= unit), _UNITS[-1])
    return f"{seconds // unit} {name}"


def format_deadline(at: datetime | None, now: datetime) -> str:
    if at is None:
        return "-"
    return f"in {format_span(at - now)}" if at > now else f"passed {format_span(now - at)} ago"


def pluralise(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def tree(value: Any, *, full: bool = False) -> Iterator[str]:
    """The lines of a JSON value: what is inside another is indented. Large values are cut, unless in full."""
    value = _remove_tag(value)
    if isinstance(value, dict) and value:
        for key, inner in _some(list(value.items()), full):
            yield from _under(printable(str(key)), inner, full)
        yield from _rest(len(value), full)
    elif isinstance(value, list) and value:
        for inner in _some(value, full):
            yield from _under("-", inner, full)
        yield from _rest(len(value), full)
    else:
        yield leaf(value, full=full)


def leaf(value: Any, *, full: bool = False) -> str:
    """A value on one line: texts as they are, everything else as JSON says it."""
    value = _remove_tags(value)
    text = value if isinstance(value, str) and value else msgspec.json.encode(value).decode()
    if full or len(text) <= TEXT:
        return printable(text)
    return f"{printable(text[:TEXT])}... ({len(text)} characters)"


def _under(name: str, value: Any, full: bool) -> Iterator[str]:
    plain = _remove_tag(value)
    colon = "" if name == "-" else ":"
    kind = f" ({printable(value['$'])})" if plain is not value else ""
    if not (isinstance(plain, (dict, list)) and plain):
        yield f"{name}{colon} {leaf(plain, full=full)}{kind}"
        return
    yield f"{name}{colon}{kind}"
    yield from (f"  {line}" for line in tree(plain, full=full))


def _remove_tag(value: Any) -> Any:
    """The value inside a tag that names its class."""
    is_tagged = isinstance(value, dict) and set(value) == {"$", "v"} and isinstance(value["$"], str)
    return value["v"] if is_tagged else value


def _remove_tags(value: Any) -> Any:
    """The value without the tags of classes, also inside."""
    value = _remove_tag(value)
    if isinstance(value, dict):
        return {key: _remove_tags(inner) for key, inner in value.items()}
    return [_remove_tags(inner) for inner in value] if isinstance(value, list) else value


def _some(items: list[Any], full: bool) -> list[Any]:
    return items if full else items[:ITEMS]


def _rest(number: int, full: bool) -> Iterator[str]:
    if not full and number > ITEMS:
        yield f"... and {number - ITEMS} more"
