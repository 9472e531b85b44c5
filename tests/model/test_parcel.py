"""What is copied, what is shared, and that nobody sees what another does to it."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from stepwell import Executor, handler
from stepwell.model.payload import PayloadList, pack_copy, plain_copy


@dataclass
class Box:
    items: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    items: list[Any]


class Model(BaseModel):
    items: list[Any]


class Pair(NamedTuple):
    left: list[Any]
    right: int


CHANGEABLE = [
    [1, [2]],
    {"a": [1]},
    {1, 2},
    deque([[1]], maxlen=3),
    bytearray(b"ab"),
    OrderedDict(a=[1]),
    defaultdict(list, a=[1]),
    Box([1]),
    Frozen([1]),
    Model(items=[1]),
    Pair([1], 2),
    ([1],),
]


@pytest.mark.parametrize("value", CHANGEABLE, ids=[type(value).__name__ for value in CHANGEABLE])
def test_plain_data_is_copied_with_its_type(value: Any) -> None:
    copy = plain_copy(value)
    assert copy == value
    assert type(copy) is type(value)
    assert copy is not value


def test_what_lies_inside_is_copied_too() -> None:
    box = Box([Box([1])])
    copy = plain_copy(box)
    copy.items[0].items.append(2)
    assert box.items[0].items == [1]


def test_clients_locks_and_other_objects_are_shared() -> None:
    lock, thing = threading.Lock(), object()
    copy = plain_copy({"lock": lock, "things": [thing]})
    assert copy["lock"] is lock
    assert copy["things"][0] is thing


def test_one_object_in_two_places_stays_one_object() -> None:
    inner: list[int] = []
    copy = plain_copy({"a": inner, "b": inner})
    assert copy["a"] is copy["b"] is not inner


def test_a_cycle_is_copied_as_a_cycle() -> None:
    loop: list[Any] = []
    loop.append(loop)
    copy = plain_copy(loop)
    assert copy[0] is copy is not loop


def test_a_parcel_gives_each_reader_a_copy_of_its_own() -> None:
    sent = [1]
    parcel = pack_copy(sent, "$")
    sent.append(2)
    parcel.open().append(3)
    assert parcel.open() == [1]
    assert PayloadList((parcel, parcel)).open() == [[1], [1]]


def test_a_clone_holds_itself_and_its_own_methods_where_the_original_did() -> None:
    class Counter(Executor):
        def __init__(self) -> None:
            super().__init__()
            self.count, self.me = 0, self
            self.operations = {"up": self.up}

        def up(self) -> None:
            self.count += 1

        @handler
        async def handle(self, message: int, ctx: Any) -> None: ...

    first = Counter()
    twin = first.clone()
    twin.operations["up"]()
    assert (first.count, twin.count) == (0, 1)
    assert twin.me is twin
