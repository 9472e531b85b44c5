"""What a typed text comes to: yes or no, a number, a text, one of several, or anything. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

YES = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


class Unfit(ValueError):
    """What was typed will not do. The message says why."""


def read_yes(text: str) -> bool:
    try:
        return YES[text.strip().lower()]
    except KeyError:
        raise Unfit(f"{text.strip()!r} is neither yes nor no") from None


def read_number(text: str) -> int | float:
    value = _json(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Unfit(f"{text.strip()!r} is no number")
    return value


def read_text(text: str) -> str:
    """The text as it was typed; a text in quotes as JSON reads it, so that it may be empty or have lines."""
    value = _json(text) if text.strip().startswith('"') else None
    return value if isinstance(value, str) else text


def read_anything(text: str) -> Any:
    """What it is as JSON, or else the text as it was typed."""
    value = _json(text)
    return text if value is NO_JSON else value


READERS: dict[str, Callable[[str], Any]] = {
    "boolean": read_yes,
    "integer": read_number,
    "number": read_number,
    "string": read_text,
    "": read_anything,
}
"""By the type that is wanted; without a name: any."""


def make_labels(values: Sequence[Any]) -> list[str]:
    """A word for each of several values: a text as it is, if it cannot be taken for something else."""
    return [value if isinstance(value, str) and _is_plain(value) else json.dumps(value) for value in values]


def are_numbered(labels: Sequence[str]) -> bool:
    """Whether a number says which one is meant: not if it might be the value itself."""
    return not any(_json(label) is not NO_JSON and _is_number(_json(label)) for label in labels)


def read_choice(text: str, labels: Sequence[str]) -> int:
    """Which one is meant: by its word, its number, or the beginning of its word if no other begins so."""
    word = text.strip()
    if word in labels:
        return labels.index(word)
    if are_numbered(labels) and word.isascii() and word.isdigit() and 1 <= int(word) <= len(labels):
        return int(word) - 1
    starting = [at for at, label in enumerate(labels) if label.lower().startswith(word.lower())]
    exact = [at for at in starting if len(labels[at]) == len(word)]
    if word and len(exact or starting) == 1:
        return (exact or starting)[0]
    raise Unfit(f"{word!r} {'may be several' if word and starting else 'is none'} of them")


class _NoJson:
    """What is no JSON comes to this."""


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
