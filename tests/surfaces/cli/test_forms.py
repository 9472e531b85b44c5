"""Forms: what is typed comes to the value that was meant, and nothing comes of a form that does not fit its schema."""

from __future__ import annotations

import enum
import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field, make_dataclass
from datetime import date
from decimal import Decimal
from types import GenericAlias
from typing import Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from stepwell.admin.schemas.json_schema import shape_of
from stepwell.admin.schemas.validation import UnusableSchema, problems
from stepwell.cli.forms.schema_form import END, LEFT_OUT, Prompt, Unfillable, build_form
from stepwell.cli.forms.value_parsers import (
    InvalidInput,
    make_labels,
    parse_any,
    parse_bool,
    parse_choice,
    parse_number,
    parse_text,
)
from stepwell.codec.traversal import INT_MAX, INT_MIN
from stepwell.storage.response_types import answer_as, schema_of

quick = settings(deadline=None, suppress_health_check=list(HealthCheck))
PATIENCE = 300  # prompts: a form that asks more in these tests never ends


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Card(msgspec.Struct, tag=True):
    number: str
    limit: float | None = None


class Cash(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    coins: list[int]


class Note(pydantic.BaseModel):
    pages: int = pydantic.Field(gt=0, le=99)
    about: Literal["tea", "milk"] = "tea"
    answers: Note | None = None


Kind = tuple[Any, st.SearchStrategy[Any]]
"""A type, and values of it in plain JSON."""

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INTS = st.integers(INT_MIN, INT_MAX)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
CARDS = st.fixed_dictionaries(
    {"type": st.just("Card"), "number": TEXTS}, optional={"limit": FLOATS | st.none()}
) | st.fixed_dictionaries({"type": st.just("Cash"), "coins": st.lists(INTS, max_size=2)})
NOTES = st.recursive(
    st.just({"pages": 1, "about": "milk"}),
    lambda inner: st.fixed_dictionaries(
        {"pages": st.integers(1, 99)}, optional={"about": st.sampled_from(["tea", "milk"]), "answers": inner}
    ),
    max_leaves=3,
)
PLAIN: list[Kind] = [
    (bool, st.booleans()),
    (int, INTS),
    (float, FLOATS),
    (str, TEXTS),
    (Any, st.recursive(INTS | TEXTS | st.none(), lambda inner: st.lists(inner, max_size=2), max_leaves=3)),
    (Colour, st.sampled_from(["red", "green"])),
    (Literal["approve", "deny"], st.sampled_from(["approve", "deny"])),
    (Literal[1, 2, "two"], st.sampled_from([1, 2, "two"])),
    (Card | Cash, CARDS),
    (int | str, INTS | TEXTS),
    (list[int] | str | None, st.lists(INTS, max_size=2) | TEXTS | st.none()),
    (set[str], st.lists(TEXTS, max_size=3, unique=True)),
]
OF_TEXT: list[Kind] = [
    (UUID, st.uuids().map(str)),
    (date, st.dates().map(str)),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False).map(str)),
]
OF_PYDANTIC: list[Kind] = [(Note, NOTES), (list[Note], st.lists(NOTES, max_size=2)), (Note | None, NOTES | st.none())]


NUMBERS = itertools.count()  # of classes, so that each has a name of its own


def with_fields(known: dict[str, tuple[Kind, bool]]) -> Kind:
    """A dataclass. Fields with a default may be left out."""
    late = {name for name, (_, has_default) in known.items() if has_default}
    ordered = sorted(known.items(), key=lambda one: one[0] in late)
    made = make_dataclass(
        f"Fields{next(NUMBERS)}",
        [
            (name, kind | None, field(default=None)) if name in late else (name, kind)
            for name, ((kind, _), _) in ordered
        ],
    )
    needed = {name: values for name, ((_, values), _) in known.items() if name not in late}
    return made, st.fixed_dictionaries(needed, optional={name: known[name][0][1] | st.none() for name in late})


def generic(origin: type, *arguments: Any) -> Any:
    """What `origin[arguments]` is, of types that only the test knows."""
    return GenericAlias(origin, arguments)


def containers(kinds: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    names = st.sampled_from(["name", "size", "x", "reason"])
    return st.one_of(
        kinds.map(lambda kind: (generic(list, kind[0]), st.lists(kind[1], max_size=3))),
        kinds.map(lambda kind: (generic(dict, str, kind[0]), st.dictionaries(TEXTS, kind[1], max_size=2))),
        kinds.map(lambda kind: (kind[0] | None, kind[1] | st.none())),
        st.tuples(kinds, kinds).map(
            lambda both: (generic(tuple, both[0][0], both[1][0]), st.tuples(both[0][1], both[1][1]))
        ),
        st.dictionaries(names, st.tuples(kinds, st.booleans()), max_size=3).map(with_fields),
    )


def kinds_from(plain: list[Kind]) -> st.SearchStrategy[Kind]:
    return st.recursive(st.sampled_from(plain), containers, max_leaves=4)


@st.composite
def typed_values(draw: Any, kinds: st.SearchStrategy[Kind]) -> tuple[Any, Any, Any]:
    kind, values = draw(kinds)
    return kind, json.loads(schema_of(kind)), json.loads(json.dumps(draw(values)))


class Typist:
    """Types in what makes a form come to a value, or fails. Of the members of a union it tries one after the other."""

    def __init__(self, schema: Any, value: Any) -> None:
        self.schema, self.value = schema, value

    def typed(self) -> Any:
        ways: list[list[int]] = [[]]
        while ways:
            taken = ways.pop()
            try:
                typed = self._filled(iter(taken))
                if written(typed) == written(self.value):
                    return typed
            except _Crossroads as several:
                ways += [[*taken, number] for number in reversed(range(several.ways))]
            except _WrongWay:
                continue
        pytest.fail(f"no way to type {self.value!r} into {self.schema!r}")

    def _filled(self, turns: Iterator[int]) -> Any:
        form, names = build_form(self.schema), dict[Any, Any]()
        try:
            prompt = next(form)
            for _ in range(PATIENCE):
                prompt = form.send(self._text(prompt, turns, names))
        except StopIteration as ended:
            return ended.value
        pytest.fail("the form does not end")

    def _text(self, prompt: Prompt, turns: Iterator[int], names: dict[Any, Any]) -> str:
        if prompt.problem:
            raise _WrongWay
        value: Any = self.value
        for part in prompt.path:
            try:
                value = value[part]
            except (LookupError, TypeError):
                return ""
        if prompt.asks == "which":
            turn = next(turns, None)
            if turn is None:
                raise _Crossroads(len(prompt.choices))
            return prompt.choices[turn]
        if prompt.asks == "name":
            if not isinstance(value, dict):
                raise _WrongWay
            name = next(names.setdefault(prompt.path, iter(value)), None)
            return "" if name is None else json.dumps(name)
        if prompt.asks == "whether":
            return "null" if value is None else "yes"
        if prompt.choices:
            return make_labels([value])[0]
        return json.dumps(value)


class _Crossroads(Exception):
    def __init__(self, ways: int) -> None:
        self.ways = ways


class _WrongWay(Exception):
    pass


def written(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@pytest.mark.long
@quick
@given(typed_values(kinds_from([*PLAIN, *OF_TEXT]) | st.sampled_from(OF_PYDANTIC)))
def test_any_answer_can_be_typed_in(made: tuple[Any, Any, Any]) -> None:
    kind, schema, value = made
    typed = Typist(schema, value).typed()
    answer_as(typed, [kind])  # and the program takes it


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 2.5]) | st.sampled_from(["", "red", "Card"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "size", "type", "pages", "coins"]), inner, max_size=3)
    ),
    max_leaves=4,
)


def strict(schema: Any) -> Any:
    """The same schema, where a name that is not listed is a slip."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    known = {key: strict(one) for key, one in schema.items()}
    return {**known, "additionalProperties": known.get("additionalProperties", False)} if "required" in known else known


@pytest.mark.long
@quick
@given(typed_values(kinds_from(PLAIN) | st.sampled_from(OF_PYDANTIC)), st.data())
def test_what_fits_a_schema_is_what_others_find_to_fit_it(made: tuple[Any, Any, Any], data: Any) -> None:
    _, schema, fitting = made
    value = data.draw(st.just(fitting) | JSON | damaged(fitting))
    others = list(Draft202012Validator(strict(schema)).iter_errors(value))
    assert bool(list(problems(schema, value))) == bool(others), others


def damaged(value: Any) -> st.SearchStrategy[Any]:
    """The value, with something else in one place."""
    if isinstance(value, dict) and value:
        return st.sampled_from(sorted(value)).flatmap(
            lambda name: damaged(value[name]).map(lambda other: {**value, name: other})
        )
    if isinstance(value, list) and value:
        return st.integers(0, len(value) - 1).flatmap(
            lambda at: damaged(value[at]).map(lambda other: [*value[:at], other, *value[at + 1 :]])
        )
    return JSON


SIZES = st.integers(0, 3)
SENSIBLE = st.recursive(
    st.booleans() | st.sampled_from([{}, {"$ref": "#/$defs/A"}, {"type": "string"}, {"type": ["integer", "null"]}]),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"]),
            "properties": st.dictionaries(st.sampled_from(["name", "size", "coins"]), inner, max_size=2),
            "required": st.lists(st.sampled_from(["name", "size"]), max_size=2, unique=True),
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "enum": st.lists(JSON, min_size=1, max_size=3),
            "const": JSON,
            "default": JSON,
            "minItems": SIZES,
            "maxItems": SIZES,
            "minLength": SIZES,
            "uniqueItems": st.booleans(),
            "minimum": st.integers(-2, 2),
            "multipleOf": st.sampled_from([1, 0.5]),
            "pattern": st.sampled_from(["^r", "(", "(?=r)", r"\Z"]),
            "format": st.sampled_from(["uuid", "date", "regex", "nothing"]),
            "additionalProperties": inner,
            "$defs": st.fixed_dictionaries({"A": inner}),
        },
    ),
    max_leaves=8,
)
"""Schemas that mean something, if not always what was meant."""
WORDS = ["type", "properties", "required", "items", "anyOf", "oneOf", "allOf", "$ref", "enum", "const", "minItems"]
MORE = ["maxItems", "uniqueItems", "pattern", "format", "default", "$defs", "minimum", "multipleOf", "prefixItems", "A"]
SAID = st.sampled_from(["#", "#/$defs/A", "#/nowhere", "object", "array", "string", "null", "integer", "(", "uuid"])
SCHEMAS = st.recursive(
    JSON | SAID,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*WORDS, *MORE]), inner, max_size=4),
    max_leaves=12,
)
TYPED = st.lists(
    st.sampled_from(["", "y", "n", "1", "2", "null", '"a"', "[]", "text", "{", "1e999", "NaN"]), min_size=1
)


@pytest.mark.long
@quick
@given(SENSIBLE | SCHEMAS, JSON, TYPED)
def test_no_schema_and_no_text_upsets_a_form(schema: Any, value: Any, texts: list[str]) -> None:
    with suppress(UnusableSchema):
        assert all(isinstance(one, str) for one in problems(schema, value))
    for made in come_to(schema, texts):
        assert not list(problems(schema, made))
        assert made not in (LEFT_OUT, END)


def come_to(schema: Any, texts: list[str]) -> Iterator[Any]:
    """What a form comes to if these are typed again and again; nothing if it never ends, or is none."""
    form = build_form(schema)
    try:
        next(form)
        for text in itertools.islice(itertools.cycle(texts), PATIENCE):
            form.send(text)
    except StopIteration as ended:
        yield ended.value
    except Unfillable:
        return


def chained(keyword: str, length: int, last: str, pointer: str = "#/$defs") -> Any:
    """Definitions that each refer to the next one twice: as many ways through them as 2 to the power of the length."""
    steps = {f"d{n}": {keyword: [{"$ref": f"{pointer}/d{n + 1}"}] * 2} for n in range(length)}
    return {"$defs": {**steps, f"d{length}": {"$ref": last}}, "$ref": f"{pointer}/d0"}


TANGLED = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{other}"} for other in range(20) if other != n]} for n in range(20)}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": TANGLED, "$ref": "#/$defs/d0"},
        {"$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}, "properties": {"x": {"$ref": "#/$defs/a"}}},
        chained("allOf", 40, "#/$defs"),
        chained("anyOf", 40, "#/$defs"),
        chained("oneOf", 40, "#/$defs", "#/%24defs"),
        {"$id": "https://a.example/b", **chained("allOf", 40, "#/$defs", "https://a.example/b#/$defs")},
        {"properties": {"x": {"$id": "urn:x", **chained("allOf", 40, "#/$defs")}}, "$defs": {"d0": {}, "d1": {}}},
        {"$defs": {"a": {"$anchor": "a", "allOf": [{"$ref": "#a"}, {"$ref": "#a"}]}}, "$ref": "#a"},
        {"$dynamicAnchor": "a", "allOf": [{"$dynamicRef": "#a"}, {"$dynamicRef": "#a"}]},
        {"dependentSchemas": {"x": {"$ref": "#"}}},
        {"$ref": "https://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/hostname"},
        {"$ref": "#/nowhere"},
        {"$schema": "https://127.0.0.1:9/schema.json"},
        {"type": "thing"},
        {"patternProperties": {"(": {}}},
        [],
        None,
    ],
    ids=lambda schema: json.dumps(schema)[:40],
)
def test_an_evil_schema_is_refused_at_once(schema: Any) -> None:
    with pytest.raises(UnusableSchema, match=r"^the schema "):
        problems(schema, {"x": 1})
    with pytest.raises(Unfillable, match=r"^the schema "):
        next(build_form(schema))


def test_a_schema_that_is_deep_is_refused() -> None:
    schema: Any = {}
    for _ in range(3000):
        schema = {"items": schema}
    with pytest.raises(UnusableSchema, match=r"deeply|limit"):
        problems(schema, [])


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 50 + "!", ['"aaaaa']),
        ({"pattern": r"^(a|b|ab)*(?=c)\1$"}, "ab" * 5000 + "d", []),  # given up: too many ways
        ({"pattern": r"(?P<name>a)\Z"}, "b", []),  # a pattern of Python
        ({"format": "time"}, "12:00", []),
        ({"format": "date"}, "12:00", ['"12:00" is not a date like 2027-01-31']),
        ({"format": "date-time"}, "2027-01-31t12:00:00z", []),
        ({"type": "string"}, "\ud800", ['"\ud800" contains half of a surrogate pair']),
        ({"const": 1}, True, ["true is not one of 1"]),
        ({"enum": [1, "a"]}, 1.0, []),
        ({"type": ["string", "null"]}, 5, ["5 is not a string"]),
        ({"uniqueItems": True}, [1, 2, 3, 2.0, 1], ["[3]: 2.0 appears twice"]),
        ({"items": False}, [1], ["[0]: 1 is not allowed here"]),
        ({"minItems": 2}, [1], ["has 1 item, expected at least 2"]),
        ({"maxLength": 2}, "abc", ["has 3 characters, expected at most 2"]),
        ({"multipleOf": 0.01}, 0.07, []),
        ({"propertyNames": {"maxLength": 2}}, {"abc": 1}, ["abc: the name: has 3 characters, expected at most 2"]),
        ({"properties": {"properties": {"const": {"$ref": "#"}}}}, {"properties": {"$ref": "#"}}, []),
        (
            {"anyOf": [{"type": "string"}, {"title": "Count", "type": "integer"}]},
            [],
            ["[] matches none of: text, Count"],
        ),
        ({"anyOf": [{"properties": {"a": {}}}, {"type": "null"}]}, {"b": 1}, ["b: unknown field; the fields are 'a'"]),
        ({"not": {"type": "string"}}, "a", ['{"type":"string"} is not allowed for "a"']),
    ],
)
def test_what_does_not_fit_is_said(schema: Any, value: Any, said: list[str]) -> None:
    found = problems(schema, value)
    assert [one[: len(start)] for one, start in zip(found, said, strict=True)] == said


def test_two_classes_of_one_name_have_a_schema() -> None:
    inner = make_dataclass("Line", [("item", str)])
    outer = make_dataclass("Line", [("inside", inner), ("pieces", int)])
    assert ask(json.loads(schema_of(outer)), *["tea", "2"])[0] == {"inside": {"item": "tea"}, "pieces": 2}


def ask(schema: Any, *texts: str) -> tuple[Any, list[Prompt]]:
    """What comes of the texts, and what was asked for them."""
    form, prompts = build_form(schema), []
    try:
        prompts.append(next(form))
        for text in texts:
            prompts.append(form.send(text))
    except StopIteration as ended:
        assert len(prompts) == len(texts)
        return ended.value, prompts
    pytest.fail(f"not enough was typed: {prompts[-1]}")


def test_what_will_not_do_is_asked_again_with_the_reason() -> None:
    value, prompts = ask(json.loads(schema_of(Note)), "", "0", "many", "7", "milk", "no")
    assert value == {"pages": 7, "about": "milk"}
    assert [one.problem for one in prompts] == [
        "",
        'a value is required; for an empty string, type ""',
        "0 is not more than 0",
        "'many' is not a number",
        "",
        "",
    ]
    assert (prompts[0].path, prompts[0].wants) == (("pages",), "integer at most 99 and more than 0")
    assert (prompts[4].choices, prompts[4].enter) == (("tea", "milk"), '"tea"')


def test_what_has_a_default_is_left_out_and_what_must_be_there_takes_it() -> None:
    known = {"a": {"type": "string", "default": "x"}, "b": {"type": "string", "default": "y"}, "c": {"type": "integer"}}
    schema = {"type": "object", "properties": known, "required": ["b"]}
    assert ask(schema, "", "", "")[0] == {"b": "y"}
    assert ask(schema, '""', "\t z", "3")[0] == {"a": "", "b": "\t z", "c": 3}


def test_a_list_ends_with_enter_and_has_its_sizes() -> None:
    schema = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3, "uniqueItems": True}
    value, prompts = ask(schema, "", "tea", "tea", "milk", "")
    assert value == ["tea", "milk"]
    assert [one.enter for one in prompts] == [None, None, "no more", "no more", "no more"]
    assert prompts[3].problem == '"tea" is already in the list'
    assert ask(schema, "a", "b", "c")[0] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "schema", [{"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, {"type": "null", "const": 1}]
)
def test_a_schema_without_an_end_has_no_form(schema: Any) -> None:
    with pytest.raises(Unfillable):
        next(build_form(schema))


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (parse_bool, " Yes", True),
        (parse_bool, "N", False),
        (parse_bool, "1", InvalidInput),
        (parse_number, " -2.5e3 ", -2500.0),
        (parse_number, "12", 12),
        (parse_number, "true", InvalidInput),
        (parse_number, "NaN", InvalidInput),
        (parse_number, "1e999", InvalidInput),
        (parse_number, "1_000", InvalidInput),
        (parse_text, 'he said "no"', 'he said "no"'),
        (parse_text, '"two\\nlines"', "two\nlines"),
        (parse_text, '"unfinished', '"unfinished'),
        (parse_text, "12", "12"),
        (parse_any, "12", 12),
        (parse_any, "tea", "tea"),
        (parse_any, '"12"', "12"),
        (parse_any, "[" * 100_000, "[" * 100_000),
    ],
)
def test_a_text_comes_to(read: Any, text: str, value: Any) -> None:
    if value is InvalidInput:
        with pytest.raises(InvalidInput):
            read(text)
    else:
        assert read(text) == value
        assert type(read(text)) is type(value)


@pytest.mark.parametrize(
    ("values", "text", "meant"),
    [
        (["approve", "deny", "answer"], "deny", "deny"),
        (["approve", "deny", "answer"], "D", "deny"),
        (["approve", "deny", "answer"], "3", "answer"),
        (["approve", "deny", "answer"], "a", InvalidInput),
        (["approve", "deny", "answer"], "4", InvalidInput),
        (["ran", "ran again"], "Ran", "ran"),
        ([3, 1, 2], "1", 1),
        ([3, 1, 2], "0", InvalidInput),
        (["1", 1], "1", 1),
        (["1", 1], '"1"', "1"),
        ([None, "null", True], "null", None),
        (["", "a"], '""', ""),
    ],
)
def test_one_of_several_is_meant_by_its_word_its_number_or_its_beginning(values: Any, text: str, meant: Any) -> None:
    labels = make_labels(values)
    assert len(set(labels)) == len(labels)
    if meant is InvalidInput:
        with pytest.raises(InvalidInput):
            parse_choice(text, labels)
    else:
        assert values[parse_choice(text, labels)] is meant or values[parse_choice(text, labels)] == meant


@pytest.mark.parametrize(
    ("schema", "shape"),
    [
        ({"type": "boolean"}, "true or false"),
        ({"enum": ["yes", "no"]}, '"yes" or "no"'),
        ({"type": ["integer", "null"]}, "integer or null"),
        (
            {
                "title": "Decision",
                "type": "object",
                "properties": {"approved": {"type": "boolean"}, "lines": {"items": {"$ref": "#/$defs/Line"}}},
                "required": ["approved"],
                "$defs": {"Line": {"type": "object", "properties": {"sku": {"type": "string", "title": "Sku"}}}},
            },
            '{"approved": true or false, "lines"?: [{"sku"?: text}, ...]}',
        ),
        ({"$ref": "#"}, "anything"),
        ({}, "anything"),
    ],
)
def test_the_shape_of_a_response_is_said_in_one_line(schema: dict[str, Any], shape: str) -> None:
    assert shape_of(schema) == shape
