"""What is to be removed is removed wherever it lies, and nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.admin.transfer.redaction import PARTS, REMOVED, Redaction
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CodecError

names = st.text(st.sampled_from("ab.$ é"), min_size=1, max_size=4)
values = st.recursive(
    st.none() | st.integers() | names,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3) | st.dictionaries(st.integers(), inner)
    ),
    max_leaves=8,
)


def stored(value: Any) -> Any:
    return json.loads(DEFAULT_CODEC.encode(value))


@pytest.mark.long
@given(st.dictionaries(names, values, max_size=3), names, st.lists(names | st.none(), max_size=4))
def test_a_value_is_removed_however_deep_it_lies(state: dict[str, Any], key: str, way: list[str | None]) -> None:
    """Each step of the way is a name in a mapping, or an item of a list."""
    value: Any = "the secret"
    for step in reversed(way):
        value = [1, value] if step is None else {step: value, 7: 7}
    path = ".".join(["state", key, *[step for step in way if step is not None]])
    tree = {"state": {"set": stored({"outer": {**state, key: value}})["outer"]}}
    if "$" in tree["state"]["set"]:  # a state has names that are texts, and is a mapping of values itself
        return
    redaction = Redaction([path])
    assert "the secret" not in json.dumps(redaction.redact_commit(tree))
    assert redaction.unused == []


@pytest.mark.long
@given(st.dictionaries(names, values, max_size=4))
def test_what_no_path_names_stays(state: dict[str, Any]) -> None:
    tree = {"state": {"set": {key: stored(value) for key, value in state.items()}}}
    redaction = Redaction(["state.nobody", "executors.x", "messages.nobody"])
    assert redaction.redact_commit(copy.deepcopy(tree)) == tree
    assert len(redaction.unused) == 3


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("state", {"state": {"set": {"a": REMOVED}, "append": {"l": [REMOVED]}}}),
        ("state.l", {"state": {"append": {"l": [REMOVED]}}}),
        ("state.*.b", {"state": {"set": {"a": {"$": "m:C", "v": {"b": REMOVED, "c": 2}}}}}),
        ("executors.x", {"executors": {"x": REMOVED, "y": 1}}),
        ("metadata.who", {"metadata": {"who": REMOVED}}),
        ("tags.who", {"run": {"tags": {"who": "[removed]"}}}),
        ("outputs", {"done": [{"outputs": [{"kind": "output", "payload": REMOVED}]}]}),
        ("failures", {"failures": [{"error_type": "E", "message": "[removed]"}]}),
        (
            "messages",
            {
                "messages": [{"payload": REMOVED, "reply": {"question": {"q": 1}}}],
                "held": {"j": {"a": [REMOVED, REMOVED]}},
            },
        ),
        (
            "requests.q",
            {
                "asked": [{"payload": {"q": REMOVED}}],
                "messages": [{"payload": 1, "reply": {"question": {"q": REMOVED}}}],
            },
        ),
    ],
)
def test_each_part_of_a_commit(path: str, left: dict[str, Any]) -> None:
    whole: dict[str, Any] = {
        "run": {"tags": {"who": "ada"}},
        "state": {"set": {"a": {"$": "m:C", "v": {"b": 1, "c": 2}}}, "append": {"l": [1, 2]}},
        "executors": {"x": {"s": 1}, "y": 1},
        "metadata": {"who": "ada"},
        "messages": [{"payload": 1, "reply": {"question": {"q": 1}}}],
        "held": {"j": {"a": [1, 2]}},
        "asked": [{"payload": {"q": 1}}],
        "done": [{"outputs": [{"kind": "output", "payload": 5}]}],
        "failures": [{"error_type": "E", "message": "m", "traceback": "t", "extra": {}}],
    }
    expected = copy.deepcopy(whole)
    for part, value in left.items():
        expected[part] = {**expected[part], **value} if isinstance(value, dict) else value
    assert Redaction([path]).redact_commit(whole) == expected


def test_each_part_of_what_is_under_way() -> None:
    redaction = Redaction(PARTS)
    outcome = {
        "executor": "x",
        "saved": 1,
        "sent": [{"payload": 2}],
        "outputs": [{"payload": 3}],
        "requests": [{"payload": 4, "default": 5}],
        "state": {"set": {"k": 6}},
    }
    note = {"due": "", "value": 7, "failure": {"error_type": "E", "message": "8"}}
    texts = json.dumps(
        [redaction.redact_outcome(outcome), redaction.redact_note(note), redaction.redact_signal({"value": 9})]
    )
    assert not [n for n in range(1, 10) if str(n) in texts]


def test_what_was_removed_is_no_value() -> None:
    with pytest.raises(CodecError):
        DEFAULT_CODEC.decode(json.dumps(REMOVED).encode())


@pytest.mark.parametrize("path", ["", "stat", "failures.message", "*.token"])
def test_paths_that_name_nothing_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="cannot be removed; a path starts with one of state, "):
        Redaction([path])


def test_a_star_alone_removes_every_value_and_is_never_unused() -> None:
    redaction = Redaction(["*"])
    tree = redaction.redact_commit({"state": {"set": {"a": 1}}, "metadata": {"b": 2}, "messages": [{"payload": 3}]})
    assert tree == {"state": {"set": {"a": REMOVED}}, "metadata": {"b": REMOVED}, "messages": [{"payload": REMOVED}]}
    assert redaction.unused == []
