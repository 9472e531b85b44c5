"""Conditions on the values of a run, as data that can be stored, described and evaluated.

A field is named by its path, such as `"review.score"`. A field that does not exist or is None is
missing: every condition on it is false, except `not_exists`, `empty` and `not_equals`, which are
true.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from stepwell.declarative.conditions import patterns
from stepwell.declarative.conditions.operators import OPERATORS, Incomparable, describe_value, look_up, normalize_value
from stepwell.declarative.value_paths import MISSING
from stepwell.errors import DefinitionError, StepwellError


class ConditionFailed(StepwellError):
    """A condition could not be evaluated on the given values. `condition` describes it in words."""

    def __init__(self, message: str, *, condition: str) -> None:
        self.condition = condition
        super().__init__(message)


class Condition(ABC):
    """A predicate on the values of a run. Combine conditions with `&`, `|` and `~`."""

    __slots__ = ()

    @abstractmethod
    def describe(self) -> str:
        """Describe the condition in words."""

    @abstractmethod
    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether it is true.

        Raises ConditionFailed if it does not apply to these values.
        """

    @abstractmethod
    def keys(self) -> tuple[str, ...]:
        """Return the paths of the fields it reads, each once; a callable reports none."""

    def __bool__(self) -> bool:
        # `a and b` would silently drop `a`, and `if condition:` would always be true.
        raise TypeError(
            f"`{self.describe()}` has no truth value: call holds(values), and combine conditions with &, | and ~ "
            f"instead of and, or and not"
        )

    def __and__(self, other: Condition) -> Condition:
        return all_of(*_flatten(AllOf, self), *_flatten(AllOf, other))

    def __or__(self, other: Condition) -> Condition:
        return any_of(*_flatten(AnyOf, self), *_flatten(AnyOf, other))

    def __invert__(self) -> Condition:
        return not_(self)


@dataclass(frozen=True, slots=True)
class FieldCondition(Condition):
    """A condition on one field, such as `score > 3`."""

    kind: str  # a key of OPERATORS
    field: str
    value: Any = None  # what the field is compared with; None for kinds without an operand

    def __post_init__(self) -> None:
        operator = OPERATORS.get(self.kind)
        if operator is None:
            raise DefinitionError(f"unknown condition {self.kind!r}; there are {', '.join(OPERATORS)}")
        if not isinstance(self.field, str) or not self.field:
            raise DefinitionError(
                f"the field of condition {self.kind!r} must be a non-empty string, not {self.field!r}"
            )
        try:
            value = normalize_value(operator.operand, self.value)
        except ValueError as error:
            raise DefinitionError(f"the condition {self.kind!r} on {self.field!r} {error}") from None
        # The dataclass is frozen, and the caller's list or dict must not change the condition
        # later.
        object.__setattr__(self, "value", value)

    def describe(self) -> str:
        operator = OPERATORS[self.kind]
        return f"{self.field} {operator.phrase}{describe_value(operator.operand, self.value)}"

    def holds(self, values: Mapping[str, Any]) -> bool:
        operator = OPERATORS[self.kind]
        value = look_up(self.field, values)
        if value is MISSING:
            return operator.if_missing
        try:
            return operator.test(value, self.value)
        except Incomparable as error:
            raise self._make_error(f"is {_shorten(value)}, a {type(value).__name__}: {error}") from None
        except patterns.TooSlow:
            raise self._make_error(
                f"has {len(value)} characters: matching the pattern {self.value!r} took longer than "
                f"{patterns.TIME_LIMIT:g} s; simplify it, above all repetitions inside repetitions"
            ) from None

    def keys(self) -> tuple[str, ...]:
        return (self.field,)

    def _make_error(self, what: str) -> ConditionFailed:
        text = self.describe()
        return ConditionFailed(f"`{text}` cannot be evaluated: the field {self.field!r} {what}", condition=text)


@dataclass(frozen=True, slots=True)
class ConditionGroup(Condition):
    """Several conditions. Evaluation stops at the first that decides."""

    conditions: tuple[Condition, ...]

    kind: ClassVar[str]
    word: ClassVar[str]  # between two conditions in a description

    def __post_init__(self) -> None:
        _check_conditions(self.kind, self.conditions)

    def describe(self) -> str:
        texts = [(inner.describe(), isinstance(inner, ConditionGroup)) for inner in self.conditions]
        return f" {self.word} ".join(f"({text})" if is_group else text for text, is_group in texts)

    def keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(chain.from_iterable(condition.keys() for condition in self.conditions)))


@dataclass(frozen=True, slots=True)
class AllOf(ConditionGroup):
    """True if all conditions are."""

    kind, word = "all_of", "and"

    def holds(self, values: Mapping[str, Any]) -> bool:
        return all(condition.holds(values) for condition in self.conditions)


@dataclass(frozen=True, slots=True)
class AnyOf(ConditionGroup):
    """True if any condition is."""

    kind, word = "any_of", "or"

    def holds(self, values: Mapping[str, Any]) -> bool:
        return any(condition.holds(values) for condition in self.conditions)


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """True if the inner condition is not."""

    condition: Condition

    def __post_init__(self) -> None:
        _check_conditions("not_", (self.condition,))

    def describe(self) -> str:
        return f"not ({self.condition.describe()})"

    def holds(self, values: Mapping[str, Any]) -> bool:
        return not self.condition.holds(values)

    def keys(self) -> tuple[str, ...]:
        return self.condition.keys()


@dataclass(frozen=True, slots=True)
class CallableCondition(Condition):
    """A function of the values. It can be evaluated and described, but not exported to a file."""

    function: Callable[[Mapping[str, Any]], object]
    description: str = ""  # empty: the name of the function

    def __post_init__(self) -> None:
        if not callable(self.function) or inspect.iscoroutinefunction(self.function):
            raise DefinitionError(
                f"a condition must be a plain (not async) function of the values, not {self.function!r}"
            )

    def describe(self) -> str:
        return self.description or getattr(self.function, "__name__", type(self.function).__name__)

    def holds(self, values: Mapping[str, Any]) -> bool:
        result = self.function(values)
        # An awaitable is always truthy, so a hidden async function would take every edge.
        if inspect.isawaitable(result):
            raise ConditionFailed(
                f"the condition `{self.describe()}` returned an awaitable: use a plain function",
                condition=self.describe(),
            )
        return bool(result)

    def keys(self) -> tuple[str, ...]:
        return ()


def equals(field: str, value: Any) -> Condition:
    """The field equals the value. True does not equal 1, and case matters."""
    return FieldCondition("equals", field, value)


def not_equals(field: str, value: Any) -> Condition:
    """The field has another value, or is missing."""
    return FieldCondition("not_equals", field, value)


def exists(field: str) -> Condition:
    """The field exists and is not None."""
    return FieldCondition("exists", field)


def not_exists(field: str) -> Condition:
    """The field is missing."""
    return FieldCondition("not_exists", field)


def greater(field: str, bound: float | str) -> Condition:
    """The field is greater than the bound: both numbers, or both strings."""
    return FieldCondition("greater", field, bound)


def less(field: str, bound: float | str) -> Condition:
    """The field is less than the bound: both numbers, or both strings."""
    return FieldCondition("less", field, bound)


def at_least(field: str, bound: float | str) -> Condition:
    """The field is greater than or equal to the bound."""
    return FieldCondition("at_least", field, bound)


def at_most(field: str, bound: float | str) -> Condition:
    """The field is less than or equal to the bound."""
    return FieldCondition("at_most", field, bound)


def contains(field: str, value: Any) -> Condition:
    """The field is a string with that substring, a list with that item, or a dict with that key."""
    return FieldCondition("contains", field, value)


def starts_with(field: str, text: str) -> Condition:
    """The field is a string that starts with the text."""
    return FieldCondition("starts_with", field, text)


def ends_with(field: str, text: str) -> Condition:
    """The field is a string that ends with the text."""
    return FieldCondition("ends_with", field, text)


def matches(field: str, pattern: str) -> Condition:
    """The field is a string in which the pattern is found, anywhere unless it has `^` and `$`.

    Needs the package `regex`. A match that exceeds `patterns.TIME_LIMIT` raises ConditionFailed.
    """
    return FieldCondition("matches", field, pattern)


def empty(field: str) -> Condition:
    """The field is missing, or an empty string, list or mapping."""
    return FieldCondition("empty", field)


def not_empty(field: str) -> Condition:
    """The field exists and is not empty."""
    return FieldCondition("not_empty", field)


def contains_any(field: str, values: Iterable[Any]) -> Condition:
    """The field contains at least one of the values."""
    return FieldCondition("contains_any", field, _to_tuple(values))


def contains_all(field: str, values: Iterable[Any]) -> Condition:
    """The field contains every one of the values."""
    return FieldCondition("contains_all", field, _to_tuple(values))


def all_of(*conditions: Condition) -> Condition:
    """All conditions are true."""
    return AllOf(conditions)


def any_of(*conditions: Condition) -> Condition:
    """At least one condition is true."""
    return AnyOf(conditions)


def not_(condition: Condition) -> Condition:
    """The condition is not true."""
    return Not(condition)


def _to_tuple(values: Iterable[Any]) -> Any:
    # A string is passed on to be rejected, not split into its characters.
    return values if isinstance(values, str) else tuple(values)


def _flatten(kind: type[ConditionGroup], condition: Condition) -> tuple[Condition, ...]:
    return condition.conditions if isinstance(condition, kind) else (condition,)


def _check_conditions(name: str, conditions: tuple[Condition, ...]) -> None:
    if not conditions:
        raise DefinitionError(f"{name} needs at least one condition")
    for condition in conditions:
        if not isinstance(condition, Condition):
            raise DefinitionError(f"{name} takes conditions, not {condition!r}")


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
