"""The published schema is the one that the code gives, and says of a file what the reader says."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from stepwell import DefinitionError
from stepwell.declarative.conditions.operators import OPERATORS
from stepwell.declarative.definition import Approval, Definition, Edge, Node, Retries
from stepwell.declarative.files.fields import FIELDS, get_defaults
from stepwell.declarative.files.reader import GROUPS, from_data
from stepwell.declarative.files.schema import schema
from stepwell.declarative.files.writer import to_data
from tests.support.agent_definitions import definitions

PUBLISHED = Path(__file__).parents[2] / "docs" / "agent-workflow.schema.json"
VALIDATOR = Draft202012Validator(json.loads(PUBLISHED.read_text()))

GOOD: dict[str, Any] = {
    "format": 1,
    "name": "x",
    "description": "",
    "timeout": 0.5,
    "conversation": "per-agent",
    "retention": "latest-only",
    "nodes": [
        {
            "id": "a",
            "retry": {"attempts": 1, "initial_delay": 0, "errors": []},
            "config": {"any": [None, {"thing": 1}]},
        },
        {"id": "b", "approval": {"timeout": 0, "when": {"kind": "equals", "field": "a", "value": {"x": None}}}},
    ],
    "edges": [
        {"from": "a", "to": ["b"], "when": {"kind": "at_least", "field": "score", "value": "A"}},
        {"from": ["b"], "to": "a", "default": True},
        {
            "from": "b",
            "to": "b",
            "when": {
                "kind": "any_of",
                "conditions": [
                    {"kind": "not", "condition": {"kind": "exists", "field": "x"}},
                    {"kind": "contains_all", "field": "x", "value": [1, "a", None]},
                ],
            },
        },
    ],
}

WRONG: list[tuple[tuple[str | int, ...], Any]] = [
    (("format",), 2),
    (("format",), "1"),
    (("name",), ""),
    (("name",), None),
    (("extra",), 1),
    (("timeout",), 0),
    (("timeout",), True),
    (("max_iterations",), 0),
    (("max_iterations",), 1.5),
    (("conversation",), "loud"),
    (("checkpointing",), "yes"),
    (("nodes",), []),
    (("nodes",), {}),
    (("nodes", 0), "a"),
    (("nodes", 0, "id"), ""),
    (("nodes", 0, "config"), []),
    (("nodes", 0, "context_keys"), "a"),
    (("nodes", 0, "context_keys"), [1]),
    (("nodes", 0, "retry"), 3),
    (("nodes", 0, "retry", "attempts"), 0),
    (("nodes", 0, "retry", "initial_delay"), -1),
    (("nodes", 0, "retry", "often"), 1),
    (("nodes", 0, "output_mode"), "loud"),
    (("nodes", 0, "concurrency"), 0),
    (("nodes", 1, "approval", "on_timeout"), "explode"),
    (("nodes", 1, "approval", "when", "value"), None),
    (("edges", 0, "from"), []),
    (("edges", 0, "to"), ""),
    (("edges", 0, "to"), 3),
    (("edges", 0, "when"), "score > 1"),
    (("edges", 0, "when", "kind"), "atleast"),
    (("edges", 0, "when", "kind"), "exists"),
    (("edges", 0, "when", "field"), ""),
    (("edges", 0, "when", "value"), [1]),
    (("edges", 0, "when", "extra"), 1),
    (("edges", 2, "when", "conditions"), []),
    (("edges", 2, "when", "conditions", 0, "condition"), None),
    (("edges", 2, "when", "conditions", 1, "value"), []),
    (("edges", 2, "when", "conditions", 1, "value"), "ab"),
]

RIGHT: list[tuple[tuple[str | int, ...], Any]] = [
    (("$schema",), "agent-workflow.schema.json"),
    (("max_iterations",), 3.0),
    (("nodes", 0, "timeout"), 3),
    (("nodes", 0, "context_keys"), []),
    (("nodes", 0, "instructions"), ""),
    (("edges", 0, "when", "value"), 3),
    (("edges", 0, "when"), {"kind": "matches", "field": "a", "value": "^a"}),
]


def changed(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    here: Any = data
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    return data


def accepted(data: dict[str, Any]) -> bool:
    try:
        from_data(data)
    except DefinitionError:
        return False
    return True


def test_the_published_schema_is_the_one_the_code_gives() -> None:
    assert json.loads(PUBLISHED.read_text()) == schema()
    Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize(("path", "value"), [((), None), *RIGHT], ids=str)
def test_both_accept(path: tuple[str | int, ...], value: Any) -> None:
    data = changed(path, value) if path else GOOD
    assert [error.message for error in VALIDATOR.iter_errors(data)] == []
    assert accepted(data)


@pytest.mark.parametrize(("path", "value"), WRONG, ids=str)
def test_both_refuse(path: tuple[str | int, ...], value: Any) -> None:
    data = changed(path, value)
    assert not VALIDATOR.is_valid(data)
    assert not accepted(data)


@pytest.mark.parametrize("missing", ["format", "name", "nodes"])
def test_both_miss_what_must_be_there(missing: str) -> None:
    data = {key: value for key, value in GOOD.items() if key != missing}
    assert not VALIDATOR.is_valid(data)
    assert not accepted(data)


def test_every_kind_of_condition_is_in_the_schema() -> None:
    shapes = schema()["$defs"]["condition"]["oneOf"]
    kinds = [shape["properties"]["kind"] for shape in shapes]
    named = [name for kind in kinds for name in kind.get("enum", [kind.get("const")])]
    assert sorted(named) == sorted([*OPERATORS, *GROUPS])


@pytest.mark.long
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(definitions())
def test_whatever_is_written_is_valid(definition: Definition) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(to_data(definition))] == []


DOCUMENTED = Path(__file__).parents[2] / "docs" / "agents-by-name-files.md"


@pytest.mark.parametrize(("of", "title"), [
    (Definition, "The definition:"),
    (Node, "A node:"),
    (Edge, "An edge:"),
    (Retries, "`retry` of a node:"),
    (Approval, "`approval` of a node:"),
])  # fmt: skip
def test_every_key_is_documented_with_its_choices(of: type, title: str) -> None:
    (table,) = re.findall(rf"^{re.escape(title)}\n\n\| Key \| Value \| Meaning \|\n\|---\|---\|---\|\n((?:\|.*\n)+)",
                          DOCUMENTED.read_text(encoding="utf-8"), re.MULTILINE)  # fmt: skip
    rows = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()]
    assert [row[0].strip("` |") for row in rows] == [spec.name for spec in FIELDS[of]]
    for row, spec in zip(rows, FIELDS[of], strict=True):
        if choices := spec.shape.schema.get("enum"):
            assert row[1] == ", ".join(f"`{choice}`" for choice in choices)
        is_required = spec.attribute not in get_defaults(of)
        assert ("required" in row[2]) == is_required
