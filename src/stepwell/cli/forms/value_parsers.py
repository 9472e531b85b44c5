"""Parse what a person types: a boolean, a number, a string, a choice, or any JSON value.

Pure functions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

BOOLEANS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


class InvalidInput(ValueError):
    """The input is not accepted. The message says why."""


def parse_bool(text: str) -> bool:
    try:
        return BOOLEANS[text.strip().lower()]
    except KeyError:
        raise InvalidInput(f"{text.strip()!r} is not yes or no") from None


def parse_number(text: str) -> int | float:
    # `json.loads` accepts NaN and Infinity, which cannot be stored. A boolean is an int in Python.
    value = _json(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InvalidInput(f"{text.strip()!r} is not a number")
    return value


def parse_text(text: str) -> str:
    """Return the input as typed; in double quotes it is JSON, and can be empty or have many lines."""
    value = _json(text) if text.strip().startswith('"') else None
    return value if isinstance(value, str) else text


def parse_any(text: str) -> Any:
    """Parse the input as JSON; return it as typed if it is not JSON."""
    return _json(text, otherwise=text)


# By JSON schema type; the empty name accepts anything.
PARSERS: dict[str, Callable[[str], Any]] = {
    "boolean": parse_bool,
    "integer": parse_number,
    "number": parse_number,
    "string": parse_text,
    "": parse_any,
}


def make_labels(values: Sequence[Any]) -> list[str]:
    """Return a label for each value: JSON; a string is unquoted if it is not itself valid JSON."""
    return [value if isinstance(value, str) and _can_be_unquoted(value) else json.dumps(value) for value in values]


def are_numbered(labels: Sequence[str]) -> bool:
    """Return whether choices can be picked by position: not if one of them is a number."""
    return not any(_is_number(_json(label)) for label in labels)


def parse_choice(text: str, labels: Sequence[str]) -> int:
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
    raise InvalidInput(f"{word!r} {'matches several choices' if word and starting else 'is not one of the choices'}")


_NOT_JSON = object()  # None is a JSON value


def _json(text: str, otherwise: Any = _NOT_JSON) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise


def _can_be_unquoted(text: str) -> bool:
    return bool(text) and text == text.strip() and _json(text) is _NOT_JSON


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
