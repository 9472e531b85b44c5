"""The kinds of conditions on one field: their meaning, operands and wording. Pure."""

from __future__ import annotations

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

Operand = Literal["nothing", "value", "bound", "text", "pattern", "values"]


class Incomparable(Exception):
    """A condition does not apply to the type of a value. The message says which types it needs."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One kind of condition on a field."""

    phrase: str  # stands between field and operand in a description
    operand: Operand
    test: Callable[[Any, Any], bool]  # called with the value of the field and the operand
    if_missing: bool = False


def read_part(value: Any, name: str) -> Any:
    """Return one part of a value for a condition, or MISSING if it does not exist or is None."""
    part = value_paths.read_part(value, name)
    # Conditions come from JSON, which has no enums: compare with the value of the member.
    if isinstance(part, Enum):
        part = part.value
    return MISSING if part is None else part


def are_equal(left: Any, right: Any) -> bool:
    """Compare as JSON data: True does not equal 1, and a list equals a tuple of the same items."""
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool) and left == right
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(are_equal, left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(are_equal(left[key], right[key]) for key in left)
    return bool(left == right)


def normalize_value(operand: Operand, value: Any) -> Any:
    """Return the operand of a condition as an independent copy in plain data.

    Raises ValueError if it has the wrong type, and DefinitionError if it is an invalid pattern. The
    messages continue a sentence that starts with the condition.
    """
    accepts, problem = _OPERANDS[operand]
    if not accepts(value):
        raise ValueError(problem.format(value))
    plain = to_plain(value)
    if operand == "pattern":
        patterns.check(plain)
    return plain


def to_plain(value: Any) -> Any:
    """Copy JSON data, with lists as tuples. Raises ValueError if it is not JSON data."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return tuple(map(to_plain, value))
        case dict() if all(isinstance(key, str) for key in value):
            return {key: to_plain(inner) for key, inner in value.items()}
    raise ValueError(f"takes only JSON data, not {value!r}")


def shorten(text: str, length: int) -> str:
    """Cut a string after so many characters, and mark that with three dots."""
    return text if len(text) <= length else f"{text[:length]}..."


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


# What each operand must be, and the problem if it is not.
_OPERANDS: Mapping[Operand, tuple[Callable[[Any], bool], str]] = {
    "nothing": (lambda value: value is None, "takes no value, not {!r}"),
    "value": (lambda value: value is not None, "takes a value; to test for a missing field, use not_exists"),
    "bound": (lambda value: isinstance(value, str) or _is_number(value), "takes a number or a string, not {!r}"),
    "text": (lambda value: isinstance(value, str), "takes a string, not {!r}"),
    "pattern": (lambda value: isinstance(value, str), "takes a string, not {!r}"),
    "values": (
        lambda value: isinstance(value, list | tuple | set | frozenset) and len(value) > 0,
        "takes a list of at least one value, not {!r}",
    ),
}


def _comparison(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(value: Any, bound: Any) -> bool:
        if not (_is_number(value) and _is_number(bound)) and not (isinstance(value, str) and isinstance(bound, str)):
            raise Incomparable("numbers are compared with numbers, and strings with strings")
        # Comparing a Decimal NaN raises an error; a float NaN is simply not greater or less.
        if isinstance(value, Decimal) and value.is_nan():
            return False
        return bool(test(value, bound))

    return compare


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, str):
        if not isinstance(wanted, str):
            raise Incomparable("a string contains only strings")
        return wanted in value
    if isinstance(value, Sequence | Set | Mapping) and not isinstance(value, bytes):
        # Not `wanted in value`: True must not equal 1 here either. For a mapping, these are the
        # keys.
        return any(are_equal(item, wanted) for item in value)
    raise Incomparable("only strings, lists, sets and mappings can contain values")


def _contains_each(value: Any, wanted: Sequence[Any]) -> list[bool]:
    """Test every value, so that whether it is an error does not depend on their order."""
    return [_contains(value, item) for item in wanted]


def _text_test(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def check(value: Any, wanted: str) -> bool:
        if not isinstance(value, str):
            raise Incomparable("it applies only to strings")
        return test(value, wanted)

    return check


def _is_empty(value: Any, _: Any) -> bool:
    # A value without a length, such as a number, is never empty.
    return hasattr(value, "__len__") and len(value) == 0


# The kinds are stored in definitions and must not change.
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
