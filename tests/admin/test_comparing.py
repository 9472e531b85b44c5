"""The changes between two JSON documents lead from the one to the other, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.admin.diffs import json_diff
from stepwell.admin.diffs.json_diff import (
    apply_patch,
    compare,
    lines_of,
    parts_of,
    patch_of,
    pointer_of,
    reverse_changes,
    same,
)

names = st.one_of(st.sampled_from(["a", "b", "~", "/", "~1", "", "0", "a/b~c"]), st.text(max_size=3))
atoms = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=3)
)
documents = st.recursive(
    atoms,
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(names, inner, max_size=4)),
    max_leaves=25,
)


@pytest.mark.long
@given(documents, documents)
def test_a_patch_leads_from_one_to_the_other_and_back(one: Any, other: Any) -> None:
    kept = json.dumps([one, other])
    changes = compare(one, other)
    assert same(apply_patch(one, patch_of(changes)), other)
    assert same(apply_patch(other, patch_of(reverse_changes(changes))), one)
    assert reverse_changes(reverse_changes(changes)) == changes
    assert json.dumps([one, other]) == kept  # neither was touched


@pytest.mark.long
@given(documents)
def test_what_is_the_same_has_no_changes(one: Any) -> None:
    assert compare(one, json.loads(json.dumps(one))) == []


@pytest.mark.long
@given(st.lists(atoms, max_size=12), st.lists(atoms, max_size=12))
def test_lists_too_long_to_be_laid_side_by_side_are_still_exact(one: list[Any], other: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_diff, "_MOST_PAIRS", 4)
        changes = compare(one, other)
    assert same(apply_patch(one, patch_of(changes)), other)
    assert same(apply_patch(other, patch_of(reverse_changes(changes))), one)


@given(st.lists(names, max_size=4))
def test_a_pointer_says_its_path(path: list[str]) -> None:
    assert parts_of(pointer_of(tuple(path))) == tuple(path)


@pytest.mark.parametrize(
    ("one", "other", "lines"),
    [
        ([1, 2], [1, 2, 3, 4], ["+ [2]: 3", "+ [3]: 4"]),
        ([1, 2, 3], [2, 3], ["- [0]: 1"]),
        ([1, 3], [1, 2, 3], ["+ [1]: 2"]),
        ([{"a": 1}, {"b": 2}], [{"a": 1}, {"b": 3}], ["~ [1].b: 2 → 3"]),
        ({"a": {"b": [1]}}, {"a": {"b": [1, None]}}, ["+ a.b[1]: null"]),
        ({"a": 1, "b": 2}, {"b": 2, "c": 3}, ["- a: 1", "+ c: 3"]),
        ({"a": None}, {"a": False}, ["~ a: null → false"]),
        (1, "1", ['~ everything: 1 → "1"']),
        ([1], [1.0], ["~ [0]: 1 → 1.0"]),
        (1, True, ["~ everything: 1 → true"]),
        (0.0, -0.0, ["~ everything: 0.0 → -0.0"]),
    ],
)
def test_changes_are_told_as_what_was_done(one: Any, other: Any, lines: list[str]) -> None:
    assert lines_of(compare(one, other)) == lines


def test_a_pointer_escapes_what_it_must() -> None:
    (change,) = compare({"a/b": {"m~n": 1}}, {"a/b": {"m~n": 2}})
    assert change.operation() == {"op": "replace", "path": "/a~1b/m~0n", "value": 2}


def test_long_values_are_cut_in_lines_and_whole_in_data() -> None:
    (change,) = compare({"a": "x" * 500}, {"a": "y"})
    (line,) = lines_of([change])
    assert len(line) < 120
    assert change.before == "x" * 500


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ({"op": "remove", "path": "/nope"}, "nope"),
        ({"op": "replace", "path": "/nope", "value": 1}, "there is no 'nope' to replace"),
        ({"op": "add", "path": "/list/3", "value": 1}, "'3' is not an index of a list of 3"),
        ({"op": "remove", "path": "/list/-1"}, "'-1' is not an index of a list of 2"),
        ({"op": "replace", "path": "/list/²", "value": 1}, "is not an index"),
        ({"op": "move", "path": "/list/0", "from": "/list/1"}, "'move' is not one of add, remove, replace"),
        ({"op": "remove", "path": "list"}, "does not start with a slash"),
        ({"op": "add", "path": "/text/a", "value": 1}, "text"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(operation: dict[str, Any], why: str) -> None:
    document = {"list": [1, 2], "text": "t"}
    with pytest.raises(ValueError, match=why.replace("(", r"\(")):
        apply_patch(document, [operation])
    assert document == {"list": [1, 2], "text": "t"}


def test_the_end_of_a_list_may_be_named_by_a_dash() -> None:
    assert apply_patch([1], [{"op": "add", "path": "/-", "value": 2}]) == [1, 2]
