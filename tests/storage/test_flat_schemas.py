"""The schemas of responses have no reference at their root: forms elsewhere need not follow any."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import jsonschema_rs
import msgspec
import pytest
from pydantic import BaseModel

from stepwell.storage.response_types import flatten_schema, schema_of


@dataclass
class Line:
    item: str
    count: int = 1


@dataclass
class Order:
    first: Line
    lines: list[Line] = field(default_factory=list)


@dataclass
class Tree:
    name: str
    below: list[Tree] = field(default_factory=list)


class Circle(msgspec.Struct, tag=True):
    radius: float


class Square(msgspec.Struct, tag=True):
    side: float


class Form(BaseModel):
    line: Line
    kind: Literal["a", "b"] = "a"


@pytest.mark.parametrize("kind", [Order, Line, Form, list[Order], Line | None, dict[str, Order]])
def test_a_schema_has_no_references(kind: Any) -> None:
    text = schema_of(kind)
    assert "$ref" not in text
    assert "$defs" not in text


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Order, {"first": {"item": "tea"}, "lines": [{"item": "cup", "count": 2}]}, {"first": {"item": 3}}),
        (Tree, {"name": "a", "below": [{"name": "b", "below": []}]}, {"name": "a", "below": [{"name": 3}]}),
        (Circle | Square, {"type": "Circle", "radius": 1.0}, {"type": "Circle", "side": 1.0}),
    ],
)
def test_a_flat_schema_means_the_same(kind: Any, good: Any, bad: Any) -> None:
    schema = json.loads(schema_of(kind))
    assert "$ref" not in schema
    assert jsonschema_rs.is_valid(schema, good)
    assert not jsonschema_rs.is_valid(schema, bad)


def test_what_contains_itself_is_referred_to() -> None:
    schema = json.loads(schema_of(Tree))
    assert schema["properties"]["below"]["items"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"].keys() == {"Tree"}


def test_data_that_looks_like_a_reference_is_left_alone() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"default": {"$ref": "#/$defs/A"}, "type": "object"}},
        "$defs": {"A": {"type": "string"}},
    }
    assert flatten_schema(schema)["properties"] == schema["properties"]


def test_definitions_that_would_be_inlined_without_end_are_kept() -> None:
    steps = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}
    definitions: dict[str, Any] = {**steps, "d30": {"type": "string"}}
    flat = flatten_schema({"$ref": "#/$defs/d0", "$defs": definitions})
    assert "$ref" not in flat
    assert len(json.dumps(flat)) < 10_000
