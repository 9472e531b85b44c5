"""People read values, not the form in which they are stored."""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from stepwell.admin.values import main_part, open_value, to_data, to_line, to_lines
from stepwell.agents.messages import AgentExecutorResponse, AgentResponse, Message, ModelReply, ToolCall, Usage
from stepwell.agents.requests import ToolApprovalRequest
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.declarative.messages import AgentWorkflowOutcome

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=30)
        | st.dictionaries(st.text(), inner, max_size=30)
        | st.fixed_dictionaries({"$": st.sampled_from(["set", "dict", "bytes", "a:B", "stepwell:Message"]), "v": inner})
    ),
    max_leaves=60,
)


class Colour(Enum):
    RED = 1


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    id: int
    lines: list[Line] = field(default_factory=list)
    note: str | None = None


class Decision(BaseModel):
    model_config = ConfigDict(extra="allow")
    approved: bool
    by: str | None = None


def stored(value: Any) -> Any:
    return json.loads(DEFAULT_CODEC.encode(value))


def lines(value: Any, **options: Any) -> list[str]:
    return list(to_lines(stored(value), **options))


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Decision(approved=True), {"approved": True, "by": None}),
        (Decision(approved=True, extra="yes"), {"approved": True, "by": None, "extra": "yes"}),  # type: ignore[call-arg]
        (Order(7, [Line("tea")]), {"id": 7, "lines": [{"sku": "tea", "count": 1}], "note": None}),
        (Colour.RED, "RED"),
        ((1, "a"), [1, "a"]),
        ({"b"}, ["b"]),
        (deque([1], 3), [1]),
        ({1: "one", ("a", 2): "two"}, {"1": "one", '["a",2]': "two"}),
        ({1: "one", "1": "text"}, [[1, "one"], ["1", "text"]]),  # nothing is lost
        ({"$": "a key of the user's"}, {"$": "a key of the user's"}),
        (Counter(a=2), {"a": 2}),
        (10**30, str(10**30)),
        (float("inf"), "inf"),
        (Decimal("1.10"), "1.10"),
        (date(2026, 11, 16), "2026-11-16"),
        (datetime(2026, 11, 16, 10, tzinfo=UTC), "2026-11-16T10:00:00+00:00"),
        (datetime(2026, 11, 16, 10, tzinfo=ZoneInfo("Europe/Berlin")), "2026-11-16T10:00:00[Europe/Berlin]"),
        (timedelta(hours=1, minutes=30), "1:30:00"),
        (range(3), "range(0, 3)"),
        (1 + 2j, "(1+2j)"),
        (PurePosixPath("/a/b"), "/a/b"),
        (b"\x00\x01", "AAE="),
        (None, None),
    ],
)
def test_json_holds_data_and_no_tags(value: Any, data: Any) -> None:
    assert to_data(stored(value)) == data


def test_people_read_how_large_a_binary_value_is() -> None:
    assert to_line(stored(b"\x00" * 2000)) == "2,000 bytes"
    assert to_line(stored(np.zeros((2, 3)))) == "48 bytes of <f8, shape [2, 3]"
    assert isinstance(to_data(stored(np.zeros(3))), str)


def test_lines_name_the_class_of_a_value_beside_its_name() -> None:
    assert lines({"order": Order(7, [Line("tea"), Line("milk", 2)]), "answer": Decision(approved=False)}) == [
        "order: (Order)",
        "  id: 7",
        "  lines:",
        "    - (Line)",
        "      sku: tea",
        "      count: 1",
        "    - (Line)",
        "      sku: milk",
        "      count: 2",
        "  note: null",
        "answer: (Decision)",
        "  approved: false",
        "  by: null",
    ]


def test_a_conversation_reads_as_one() -> None:
    conversation = [
        Message("user", "Hello"),
        Message("assistant", "First.\nSecond.", "writer"),
        Message("assistant", "", "writer", data={"score": 3}),
    ]
    assert lines(conversation) == [
        "- user: Hello",
        "- assistant (writer):",
        "  | First.",
        "  | Second.",
        "- assistant (writer):",
        "  data:",
        "    score: 3",
    ]


@pytest.mark.parametrize(
    "value",
    [
        AgentResponse([Message("assistant", "done")], Usage(3, 4, 1)),
        AgentExecutorResponse("writer", AgentResponse([Message("assistant", "done")])),
        AgentWorkflowOutcome(AgentResponse([Message("assistant", "done")]), {}, (), {}, {}),
        AgentResponse(value="done"),
        Message("assistant", "done"),
    ],
)
def test_of_an_agents_answer_people_read_the_text(value: Any) -> None:
    assert main_part(stored(value)) == "done"
    assert to_line(stored(value)) == "done"
    assert lines({"answer": value})[0].endswith(" done")


def test_empty_fields_of_our_own_classes_and_schemas_of_tools_are_left_out() -> None:
    request = ToolApprovalRequest("clerk", "refund", {"amount": 5, "memo": None}, "c1", parameters={"type": "object"})
    assert lines(request) == [
        "agent: clerk",
        "tool: refund",
        "arguments:",
        "  amount: 5",
        "  memo: null",  # an argument that the person approves
        "tool_call_id: c1",
    ]
    reply = ModelReply({"content": "hi", "refusal": None}, "hi", [ToolCall("c1", "refund")])
    assert lines(reply)[:3] == ["data:", "  content: hi", "text: hi"]


def test_members_that_are_null_are_left_out_on_request() -> None:
    reply = {"content": "hi", "refusal": None, "logprobs": None, "usage": {"cached": None, "input": 3}}
    assert lines(reply, nulls=False) == ["content: hi", "usage:", "  input: 3"]
    assert "refusal: null" in lines(reply)


def test_long_values_are_cut_and_say_how_long_they_are() -> None:
    assert lines({"text": "x" * 300}) == [f"text: {'x' * 200}... (300 characters)"]
    assert lines({"text": "x" * 300}, full=True) == [f"text: {'x' * 300}"]
    assert lines("a\n" + "x" * 3000)[-1] == "... (3002 characters)"
    assert lines(list(range(100)))[-1] == "... and 80 more"
    assert to_line(stored(list(range(1000)))).endswith("69... (shortened)")
    assert to_line(stored(list(range(1000))), longest=None).endswith("999]")
    assert to_line("") == '""'


def test_text_gives_a_terminal_no_orders() -> None:
    for line in [*lines({"a\x1b": "b\x07\nc\x1b[31m"}), to_line("\x1b"), *lines([Message("user", "x", "\x1b")])]:
        assert line.isprintable()


@pytest.mark.parametrize(
    "damaged",
    [
        {"$": "tuple", "v": 3},
        {"$": "dict", "v": [[1]]},
        {"$": "timedelta", "v": ["x"]},
        {"$": "bytes", "v": "*"},
        {"$": "datetime"},
        {"$": "unknown", "v": {"$": "set", "v": 1}},
        {"$": "shop:Order"},
        {"$": 3, "v": []},
        {"$": "stepwell:Message", "v": {"role": 3, "text": {"$": "bytes"}}},
        {"$": "stepwell:AgentResponse", "v": {"messages": 3}},
        {"$": "Decimal", "v": {"$": "set", "v": []}},
    ],
)
def test_damaged_values_are_shown_as_far_as_they_go(damaged: Any) -> None:
    assert list(to_lines([damaged]))
    assert to_line(damaged)
    to_data(damaged), open_value(damaged), main_part(damaged)


def test_a_value_that_an_export_left_out_says_so() -> None:
    assert to_line({"$": "removed"}) == "[removed]"


def test_a_deep_value_is_shown() -> None:
    value: Any = "bottom"
    for _ in range(190):
        value = {"a": value}
    assert lines(value)[-1].strip() == "a: bottom"
    assert "bottom" in to_line(stored(value), longest=None)


@pytest.mark.long
@given(JSON)
def test_whatever_is_stored_is_shown_in_printable_lines(value: object) -> None:
    for full in (True, False):
        assert all(line.isprintable() for line in to_lines(value, full=full))
        assert to_line(value, longest=None if full else 200).isprintable()
    json.dumps(to_data(value))


def test_floats_are_rounded_for_people_and_left_alone_in_data() -> None:
    cost = 0.1 + 0.2
    assert to_line({"cost": cost}) == '{"cost":0.3}'
    assert list(to_lines({"cost": cost})) == ["cost: 0.3"]
    assert to_line({"cost": cost}, longest=None) == f'{{"cost":{cost}}}'
    assert to_data({"cost": cost}) == {"cost": cost}
    assert (to_line(1e-9), to_line(123456789.25), to_line(-0.0)) == ("1e-9", "123456789.25", "-0.0")
