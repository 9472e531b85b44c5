"""Conditions on the values of a run, as data that can be stored, described and evaluated.

A field is named by its path, such as `"review.score"`. A field that does not exist or is None is
missing: every condition on it is false, except `not_exists`, `empty` and `not_equals`, which are
true.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from stepwell.declarative.conditions import patterns
from stepwell.declarative.conditions.operators import (
    OPERATORS,
    Incomparable,
    normalize_value,
    read_part,
    shorten,
)
from stepwell.declarative.value_paths import MISSING, look_up
from stepwell.errors import DefinitionError, StepwellError

MAX_VALUE_LENGTH = 100  # characters of one value in a description


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
        return all_of(*_flatten("all_of", self), *_flatten("all_of", other))

    def __or__(self, other: Condition) -> Condition:
        return any_of(*_flatten("any_of", self), *_flatten("any_of", other))

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
        if operator.operand == "nothing":
            return f"{self.field} {operator.phrase}"
        items = self.value if operator.operand == "values" else [self.value]
        texts = [shorten(json.dumps(item, ensure_ascii=False), MAX_VALUE_LENGTH) for item in items]
        return f"{self.field} {operator.phrase} {', '.join(texts)}"

    def holds(self, values: Mapping[str, Any]) -> bool:
        operator = OPERATORS[self.kind]
        value = look_up(self.field, values, read_part)
        if value is MISSING:
            return operator.if_missing
        try:
            return operator.test(value, self.value)
        except Incomparable as error:
            problem = f"is {shorten(repr(value), 80)}, a {type(value).__name__}: {error}"
        except TimeoutError:
            problem = (
                f"has {len(value)} characters: matching the pattern {self.value!r} took longer than "
                f"{patterns.TIME_LIMIT:g} s; simplify it, above all repetitions inside repetitions"
            )
        text = self.describe()
        raise ConditionFailed(f"`{text}` cannot be evaluated: the field {self.field!r} {problem}", condition=text)

    def keys(self) -> tuple[str, ...]:
        return (self.field,)


@dataclass(frozen=True, slots=True)
class ConditionGroup(Condition):
    """All of several conditions, any of them, or the negation of a single one.

    Evaluation stops at the first condition that decides.
    """

    kind: Literal["all_of", "any_of", "not"]
    conditions: tuple[Condition, ...]

    def __post_init__(self) -> None:
        name = "not_" if self.kind == "not" else self.kind
        if not self.conditions:
            raise DefinitionError(f"{name} needs at least one condition")
        for condition in self.conditions:
            if not isinstance(condition, Condition):
                raise DefinitionError(f"{name} takes conditions, not {condition!r}")

    def describe(self) -> str:
        texts = [condition.describe() for condition in self.conditions]
        if self.kind == "not":
            return f"not ({texts[0]})"
        nested = [isinstance(inner, ConditionGroup) and inner.kind != "not" for inner in self.conditions]
        parts = [f"({text})" if is_nested else text for text, is_nested in zip(texts, nested, strict=True)]
        return (" and " if self.kind == "all_of" else " or ").join(parts)

    def holds(self, values: Mapping[str, Any]) -> bool:
        results = (condition.holds(values) for condition in self.conditions)
        if self.kind == "any_of":
            return any(results)
        return all(results) if self.kind == "all_of" else not all(results)

    def keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(chain.from_iterable(condition.keys() for condition in self.conditions)))


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
    return ConditionGroup("all_of", conditions)


def any_of(*conditions: Condition) -> Condition:
    """At least one condition is true."""
    return ConditionGroup("any_of", conditions)


def not_(condition: Condition) -> Condition:
    """The condition is not true."""
    return ConditionGroup("not", (condition,))


async def evaluate(condition: Condition, values: Mapping[str, Any]) -> bool:
    """Evaluate like `condition.holds(values)`, without blocking the event loop: patterns are matched in a thread.

    The package `regex` stops a match after its time limit, but checks the clock only once in several
    hundred steps, and one step may scan a long text. It releases the GIL meanwhile, so a thread helps.
    """
    match condition:
        case ConditionGroup(kind=kind, conditions=parts):
            # A loop, because `all` and `any` cannot await and must stop at the first result as
            # `holds` does.
            for part in parts:
                if await evaluate(part, values) is (kind == "any_of"):
                    return kind != "all_of"
            return kind == "all_of"
        case FieldCondition(kind="matches"):
            return await asyncio.to_thread(condition.holds, values)
        case _:
            return condition.holds(values)


def _to_tuple(values: Iterable[Any]) -> Any:
    # A string is passed on to be rejected, not split into its characters.
    return values if isinstance(values, str) else tuple(values)


def _flatten(kind: str, condition: Condition) -> tuple[Condition, ...]:
    if isinstance(condition, ConditionGroup) and condition.kind == kind:
        return condition.conditions
    return (condition,)
