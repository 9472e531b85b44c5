"""A large value that is packed again: whatever changed in it, it is what encoding the whole would give."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell.codec import encoded
from stepwell.codec.codec import Codec
from stepwell.errors import CodecError
from stepwell.model.payload import ChunkedList, Payload, PayloadDict
from stepwell.storage import deltas
from stepwell.storage.json_text import json_of, pieces_of, size_of
from tests.properties.spelling import spelled

quick = settings(max_examples=200, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True, slots=True)
class Fixed:
    text: str
    data: Any = None


@dataclass
class Loose:
    text: str


CODEC = Codec([Fixed, Loose])

atoms = st.sampled_from([0, 1, True, 1.0, -0.0, 0.0, None, "", "text", "é", "\ud800", 2**70, float("nan"), 2**40])
flat = st.dictionaries(st.sampled_from("abc"), atoms, max_size=3)
nested = st.builds(lambda inside: {"deep": [inside]}, flat)
typed = st.builds(Fixed, st.text(max_size=3), st.none() | flat) | st.builds(Loose, st.text(max_size=3))
items = atoms | flat | nested | typed | st.tuples(atoms)
lists = st.lists(items, max_size=12) | st.lists(flat, max_size=12) | st.lists(atoms, max_size=12)
values = lists | st.dictionaries(st.sampled_from(["a", "b", "$", "\ud800"]), lists | items, max_size=3)


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded, "LARGE", 16)
    monkeypatch.setattr(encoded, "_FIRST_COUNT", 2)
    monkeypatch.setattr(deltas, "WORTH_IT", 1)


def edit_list(value: list[Any], data: st.DataObject) -> None:
    match data.draw(st.sampled_from(["append", "replace", "insert", "delete", "cut", "inside", "reorder"])):
        case "append":
            value.append(data.draw(items))
        case "insert":
            value.insert(data.draw(st.integers(0, len(value))), data.draw(items))
        case "cut":
            del value[data.draw(st.integers(0, len(value))) :]
        case kind if value:
            at = data.draw(st.integers(0, len(value) - 1))
            if kind == "delete":
                del value[at]
            elif kind == "replace":
                value[at] = data.draw(items)
            elif isinstance(value[at], dict) and kind == "inside":
                value[at][data.draw(st.sampled_from("abc"))] = data.draw(items)
            elif isinstance(value[at], dict):
                pairs = list(value[at].items())
                value[at].clear()
                value[at].update(reversed(pairs))
            elif isinstance(value[at], Loose):
                value[at].text += "!"


def edit(value: Any, data: st.DataObject) -> Any:
    if isinstance(value, list):
        edit_list(value, data)
    elif isinstance(value, dict):
        key = data.draw(st.sampled_from(["a", "b", "c"]))
        if isinstance(value.get(key), list):
            edit_list(value[key], data)
        else:
            value[key] = data.draw(lists | items)
    return value


def check(payload: Payload, value: Any) -> None:
    body = CODEC.encode(value)
    assert json_of(payload) == body == b"".join(pieces_of(payload))
    assert size_of(payload) <= len(body) + 12  # one for each item
    for _ in range(3):
        opened = payload.open()
        assert spelled(opened) == spelled(value)
        scribble(opened)


def scribble(value: Any) -> None:
    """Change everything that can be changed, as a careless reader would."""
    for part in list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ():
        scribble(part)
    if isinstance(value, (list, dict)):
        value.clear()
    elif isinstance(value, Loose):
        value.text = "scribbled"


@quick
@given(values, st.data())
def test_each_version_of_a_value_is_packed_as_if_it_were_the_first(value: Any, data: st.DataObject) -> None:
    payload: Payload = CODEC.pack(value, "$")
    for _ in range(data.draw(st.integers(1, 6))):
        before, old = payload, json_of(payload)
        # a hook returns its own objects again; a handler that read the value returns copies of ours
        value = edit(value if data.draw(st.booleans()) else before.open(), data)
        payload = CODEC.pack(value, "$", before)
        check(payload, value)
        assert json_of(before) == old, "an earlier version stays what it was"
        splice = deltas.splice_of(before, payload)
        if splice is not None:
            splice.text.decode()
            end = len(old) - splice.tail
            assert splice.start <= end
            assert old[: splice.start] + splice.text + old[end:] == json_of(payload)


@quick
@given(values, st.data())
def test_a_change_after_packing_is_not_seen(value: Any, data: st.DataObject) -> None:
    payload: Payload = CODEC.pack(value, "$")
    for _ in range(3):
        payload = CODEC.pack(value, "$", payload)
    before = copy.deepcopy(value)
    scribble(value)
    check(payload, before)


def conversation(length: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"message {n}"} for n in range(length)]


def test_what_did_not_change_is_shared() -> None:
    first: Any = CODEC.pack({"heard": conversation(100)}, "$")
    talk = conversation(100)
    second: Any = CODEC.pack({"heard": talk}, "$", first)
    third: Any = CODEC.pack({"heard": talk}, "$", second)
    assert isinstance(third, PayloadDict)
    heard = third.payloads["heard"]
    assert isinstance(heard, ChunkedList)
    assert CODEC.pack({"heard": talk}, "$", third) == third
    talk.append({"role": "user", "content": "one more"})
    fourth: Any = CODEC.pack({"heard": talk}, "$", third)
    assert fourth != third
    assert fourth.payloads["heard"].chunks[:-2] == heard.chunks[:-1]
    assert all(map(lambda new, old: new is old, fourth.payloads["heard"].chunks[:-2], heard.chunks))
    splice = deltas.splice_of(third, fourth)
    assert splice is not None
    assert splice.text == b',{"role":"user","content":"one more"}'


def replace_by(value: Any) -> Callable[[list[Any]], None]:
    return lambda items: items.__setitem__(50, value)


@pytest.mark.parametrize(
    ("item", "change"),
    [
        (1, replace_by(True)),
        (1, replace_by(1.0)),
        (0.0, replace_by(-0.0)),
        ({"n": 1}, replace_by({"n": True})),
        ({"n": 1}, lambda items: items[50].update(n=1.0)),
        ({"a": None, "b": None}, replace_by({"b": None, "a": None})),
        ({"a": None, "b": None}, replace_by({"a": None, "c": None})),
        ({"a": None, "b": None}, replace_by({"a": None})),
    ],
)
def test_an_equal_value_of_another_type_or_order_is_a_change(item: Any, change: Callable[[list[Any]], None]) -> None:
    items = [copy.copy(item) for _ in range(100)]
    payload: Payload = CODEC.pack(items, "$")
    for _ in range(2):
        payload = CODEC.pack(items, "$", payload)
    change(items)
    assert json_of(CODEC.pack(items, "$", payload)) == CODEC.encode(items)


def test_the_refused_part_of_a_large_value_is_named() -> None:
    talk = conversation(100)
    payload: Payload = CODEC.pack({"heard": talk}, "$")
    for _ in range(2):
        payload = CODEC.pack({"heard": talk}, "$", payload)
    talk[77]["content"] = object()
    with pytest.raises(CodecError) as caught:
        CODEC.pack({"heard": talk}, "$.state.talk", payload)
    assert caught.value.path == "$.state.talk.heard[77].content"


def test_a_large_value_that_contains_itself_is_refused() -> None:
    talk: list[Any] = conversation(100)
    payload: Payload = CODEC.pack(talk, "$")
    for _ in range(2):
        payload = CODEC.pack(talk, "$", payload)
    talk.append(talk)
    with pytest.raises(CodecError, match="contains itself"):
        CODEC.pack(talk, "$", payload)
