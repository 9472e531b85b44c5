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

from stepwell.declarative import value_paths
from stepwell.declarative.conditions import patterns
from stepwell.declarative.value_paths import MISSING

LONGEST_IN_WORDS = 100  # characters of one value, where a condition is said

Takes = Literal["nothing", "value", "bound", "text", "pattern", "values"]


class Incomparable(Exception):
    """The question makes no sense for this value. Says what would."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One kind of question about a field."""

    words: str  # between the field and what it is compared with
    takes: Takes
    test: Callable[[Any, Any], bool]  # the value of the field, what the condition was given
    if_missing: bool = False


def look_up(path: str, values: Any) -> Any:
    """The value of a field, or MISSING. What is None is missing, too."""
    return value_paths.look_up(path, values, _read_part)


def _read_part(value: Any, name: str) -> Any:
    part = value_paths.read_part(value, name)
    if isinstance(part, Enum):
        part = part.value  # as it would be in JSON
    return MISSING if part is None else part


def are_equal(left: Any, right: Any) -> bool:
    """Equal as data: True is not 1, and a list is equal to a tuple."""
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool) and left == right
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(are_equal, left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(are_equal(left[key], right[key]) for key in left)
    return bool(left == right)


def normalize_value(takes: Takes, value: Any) -> Any:
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
    if takes == "bound" and not (isinstance(value, str) or _is_number(value)):
        raise ValueError(f"takes a number or a text, not {value!r}")
    if takes in ("text", "pattern") and not isinstance(value, str):
        raise ValueError(f"takes a text, not {value!r}")
    plain = to_plain(value)
    if takes == "pattern":
        patterns.check(plain)
    return plain


def to_plain(value: Any) -> Any:
    """A copy of what JSON can say, its lists as tuples. Raises ValueError if JSON cannot say it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return tuple(map(to_plain, value))
        case dict() if all(isinstance(key, str) for key in value):
            return {key: to_plain(inner) for key, inner in value.items()}
    raise ValueError(f"takes only what JSON can say, not {value!r}")


def describe_value(takes: Takes, value: Any) -> str:
    if takes == "nothing":
        return ""
    if takes == "values":
        return " " + ", ".join(_short_json(item) for item in value)
    return " " + _short_json(value)


def _short_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_IN_WORDS else f"{text[:LONGEST_IN_WORDS]}..."


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def _comparison(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(value: Any, bound: Any) -> bool:
        if not (_is_number(value) and _is_number(bound)) and not (isinstance(value, str) and isinstance(bound, str)):
            raise Incomparable("numbers are compared with numbers, and text with text")
        if isinstance(value, Decimal) and value.is_nan():
            return False  # like a float that is not a number, which is neither more nor less than anything
        return bool(test(value, bound))

    return compare


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, str):
        if not isinstance(wanted, str):
            raise Incomparable("text contains only text")
        return wanted in value
    if isinstance(value, Sequence | Set | Mapping) and not isinstance(value, bytes):
        return any(are_equal(item, wanted) for item in value)  # of a mapping: the keys
    raise Incomparable("only text, lists, sets and mappings contain anything")


def _contains_each(value: Any, wanted: Sequence[Any]) -> list[bool]:
    """All of them are asked, so that whether it is an error does not depend on their order."""
    return [_contains(value, item) for item in wanted]


def _text_test(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def ask(value: Any, wanted: str) -> bool:
        if not isinstance(value, str):
            raise Incomparable("only text can be asked that")
        return test(value, wanted)

    return ask


def _is_empty(value: Any, _: Any) -> bool:
    return hasattr(value, "__len__") and len(value) == 0  # a number is never empty


OPERATORS: Mapping[str, Operator] = {
    "equals": Operator("==", "value", are_equal),
    "not_equals": Operator("!=", "value", lambda value, other: not are_equal(value, other), if_missing=True),
    "exists": Operator("exists", "nothing", lambda value, _: True),
    "not_exists": Operator("does not exist", "nothing", lambda value, _: False, if_missing=True),
    "greater": Operator(">", "bound", _comparison(lambda value, bound: value > bound)),
    "less": Operator("<", "bound", _comparison(lambda value, bound: value < bound)),
    "at_least": Operator(">=", "bound", _comparison(lambda value, bound: value >= bound)),
    "at_most": Operator("<=", "bound", _comparison(lambda value, bound: value <= bound)),
    "contains": Operator("contains", "value", _contains),
    "starts_with": Operator("starts with", "text", _text_test(str.startswith)),
    "ends_with": Operator("ends with", "text", _text_test(str.endswith)),
    "matches": Operator("matches", "pattern", _text_test(lambda value, pattern: patterns.search(pattern, value))),
    "empty": Operator("is empty", "nothing", _is_empty, if_missing=True),
    "not_empty": Operator("is not empty", "nothing", lambda value, _: not _is_empty(value, _)),
    "contains_any": Operator("contains any of", "values", lambda value, wanted: any(_contains_each(value, wanted))),
    "contains_all": Operator("contains all of", "values", lambda value, wanted: all(_contains_each(value, wanted))),
}
