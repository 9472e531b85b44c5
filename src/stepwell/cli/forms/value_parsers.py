"""Parse what a person types: a boolean, a number, a text, a choice, or any JSON value.

Pure functions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

YES = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


class Unfit(ValueError):
    """The typed text is not accepted. The message says why."""


def read_yes(text: str) -> bool:
    try:
        return YES[text.strip().lower()]
    except KeyError:
        raise Unfit(f"{text.strip()!r} is not yes or no") from None


def read_number(text: str) -> int | float:
    # JSON in Python accepts NaN and Infinity, which cannot be stored. A boolean is an int in
    # Python.
    value = _json(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Unfit(f"{text.strip()!r} is not a number")
    return value


def read_text(text: str) -> str:
    """Return the text as typed; in quotes, it is JSON, and can be empty or have many lines."""
    value = _json(text) if text.strip().startswith('"') else None
    return value if isinstance(value, str) else text


def read_anything(text: str) -> Any:
    """Parse the text as JSON; return it as typed if it is not JSON."""
    value = _json(text)
    return text if value is NO_JSON else value


READERS: dict[str, Callable[[str], Any]] = {
    "boolean": read_yes,
    "integer": read_number,
    "number": read_number,
    "string": read_text,
    "": read_anything,
}
"""By JSON schema type; the empty name accepts anything."""


def make_labels(values: Sequence[Any]) -> list[str]:
    """Return a label for each value: JSON, but plain for a text that no other value looks like."""
    return [value if isinstance(value, str) and _is_plain(value) else json.dumps(value) for value in values]


def are_numbered(labels: Sequence[str]) -> bool:
    """Return whether choices can be picked by position: not if one of them is a number."""
    return not any(_json(label) is not NO_JSON and _is_number(_json(label)) for label in labels)


def read_choice(text: str, labels: Sequence[str]) -> int:
    """Return the index of a choice, picked by label, position, or unique prefix."""
    word = text.strip()
    # An exact label wins over a position, and a position over a prefix.
    if word in labels:
        return labels.index(word)
    if are_numbered(labels) and word.isascii() and word.isdigit() and 1 <= int(word) <= len(labels):
        return int(word) - 1
    starting = [at for at, label in enumerate(labels) if label.lower().startswith(word.lower())]
    # A label that differs only in case also wins over labels that it is a prefix of.
    exact = [at for at in starting if len(labels[at]) == len(word)]
    if word and len(exact or starting) == 1:
        return (exact or starting)[0]
    raise Unfit(f"{word!r} {'matches several choices' if word and starting else 'is not one of the choices'}")


class _NoJson:
    """Stands for a text that is not JSON: None is a JSON value."""


NO_JSON = _NoJson()


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return NO_JSON


def _is_plain(text: str) -> bool:
    return bool(text) and text == text.strip() and _json(text) is NO_JSON


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
