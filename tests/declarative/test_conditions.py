"""Conditions: what they are true of, how they are said in words, and what is refused."""

import asyncio
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from stepwell import DefinitionError
from stepwell.declarative.conditions import patterns
from stepwell.declarative.conditions.condition import (
    CallableCondition,
    Condition,
    ConditionFailed,
    FieldCondition,
    all_of,
    any_of,
    at_least,
    at_most,
    contains,
    contains_all,
    contains_any,
    empty,
    ends_with,
    equals,
    exists,
    greater,
    less,
    matches,
    not_,
    not_empty,
    not_equals,
    not_exists,
    starts_with,
)


class Mood(Enum):
    GOOD = "good"


VALUES: dict[str, Any] = {
    "confidence": 0.9,
    "count": 3,
    "price": Decimal("9.50"),
    "done": True,
    "title": "Fix the login page",
    "tags": ["bug", "urgent", 7],
    "review": {"score": 8, "notes": [{"text": "good"}]},
    "blank": "",
    "none": None,
    "mood": Mood.GOOD,
    "a.b": "with a dot",
    "pair": ("x", 1),
    "names": {"ada", "bob"},
}

TRUE = [
    equals("confidence", 0.9),
    equals("count", 3.0),
    equals("done", True),
    equals("tags", ["bug", "urgent", 7]),
    equals("pair", ["x", 1]),
    equals("review", {"score": 8, "notes": [{"text": "good"}]}),
    equals("review.notes.0.text", "good"),
    equals("mood", "good"),
    equals("a.b", "with a dot"),
    not_equals("count", "3"),
    not_equals("nowhere", 3),
    exists("review.score"),
    exists("blank"),
    not_exists("review.grade"),
    not_exists("none"),
    greater("confidence", 0.8),
    greater("title", "E"),
    greater("price", 9.25),
    less("count", 4),
    at_least("count", 3),
    at_most("count", 3),
    contains("title", "login"),
    contains("tags", "bug"),
    contains("tags", 7),
    contains("review", "score"),
    contains("names", "ada"),
    starts_with("title", "Fix"),
    ends_with("title", "page"),
    matches("title", r"log\w+"),
    matches("title", r"^Fix.*page$"),
    empty("blank"),
    empty("none"),
    empty("nowhere"),
    not_empty("tags"),
    not_empty("count"),
    contains_any("title", ["logout", "login"]),
    contains_any("tags", ["feature", "bug"]),
    contains_all("tags", ["bug", "urgent"]),
    contains_all("title", ["Fix", "page"]),
]

FALSE = [
    equals("done", 1),
    equals("count", True),
    equals("title", "fix the login page"),
    equals("tags", ["bug"]),
    not_equals("count", 3),
    greater("confidence", 0.9),
    less("count", 3),
    contains("title", "Login"),
    contains("tags", True),
    starts_with("title", "page"),
    ends_with("title", "Fix"),
    matches("title", "^login"),
    empty("count"),
    empty("title"),
    not_empty("blank"),
    contains_any("tags", ["feature"]),
    contains_all("tags", ["bug", "feature"]),
    exists("title.0"),
]


@pytest.mark.parametrize("condition", TRUE, ids=Condition.describe)
def test_it_is_true_of_these_values(condition: Condition) -> None:
    assert condition.holds(VALUES) is True
    assert (~condition).holds(VALUES) is False


@pytest.mark.parametrize("condition", FALSE, ids=Condition.describe)
def test_it_is_not_true_of_these_values(condition: Condition) -> None:
    assert condition.holds(VALUES) is False
    assert (~condition).holds(VALUES) is True


@pytest.mark.parametrize("missing", ["nowhere", "review.grade", "none", "title.length", "tags.9", "count.real"])
def test_a_missing_field_makes_a_condition_false_except_three_that_are_true(missing: str) -> None:
    asked = [
        equals(missing, 1),
        exists(missing),
        greater(missing, 1),
        less(missing, 1),
        at_least(missing, 1),
        at_most(missing, 1),
        contains(missing, "a"),
        starts_with(missing, "a"),
        ends_with(missing, "a"),
        matches(missing, "a"),
        not_empty(missing),
        contains_any(missing, ["a"]),
        contains_all(missing, ["a"]),
    ]
    assert not any(condition.holds(VALUES) for condition in asked)
    assert all(condition.holds(VALUES) for condition in (not_exists(missing), empty(missing), not_equals(missing, 1)))


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (greater("confidence", 0.8), "confidence > 0.8"),
        (less("n", -1), "n < -1"),
        (at_least("n", 1), "n >= 1"),
        (at_most("n", 1), "n <= 1"),
        (equals("review.verdict", "good"), 'review.verdict == "good"'),
        (not_equals("done", True), "done != true"),
        (exists("a"), "a exists"),
        (not_exists("a"), "a does not exist"),
        (contains("a", "é"), 'a contains "é"'),
        (starts_with("a", "b"), 'a starts with "b"'),
        (ends_with("a", "b"), 'a ends with "b"'),
        (matches("a", "^b"), 'a matches "^b"'),
        (empty("a"), "a is empty"),
        (not_empty("a"), "a is not empty"),
        (contains_any("a", ["b", 1]), 'a contains any of "b", 1'),
        (contains_all("a", ("b",)), 'a contains all of "b"'),
        (greater("a", 1) & less("b", 2) & exists("c"), "a > 1 and b < 2 and c exists"),
        (exists("a") | exists("b") | exists("c"), "a exists or b exists or c exists"),
        (exists("a") & (exists("b") | exists("c")), "a exists and (b exists or c exists)"),
        (~exists("a"), "not (a exists)"),
        (CallableCondition(lambda values: True, "it is Monday"), "it is Monday"),
        (CallableCondition(any), "any"),
    ],
)
def test_it_is_said_in_words(condition: Condition, words: str) -> None:
    assert condition.describe() == words


def test_it_names_the_fields_it_looks_at_each_once() -> None:
    condition = (greater("a.b", 1) & exists("c")) | ~less("a.b", 0)
    assert condition.keys() == ("a.b", "c")
    assert CallableCondition(any).keys() == ()


def test_operators_and_functions_say_the_same() -> None:
    a, b = exists("a"), exists("b")
    assert a & b == all_of(a, b)
    assert a | b == any_of(a, b)
    assert ~a == not_(a)
    assert {a & b, all_of(a, b)} == {a & b}


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (greater("title", 3), ("`title > 3`", "'title'", "'Fix the login page'", "strings with strings")),
        (less("count", "3"), ('`count < "3"`', "'count'", "3", "numbers are compared with numbers")),
        (at_least("done", 1), ("'done'", "True")),
        (greater("tags", 1), ("'tags'", "a list")),
        (contains("title", 3), ("'title'", "a string contains only strings")),
        (contains("count", 3), ("'count'", "only strings, lists, sets and mappings")),
        (contains_any("title", ["Fix", 1]), ("'title'", "a string contains only strings")),
        (starts_with("count", "3"), ("'count'", "only to strings")),
        (matches("tags", "bug"), ("'tags'", "only to strings")),
    ],
)
def test_what_cannot_be_compared_is_an_error_that_names_field_value_and_condition(
    condition: Condition, said: tuple[str, ...]
) -> None:
    with pytest.raises(ConditionFailed) as failed:
        condition.holds(VALUES)
    assert failed.value.condition == condition.describe()
    assert [part for part in said if part not in str(failed.value)] == []


def test_a_long_value_is_cut_short_in_an_error() -> None:
    with pytest.raises(ConditionFailed) as failed:
        greater("text", 1).holds({"text": "x" * 10_000})
    assert len(str(failed.value)) < 400


def test_numbers_of_any_kind_are_compared_and_what_is_no_number_is_neither_more_nor_less() -> None:
    assert greater("n", 1).holds({"n": Fraction(3, 2)})
    for nan in (float("nan"), Decimal("nan")):
        assert not greater("n", 1).holds({"n": nan})
        assert not at_most("n", 1).holds({"n": nan})


@dataclass
class Verdict:
    score: int

    @property
    def secret(self) -> str:
        raise AssertionError("a file must not reach properties")


class Opinion(BaseModel):
    score: int


class Note(msgspec.Struct):
    score: int


Row = namedtuple("Row", "score")


@pytest.mark.parametrize("record", [Verdict(8), Opinion(score=8), Note(8), Row(8)])
def test_fields_of_records_are_found_and_other_attributes_are_not(record: Any) -> None:
    values = {"review": record}
    named = "review.0" if isinstance(record, tuple) else "review.score"
    assert greater(named, 7).holds(values)
    for path in ("review.secret", "review.__class__", "review.__dict__.score", "review.__init__.__globals__"):
        assert not_exists(path).holds(values)


@pytest.mark.parametrize(
    "made",
    [
        lambda: equals("a", None),
        lambda: equals("a", object()),
        lambda: equals("a", float("nan")),
        lambda: equals("a", {1: 2}),
        lambda: equals("", 1),
        lambda: equals(3, 1),  # type: ignore[arg-type]
        lambda: greater("a", True),
        lambda: greater("a", [1]),  # type: ignore[arg-type]
        lambda: greater("a", None),  # type: ignore[arg-type]
        lambda: greater("a", Decimal(1)),  # type: ignore[arg-type]
        lambda: starts_with("a", 1),  # type: ignore[arg-type]
        lambda: contains_any("a", "abc"),
        lambda: contains_any("a", []),
        lambda: all_of(),
        lambda: any_of(),
        lambda: all_of(lambda values: True),  # type: ignore[arg-type]
        lambda: not_("a"),  # type: ignore[arg-type]
        lambda: FieldCondition("greator", "a", 1),
        lambda: FieldCondition("exists", "a", 1),
        lambda: CallableCondition("a"),  # type: ignore[arg-type]
        lambda: CallableCondition(asyncio.sleep),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_made(made: Any) -> None:
    with pytest.raises(DefinitionError):
        made()


def test_the_words_and_or_not_do_not_join_conditions_silently() -> None:
    with pytest.raises(TypeError, match=r"`a > 1` has no truth value: call holds\(values\)"):
        greater("a", 1) and less("a", 2)
    with pytest.raises(TypeError, match="with &"):
        not greater("a", 1)


def test_a_long_value_is_cut_short_in_words() -> None:
    assert equals("a", "x" * 10_000).describe() == f'a == "{"x" * 99}...'


def test_what_it_was_given_cannot_be_changed_afterwards() -> None:
    wanted = ["bug"]
    condition = equals("tags", wanted)
    wanted.append("urgent")
    assert condition.holds({"tags": ["bug"]})


def test_a_callable_is_given_the_values() -> None:
    condition = CallableCondition(lambda values: values["n"] > 2, "n is large")
    assert condition.holds({"n": 3})
    assert not condition.holds({"n": 1})


def test_a_callable_that_must_be_awaited_is_an_error() -> None:
    async def later() -> bool:
        return True

    waiting = later()
    with pytest.raises(ConditionFailed, match="returned an awaitable"):
        CallableCondition(lambda values: waiting, "later").holds({})
    waiting.close()


SLOW = [
    (r"(a|aa)+$", "a" * 100 + "b"),
    (r"(?>(a|aa)+)$", "a" * 1_000_000 + "b"),
    (r"(\w+\s?)+$", "word " * 5000 + "!"),
    (r"(x+x+)+y", "x" * 3000),
    (r".*?x.*?y.*?z", "x" * 20_000),
    (r"(?:.{1,200}){1,20}$(?!)", "a" * 3000),
]


@pytest.mark.parametrize(("pattern", "text"), SLOW, ids=[pattern for pattern, _ in SLOW])
def test_a_pattern_that_takes_too_long_is_stopped_and_named(
    pattern: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "TIME_LIMIT", 0.02)
    condition = matches("body", pattern)
    with pytest.raises(ConditionFailed) as failed:  # without the limit, most of these would not end before the sun does
        condition.holds({"body": text})
    assert [part for part in (repr(pattern), "'body'", "0.02 s") if part not in str(failed.value)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(a",
        "[a",
        "a{2,1}",
        "(?P<n",
        "*",
        "\\",
        "(?:(?:[ab]{1000}){1000}){1000}",  # would need all the memory there is to compile
        "a{65535}" * 20,
        "(?R)*a",
        "(a(?1)?b)",
        "(?P<n>a(?&n)?)",
        "(?x)a{1 0 0 0 # hidden\n}",
        "(" * 400 + ")" * 400 + "(" * 99,
        "a" * 1001,
    ],
    ids=lambda pattern: pattern[:20],
)
def test_a_pattern_that_is_wrong_or_monstrous_is_refused_when_it_is_made(pattern: str) -> None:
    with pytest.raises(DefinitionError, match="pattern"):
        matches("a", pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
        r"^(?:\d{1,3}\.){3}\d{1,3}$",
        r"^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2})?)?$",
        r"(?i)\b(urgent|as soon as possible)\b",
        r"(?P<xyz>a)(?P=xyz)",
    ],
)
def test_everyday_patterns_are_taken(pattern: str) -> None:
    assert matches("a", pattern).holds({"a": "nothing of the kind"}) is False


def test_without_the_package_for_patterns_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "regex", None)
    patterns._compile.cache_clear()
    with pytest.raises(DefinitionError, match=r"pip install stepwell\[declarative\]"):
        matches("a", "b")
