"""A state is changed by paths, exactly there, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepwell.admin.state_edits import EditRefused, edit_state

STATE = {
    "a": {"b": [1, 2, 3], "c": None},
    "list": [[1], [2]],
    "x.y": {"": 1},
    "order": {"$": "shop:Order", "v": {"id": 1}},
}


@pytest.mark.parametrize(
    ("changes", "path", "after"),
    [
        ({"set": {"a.c": {"d": 1}}}, "a", {"b": [1, 2, 3], "c": {"d": 1}}),
        ({"set": {"a.b.1": 9}}, "a", {"b": [1, 9, 3], "c": None}),
        ({"set": {"list.1.0": "two"}}, "list", [[1], ["two"]]),
        ({"set": {"/x.y/": 2}}, "x.y", {"": 2}),
        ({"set": {"order.v.id": 2}}, "order", {"$": "shop:Order", "v": {"id": 2}}),
        ({"set": {"order.id": 2}}, "order", {"$": "shop:Order", "v": {"id": 2}}),
        ({"add": {"order.note": "x"}}, "order", {"$": "shop:Order", "v": {"id": 1, "note": "x"}}),
        ({"delete": ["/order/id"]}, "order", {"$": "shop:Order", "v": {}}),
        ({"set": {"a": {"$": "Decimal", "v": "1.5"}}}, "a", {"$": "Decimal", "v": "1.5"}),
        ({"delete": ["a.b.0", "a.b.2"]}, "a", {"b": [2], "c": None}),
        ({"delete": ["a.b.0"], "set": {"a.b.2": 4}}, "a", {"b": [2, 4], "c": None}),
        ({"add": {"a.b.3": 4}}, "a", {"b": [1, 2, 3, 4], "c": None}),
        ({"add": {"a.b.0": 0, "a.b.2": 2.5}}, "a", {"b": [0, 1, 2, 2.5, 3], "c": None}),
        ({"add": {"a.b.1": 1.5}, "delete": ["a.b.0"]}, "a", {"b": [1.5, 2, 3], "c": None}),
        ({"add": {"a.d": []}}, "a", {"b": [1, 2, 3], "c": None, "d": []}),
        ({"add": {"new": True}}, "new", True),
    ],
)
def test_what_a_path_names_is_changed_and_nothing_else(changes: dict[str, Any], path: str, after: Any) -> None:
    kept = json.dumps(STATE)
    made = edit_state(STATE, **changes)
    assert made[path] == after
    assert {key: value for key, value in made.items() if key != path} == {
        key: value for key, value in STATE.items() if key != path
    }
    assert json.dumps(STATE) == kept


def test_a_key_of_the_state_can_go() -> None:
    assert list(edit_state(STATE, delete=["a", "/x.y"])) == ["list", "order"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"set": {"order.id": 2, "order.v.id": 3}}, "'order.v.id' is changed twice"),
        ({"set": {"order.price": 2}}, "'order.v.price' does not exist: state 'order.v' has 'id'"),
        ({"set": {"b": 1}}, "'b' does not exist: the state has 'a', 'list', 'x.y', 'order'"),
        ({"delete": ["a.z"]}, "'a.z' does not exist: state 'a' has 'b', 'c'"),
        ({"set": {"a.z.q": 1}}, "'a.z.q' does not exist: state 'a' has 'b', 'c'"),
        ({"set": {"a.b.3": 1}}, "'a.b.3' does not exist: state 'a.b' is a list of 3 items, counted from 0"),
        ({"set": {"a.b.-1": 1}}, "a list of 3"),
        ({"set": {"a.b.²": 1}}, "a list of 3"),
        ({"add": {"a.b.4": 1}}, "a list of 3"),
        ({"set": {"a.c.d": 1}}, "state 'a.c' is null, which is not a mapping or a list"),
        ({"add": {"a.c": 1}}, "state 'a.c' already exists; use set to replace it"),
        ({"set": {"": 1}}, "a path is a string"),
        ({"set": {"a..b": 1}}, "an empty key"),
        ({"set": {"a.b": 1, "a": 2}}, "cannot both be changed"),
        ({"set": {"a.b": 1}, "delete": ["a"]}, "cannot both be changed"),
        ({"add": {"a.d": 1}, "delete": ["a"]}, "cannot both be changed"),
    ],
)
def test_a_path_that_does_not_fit_is_refused_in_words(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(EditRefused, match=why):
        edit_state(STATE, **changes)


DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1: 2},
        {"a": object()},
        float("nan"),
        [float("inf")],
        2**63,
        "half \ud800",
        {"half \ud800": 1},
        b"bytes",
        {"$": 1, "v": 2},
        {"$": "Decimal"},
        {"$": "Decimal", "v": "one"},
        {"$": "no such kind", "v": 1},
        DEEP,
    ],
)
def test_what_cannot_be_stored_is_refused(value: Any) -> None:
    for changes in ({"set": {"a": value}}, {"add": {"new": value}}):
        with pytest.raises(EditRefused):
            edit_state(STATE, **changes)


def test_values_that_were_given_stay_as_they_are() -> None:
    given: dict[str, Any] = {"b": []}
    assert edit_state(STATE, set={"a": given}, add={"a.b.0": 1})["a"] == {"b": [1]}
    assert given == {"b": []}
