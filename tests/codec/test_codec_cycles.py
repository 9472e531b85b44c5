"""A value that contains itself is refused where the circle closes; one that is met twice comes back twice."""

import re
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest
from pydantic import BaseModel

from stepwell.codec.codec import DEFAULT_CODEC, Codec
from stepwell.errors import CodecError


@dataclass
class Node:
    next: Any = None
    label: str = ""


class Pair(NamedTuple):
    left: Any
    right: Any = None


class Model(BaseModel):
    value: Any = None


class Struct(msgspec.Struct):
    value: Any = None


SHARED: dict[str, Any] = {"a": [1]}


def through(wrap: Callable[[Any], Any]) -> Any:
    """A list that a value of this kind leads back to."""
    loop: list[Any] = []
    loop.append(wrap(loop))
    return loop


def causing() -> Exception:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def itself() -> Node:
    node = Node()
    node.next = node
    return node


def dict_in_itself() -> dict[str, Any]:
    found: dict[str, Any] = {"fine": 1}
    found["self"] = found
    return found


def two_dicts() -> dict[str, Any]:
    """Two that hold each other: to compare them would never end."""
    first: dict[str, Any] = {}
    first["other"] = {"other": first}
    return first


def far_away() -> dict[str, Any]:
    part: dict[str, Any] = {"fine": [1, 2]}
    part["back"] = {"to": (1, [part])}
    return {"plain": ["x"], "cart": [{}, part]}


CIRCLES = [
    (through(lambda loop: loop), "$[0]", "$"),
    (through(lambda loop: {"again": loop}), "$[0].again", "$"),
    (through(lambda loop: {1: loop}), "$[0][1]", "$"),
    (through(lambda loop: {"$": loop}), "$[0]['$']", "$"),
    (through(lambda loop: (0, loop)), "$[0][1]", "$"),
    (through(lambda loop: deque([loop])), "$[0][0]", "$"),
    (through(lambda loop: OrderedDict(a=loop)), "$[0].a", "$"),
    (through(lambda loop: defaultdict(list, a=loop)), "$[0].a", "$"),
    (through(lambda loop: Node(loop)), "$[0].next", "$"),
    (through(lambda loop: Pair(1, loop)), "$[0].right", "$"),
    (through(lambda loop: Model(value=loop)), "$[0].value", "$"),
    (through(lambda loop: Struct(loop)), "$[0].value", "$"),
    (through(lambda loop: ValueError(loop)), "$[0].args[0]", "$"),
    (itself(), "$.next", "$"),
    (dict_in_itself(), "$.self", "$"),
    ({"a": [dict_in_itself()]}, "$.a[0].self", "$.a[0]"),
    (two_dicts(), "$.other.other", "$"),
    ([SHARED, SHARED, {"b": SHARED, "c": dict_in_itself()}], "$[2].c.self", "$[2].c"),
    (causing(), "$.__cause__.__cause__", "$"),
    (far_away(), "$.cart[1].back.to[1][0]", "$.cart[1]"),
    ([[itself()] * 3] * 3, "$[0][0].next", "$[0][0]"),
]


@pytest.mark.parametrize(("value", "closes", "first"), CIRCLES, ids=[f"{n}{c[1]}" for n, c in enumerate(CIRCLES)])
def test_a_circle_is_refused_where_it_closes(value: object, closes: str, first: str) -> None:
    sentence = re.escape(f"the value contains itself: this is `{first.replace('$', '$message')}` again")
    for refuse in (DEFAULT_CODEC.pack, DEFAULT_CODEC.encode, DEFAULT_CODEC.digest):
        with pytest.raises(CodecError, match=sentence) as caught:
            refuse(value, "$message")
        assert caught.value.path == closes.replace("$", "$message", 1)


def test_a_wide_circle_is_refused_at_its_first_way_round() -> None:
    loop: list[Any] = []
    loop.extend([loop] * 10_000)
    with pytest.raises(CodecError, match="contains itself") as caught:
        DEFAULT_CODEC.encode(loop)
    assert caught.value.path == "$[0]"


def test_a_long_circle_is_told_in_a_sentence_that_fits_on_the_screen() -> None:
    first = Node(label="first")
    last = first
    for _ in range(150):
        last.next = Node()
        last = last.next
    last.next = first
    with pytest.raises(CodecError, match=r"this is `[$]` again") as caught:
        DEFAULT_CODEC.encode(first)
    assert caught.value.path == "$" + ".next" * 12 + "…" + ".next" * 12


def test_what_is_met_twice_beside_something_deep_is_not_called_a_circle() -> None:
    value: Any = "x"
    for _ in range(201):
        value = {"a": value}
    with pytest.raises(CodecError, match="nested deeper than 200 levels"):
        DEFAULT_CODEC.encode([SHARED, SHARED, (SHARED, SHARED), value])


def test_what_is_only_deep_is_not_called_a_circle() -> None:
    value: Any = "x"
    for _ in range(201):
        value = [value]
    with pytest.raises(CodecError, match="nested deeper than 200 levels") as caught:
        DEFAULT_CODEC.encode(value)
    assert caught.value.path == "$" + "[0]" * 12 + "…" + "[0]" * 12


def test_a_value_that_makes_its_parts_anew_has_no_end_and_is_too_deep() -> None:
    class Endless(Node):
        def __getattribute__(self, name: str) -> Any:
            return [Endless()] if name == "next" else super().__getattribute__(name)

    with pytest.raises(CodecError, match="nested deeper than"):
        Codec([dataclass(Endless)]).encode(Endless())


def test_where_the_stack_has_no_room_the_error_is_a_codec_error() -> None:
    def deep_down(frames: int) -> None:
        if frames:
            deep_down(frames - 1)
            return
        for value in (through(lambda loop: Node(loop)), nested(190)):
            with pytest.raises(CodecError, match=r"contains itself|nested deeper than"):
                DEFAULT_CODEC.encode(value)
        with pytest.raises(CodecError, match="nested deeper than Python's stack"):
            DEFAULT_CODEC.decode(b'{"$":"tuple","v":[' * 190 + b"]}" * 190)

    here = 0
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        here += 1
    deep_down(sys.getrecursionlimit() - here - 130)


def nested(levels: int) -> Any:
    value: Any = ()
    for _ in range(levels):
        value = (value,)
    return value


def test_what_is_shared_comes_back_as_equal_copies() -> None:
    shared = Node(label="shared")
    names = ["ada"]
    value = {"a": [shared, shared], "b": shared, "c": (names, {1: names}), "d": [names, names]}
    again = DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(value))
    assert again == value
    copies = [*again["a"], again["b"]]
    assert len({id(copy) for copy in copies}) == 3
    again["d"][0].append("grace")
    assert (again["d"][1], again["c"][0]) == (["ada"], ["ada"])


def test_a_dict_of_many_kinds_of_keys_costs_no_more_at_each_level() -> None:
    value: Any = 0
    for _ in range(150):
        value = {"a": value, 1: None}
    assert DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(value)) == value
