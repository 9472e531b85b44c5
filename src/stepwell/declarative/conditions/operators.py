"""What a condition can ask of one field: the kinds, what they mean, and what they are given. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from numbers import Real
from typing import Any, Literal

from stepwell.declarative import value_paths as paths
from stepwell.declarative.conditions import patterns
from stepwell.declarative.value_paths import MISSING

LONGEST_IN_WORDS = 100  # characters of one value, where a condition is said

Takes = Literal["nothing", "value", "bound", "text", "pattern", "values"]


class Incomparable(Exception):
    """The question makes no sense for this value. Says what would."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of question about a field."""

    words: str  # between the field and what it is compared with
    takes: Takes
    test: Callable[[Any, Any], bool]  # the value of the field, what the condition was given
    if_missing: bool = False


def look_up(path: str, values: Any) -> Any:
    """The value of a field, or MISSING. What is None is missing, too."""
    return paths.look_up(path, values, _part)


def _part(value: Any, name: str) -> Any:
    found = paths.inside(value, name)
    if isinstance(found, Enum):
        found = found.value  # as it would be in JSON
    return MISSING if found is None else found


def same(one: Any, other: Any) -> bool:
    """Equal as data: True is not 1, and a list is equal to a tuple."""
    if isinstance(one, bool) or isinstance(other, bool):
        return isinstance(one, bool) and isinstance(other, bool) and one == other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def given(takes: Takes, value: Any) -> Any:
    """What a condition was given, as it is kept: plain data that nobody else can change.

    Raises ValueError if it will not do, DefinitionError if it is a pattern that will not do.
    """
    if takes == "nothing":
        if value is not None:
            raise ValueError(f"takes no value, but was given {value!r}")
        return None
    if takes == "values" and (
        isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset) or not value
    ):
        raise ValueError(f"takes a list of at least one value, not {value!r}")
    if takes == "value" and value is None:
        raise ValueError("takes a value; ask for what is missing with not_exists")
    if takes == "bound" and not (isinstance(value, str) or _number(value)):
        raise ValueError(f"takes a number or a text, not {value!r}")
    if takes in ("text", "pattern") and not isinstance(value, str):
        raise ValueError(f"takes a text, not {value!r}")
    kept = plain(value)
    if takes == "pattern":
        patterns.check(kept)
    return kept


def plain(value: Any) -> Any:
    """A copy of what JSON can say, its lists as tuples. Raises ValueError if JSON cannot say it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return tuple(map(plain, value))
        case dict() if all(isinstance(key, str) for key in value):
            return {key: plain(inner) for key, inner in value.items()}
    raise ValueError(f"takes only what JSON can say, not {value!r}")


def in_words(takes: Takes, value: Any) -> str:
    if takes == "nothing":
        return ""
    if takes == "values":
        return " " + ", ".join(_json(one) for one in value)
    return " " + _json(value)


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_IN_WORDS else f"{text[:LONGEST_IN_WORDS]}..."


def _number(value: Any) -> bool:
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def _compared(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(found: Any, bound: Any) -> bool:
        if not (_number(found) and _number(bound)) and not (isinstance(found, str) and isinstance(bound, str)):
            raise Incomparable("numbers are compared with numbers, and text with text")
        if isinstance(found, Decimal) and found.is_nan():
            return False  # like a float that is not a number, which is neither more nor less than anything
        return bool(test(found, bound))

    return compare


def _contains(found: Any, wanted: Any) -> bool:
    if isinstance(found, str):
        if not isinstance(wanted, str):
            raise Incomparable("text contains only text")
        return wanted in found
    if isinstance(found, Sequence | Set | Mapping) and not isinstance(found, bytes):
        return any(same(item, wanted) for item in found)  # of a mapping: the keys
    raise Incomparable("only text, lists, sets and mappings contain anything")


def _each(found: Any, wanted: Sequence[Any]) -> list[bool]:
    """All of them are asked, so that whether it is an error does not depend on their order."""
    return [_contains(found, one) for one in wanted]


def _text(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def ask(found: Any, wanted: str) -> bool:
        if not isinstance(found, str):
            raise Incomparable("only text can be asked that")
        return test(found, wanted)

    return ask


def _empty(found: Any, _: Any) -> bool:
    return hasattr(found, "__len__") and len(found) == 0  # a number is never empty


KINDS: Mapping[str, Kind] = {
    "equals": Kind("==", "value", same),
    "not_equals": Kind("!=", "value", lambda found, value: not same(found, value), if_missing=True),
    "exists": Kind("exists", "nothing", lambda found, _: True),
    "not_exists": Kind("does not exist", "nothing", lambda found, _: False, if_missing=True),
    "greater": Kind(">", "bound", _compared(lambda found, bound: found > bound)),
    "less": Kind("<", "bound", _compared(lambda found, bound: found < bound)),
    "at_least": Kind(">=", "bound", _compared(lambda found, bound: found >= bound)),
    "at_most": Kind("<=", "bound", _compared(lambda found, bound: found <= bound)),
    "contains": Kind("contains", "value", _contains),
    "starts_with": Kind("starts with", "text", _text(str.startswith)),
    "ends_with": Kind("ends with", "text", _text(str.endswith)),
    "matches": Kind("matches", "pattern", _text(lambda found, pattern: patterns.found(pattern, found))),
    "empty": Kind("is empty", "nothing", _empty, if_missing=True),
    "not_empty": Kind("is not empty", "nothing", lambda found, _: not _empty(found, _)),
    "contains_any": Kind("contains any of", "values", lambda found, wanted: any(_each(found, wanted))),
    "contains_all": Kind("contains all of", "values", lambda found, wanted: all(_each(found, wanted))),
}
