"""Requests as forms of MCP: every field is one that the protocol knows, and the value comes back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any, Literal

import msgspec
import pytest
from mcp_types._v2025_11_25 import PrimitiveSchemaDefinition, RequestedSchema
from pydantic import TypeAdapter

from stepwell.admin.schemas.validation import find_flaws
from stepwell.server.mcp.forms import make_form, read_form
from stepwell.storage.response_types import schema_of

FIELD = TypeAdapter[Any](PrimitiveSchemaDefinition)


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Choice:
    size: Size
    when: date
    limit: Decimal
    colour: Literal["red", "blue"] = "red"
    note: str | None = None
    extras: list[Literal["lid", "box"]] | None = None


@dataclass
class Verdict:
    granted: bool
    reason: str | None


@dataclass
class Nested:
    inner: dict[str, bool]


@pytest.mark.parametrize(
    ("type", "content", "value"),
    [
        (bool, {"response": True}, True),
        (str | None, {}, None),
        (str | None, {"response": "x"}, "x"),
        (Literal["a", "b"], {"response": "b"}, "b"),
        (date, {"response": "2027-01-31"}, "2027-01-31"),
        (list[Literal["a", "b"]], {"response": ["a"]}, ["a"]),
        (Verdict, {"granted": True}, {"granted": True, "reason": None}),
        (Verdict, {"granted": False, "reason": "late"}, {"granted": False, "reason": "late"}),
        (Nested, {"response": '{"inner": {"granted": true}}'}, {"inner": {"granted": True}}),
        (list[str], {"response": '["a", "b"]'}, ["a", "b"]),
        (int | str, {"response": "7"}, 7),
        (Literal[1, 2], {"response": "2"}, 2),
        (dict[str, int], {"response": "{}"}, {}),
    ],
)
def test_a_form_is_flat_and_its_content_is_the_value(type: Any, content: dict[str, Any], value: Any) -> None:
    schema = msgspec.json.decode(schema_of(type), type=dict[str, Any])
    form = make_form(schema)
    RequestedSchema.model_validate(form)
    for field in form["properties"].values():
        FIELD.validate_python(field)
    assert set(form.get("required", ())) <= form["properties"].keys()
    assert set(form.get("required", ())) <= content.keys()
    assert read_form(schema, content) == value
    assert find_flaws(schema, value) == []


def test_what_a_form_says_of_its_fields() -> None:
    schema = msgspec.json.decode(schema_of(Choice), type=dict[str, Any])
    form = make_form(schema)
    assert form["required"] == ["size", "when", "limit"]
    assert form["properties"] == {
        "size": {"type": "string", "enum": ["l", "s"], "title": "Size"},
        "when": {"type": "string", "format": "date"},
        "limit": {"type": "string"},  # the protocol has no such format; the server checks it
        "colour": {"type": "string", "enum": ["blue", "red"], "default": "red"},
        "note": {"type": "string"},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["box", "lid"]}},
    }


@pytest.mark.parametrize(
    "schema", [{}, {"type": "object", "properties": 7}, {"$ref": "#"}, {"anyOf": [3, {"type": []}]}]
)
def test_a_schema_of_unknown_origin_is_asked_as_json(schema: dict[str, Any]) -> None:
    assert make_form(schema)["properties"] == {"response": {"type": "string", "description": "the response, as JSON"}}
    assert read_form(schema, {"response": "[1]"}) == [1]
    assert read_form(schema, {"response": "not JSON"}) == "not JSON"
