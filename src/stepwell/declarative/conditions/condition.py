"""Conditions as data: they can be stored, said in words, and asked of values. No code in them is ever run.

A field is named by its path, such as `"review.score"`. A field that is not there, or is None, is missing: then every
condition on it is false, except `not_exists`, `empty` and `not_equals`, which are true.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from stepwell.declarative.conditions import patterns
from stepwell.declarative.conditions.operators import OPERATORS, Incomparable, describe_value, look_up, normalize_value
from stepwell.declarative.value_paths import MISSING
from stepwell.errors import DefinitionError, StepwellError


class ConditionFailed(StepwellError):
    """A condition can be neither true nor false of the values it was asked of. `condition` says it in words."""

    def __init__(self, message: str, *, condition: str) -> None:
        self.condition = condition
        super().__init__(message)


class Condition(ABC):
    """Something that is true of some values, and not of others. `&`, `|` and `~` make larger ones of it."""

    __slots__ = ()

    @abstractmethod
    def describe(self) -> str:
        """The condition in words."""

    @abstractmethod
    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it is true of these values. Raises ConditionFailed if the question makes no sense for them."""

    @abstractmethod
    def keys(self) -> tuple[str, ...]:
        """The paths of the fields that it looks at, as far as that is known, each once."""

    def __bool__(self) -> bool:
        raise TypeError(
            f"`{self.describe()}` is asked with holds(values); join conditions with &, | and ~, not with words"
        )

    def __and__(self, other: Condition) -> Condition:
        return all_of(*_parts(AllOf, self), *_parts(AllOf, other))

    def __or__(self, other: Condition) -> Condition:
        return any_of(*_parts(AnyOf, self), *_parts(AnyOf, other))

    def __invert__(self) -> Condition:
        return not_(self)


@dataclass(frozen=True, slots=True)
class FieldCondition(Condition):
    """A question about one field."""

    kind: str  # one of OPERATORS
    field: str
    value: Any = None  # what the field is compared with, if anything

    def __post_init__(self) -> None:
        operator = OPERATORS.get(self.kind)
        if operator is None:
            raise DefinitionError(f"there is no condition {self.kind!r}; there are {', '.join(OPERATORS)}")
        if not isinstance(self.field, str) or not self.field:
            raise DefinitionError(f"the condition {self.kind!r} is about a field named by a text, not {self.field!r}")
        try:
            value = normalize_value(operator.takes, self.value)
        except ValueError as error:
            raise DefinitionError(f"the condition {self.kind!r} on {self.field!r} {error}") from None
        object.__setattr__(self, "value", value)

    def describe(self) -> str:
        operator = OPERATORS[self.kind]
        return f"{self.field} {operator.words}{describe_value(operator.takes, self.value)}"

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
                f"has {len(value)} characters, and the pattern {self.value!r} was not done with them in "
                f"{patterns.TIME_LIMIT:g} s; make it simpler, mostly where one repetition is inside another"
            ) from None

    def keys(self) -> tuple[str, ...]:
        return (self.field,)

    def _make_error(self, what: str) -> ConditionFailed:
        words = self.describe()
        return ConditionFailed(f"`{words}` cannot be said of the field {self.field!r}, which {what}", condition=words)


@dataclass(frozen=True, slots=True)
class AllOf(Condition):
    """True if all of them are. The first that is not ends it."""

    conditions: tuple[Condition, ...]

    def __post_init__(self) -> None:
        _check_conditions("all_of", self.conditions)

    def describe(self) -> str:
        return " and ".join(map(_in_brackets, self.conditions))

    def holds(self, values: Mapping[str, Any]) -> bool:
        return all(condition.holds(values) for condition in self.conditions)

    def keys(self) -> tuple[str, ...]:
        return _unique_keys(self.conditions)


@dataclass(frozen=True, slots=True)
class AnyOf(Condition):
    """True if one of them is. The first that is ends it."""

    conditions: tuple[Condition, ...]

    def __post_init__(self) -> None:
        _check_conditions("any_of", self.conditions)

    def describe(self) -> str:
        return " or ".join(map(_in_brackets, self.conditions))

    def holds(self, values: Mapping[str, Any]) -> bool:
        return any(condition.holds(values) for condition in self.conditions)

    def keys(self) -> tuple[str, ...]:
        return _unique_keys(self.conditions)


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """True if the other is not."""

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
    """A plain function that is given the values. It can be asked and described, but not written to a file."""

    function: Callable[[Mapping[str, Any]], object]
    description: str = ""  # without one, the name of the function

    def __post_init__(self) -> None:
        if not callable(self.function) or inspect.iscoroutinefunction(self.function):
            raise DefinitionError(f"a condition is a plain function of the values, not {self.function!r}")

    def describe(self) -> str:
        return self.description or getattr(self.function, "__name__", type(self.function).__name__)

    def holds(self, values: Mapping[str, Any]) -> bool:
        answer = self.function(values)
        if inspect.isawaitable(answer):
            raise ConditionFailed(
                f"the condition `{self.describe()}` must answer at once, but wants to be awaited",
                condition=self.describe(),
            )
        return bool(answer)

    def keys(self) -> tuple[str, ...]:
        return ()


def equals(field: str, value: Any) -> Condition:
    """The field is that value. True is not 1, and text is told apart by case."""
    return FieldCondition("equals", field, value)


def not_equals(field: str, value: Any) -> Condition:
    """The field is another value, or missing."""
    return FieldCondition("not_equals", field, value)


def exists(field: str) -> Condition:
    """The field is there, and not None."""
    return FieldCondition("exists", field)


def not_exists(field: str) -> Condition:
    """The field is missing."""
    return FieldCondition("not_exists", field)


def greater(field: str, bound: float | str) -> Condition:
    """The field is more than that: a number, or a text that comes later."""
    return FieldCondition("greater", field, bound)


def less(field: str, bound: float | str) -> Condition:
    """The field is less than that: a number, or a text that comes earlier."""
    return FieldCondition("less", field, bound)


def at_least(field: str, bound: float | str) -> Condition:
    """The field is that or more."""
    return FieldCondition("at_least", field, bound)


def at_most(field: str, bound: float | str) -> Condition:
    """The field is that or less."""
    return FieldCondition("at_most", field, bound)


def contains(field: str, value: Any) -> Condition:
    """The field is a text with that in it, or a list with such an item, or a mapping with such a key."""
    return FieldCondition("contains", field, value)


def starts_with(field: str, text: str) -> Condition:
    """The field is a text that begins so."""
    return FieldCondition("starts_with", field, text)


def ends_with(field: str, text: str) -> Condition:
    """The field is a text that ends so."""
    return FieldCondition("ends_with", field, text)


def matches(field: str, pattern: str) -> Condition:
    """The field is a text in which the pattern is found, anywhere unless it says `^` and `$`.

    Needs the package `regex`. A match that takes too long is an error (see `TIME_LIMIT`).
    """
    return FieldCondition("matches", field, pattern)


def empty(field: str) -> Condition:
    """The field is missing, or has nothing in it: a text without characters, a list without items."""
    return FieldCondition("empty", field)


def not_empty(field: str) -> Condition:
    """The field is there, and has something in it."""
    return FieldCondition("not_empty", field)


def contains_any(field: str, values: Iterable[Any]) -> Condition:
    """The field contains at least one of these."""
    return FieldCondition("contains_any", field, _to_tuple(values))


def contains_all(field: str, values: Iterable[Any]) -> Condition:
    """The field contains every one of these."""
    return FieldCondition("contains_all", field, _to_tuple(values))


def all_of(*conditions: Condition) -> Condition:
    """All of them are true."""
    return AllOf(conditions)


def any_of(*conditions: Condition) -> Condition:
    """At least one of them is true."""
    return AnyOf(conditions)


def not_(condition: Condition) -> Condition:
    """It is not true."""
    return Not(condition)


def _to_tuple(values: Iterable[Any]) -> Any:
    return values if isinstance(values, str) else tuple(values)  # a text is refused, not taken letter by letter


def _parts(kind: type[AllOf | AnyOf], condition: Condition) -> tuple[Condition, ...]:
    return condition.conditions if isinstance(condition, kind) else (condition,)


def _check_conditions(name: str, conditions: tuple[Condition, ...]) -> None:
    if not conditions:
        raise DefinitionError(f"{name} needs at least one condition")
    for condition in conditions:
        if not isinstance(condition, Condition):
            raise DefinitionError(f"{name} takes conditions, not {condition!r}")


def _in_brackets(condition: Condition) -> str:
    words = condition.describe()
    return f"({words})" if isinstance(condition, AllOf | AnyOf) else words


def _unique_keys(conditions: tuple[Condition, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(condition.keys() for condition in conditions)))


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
