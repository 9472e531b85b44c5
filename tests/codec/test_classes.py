"""Classes that a codec can find again, digests, payloads, and the types an annotation leads to."""

import copy
import gc
import math
import pickle
import re
import sys
import typing
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, make_dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict, TypeVar

import msgspec
import pytest
from pydantic import BaseModel

from stepwell.codec.codec import DEFAULT_CODEC, Codec, Encoded, reachable_types, register_checkpoint_type
from stepwell.errors import CodecError
from tests.codec.sample_types import (
    Address,
    Box,
    Colour,
    Customer,
    Dice,
    Frozen,
    Item,
    Level,
    Mood,
    Node,
    Numbers,
    Order,
    Page,
    Point,
    Slot,
    Struct,
    Tape,
    alike,
    tagged,
)


def local_order() -> type[Any]:
    @dataclass
    class LocalOrder:
        id: int

    return LocalOrder


def test_a_local_class_is_stored_only_by_a_codec_that_knows_it() -> None:
    known = local_order()
    codec = Codec([known])
    assert alike(codec.decode(codec.encode(known(1))), known(1))
    with pytest.raises(CodecError, match=r"name it in the annotation of a handler, or pass it to register_checkpoint"):
        Codec().encode([known(1)])


def test_of_two_classes_with_one_name_only_the_one_that_would_come_back_is_stored() -> None:
    first, second = local_order(), local_order()
    codec = Codec([first])
    codec.encode(first(1))
    with pytest.raises(CodecError, match="would come back as another class of the same name"):
        codec.encode(second(1))


def test_the_default_codec_opens_local_classes_while_some_codec_knows_them() -> None:
    known = local_order()
    codec = Codec([known])
    body = codec.encode(known(1))
    assert alike(DEFAULT_CODEC.decode(body), known(1))
    newer = local_order()
    other = Codec([newer])
    assert type(DEFAULT_CODEC.decode(body)) is newer
    del known, newer, codec, other
    gc.collect()
    with pytest.raises(CodecError, match="import the module that defines it"):
        DEFAULT_CODEC.decode(body)


@pytest.mark.usefixtures("clean_registry")
def test_a_registered_class_is_known_to_every_codec() -> None:
    known = register_checkpoint_type(local_order())
    assert alike(Codec().decode(DEFAULT_CODEC.encode(known(1))), known(1))


@pytest.mark.parametrize(
    "wrong", [1, "Order", Item("x"), list[int], str, object, Slot, Tape, Dice, BaseModel, msgspec.Struct, Enum]
)
def test_only_a_storable_class_can_be_registered(wrong: Any) -> None:
    with pytest.raises(TypeError):
        register_checkpoint_type(wrong)


def class_in(module: str) -> Any:
    made = make_dataclass("Moved", [("id", int)])
    made.__module__ = module
    return made


@pytest.mark.parametrize(
    ("stored_as", "now", "found"),
    [
        ("__main__", "shop.orders", True),  # was run as a script, is imported now
        ("shop.gone", "shop.orders", True),  # the module was renamed, or is the script itself now
        ("json", "__main__", True),
        ("json", "shop.orders", False),  # a loaded module that has no such class: no guessing
    ],
)
def test_a_class_whose_module_changed_its_name_is_found_by_its_own(stored_as: str, now: str, found: bool) -> None:
    cls = class_in(now)
    codec = Codec([cls])
    body = tagged(f"{stored_as}:Moved", {"id": 1})
    if found:
        assert alike(codec.decode(body), cls(1))
    else:
        with pytest.raises(CodecError, match="unknown type"):
            codec.decode(body)


def test_a_class_that_its_old_module_still_leads_to_is_found_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """`from .models import Moved` in the module it was moved from; what only has another name is not that class."""
    old = ModuleType("old_shop")
    cls = class_in("old_shop.models")
    vars(old).update({"Moved": cls, "Renamed": cls, "Path": Path})
    monkeypatch.setitem(sys.modules, "old_shop", old)
    assert alike(DEFAULT_CODEC.decode(tagged("old_shop:Moved", {"id": 1})), cls(1))
    for tag, why in (("old_shop:Renamed", "unknown type"), ("old_shop:Path", "cannot be stored")):
        with pytest.raises(CodecError, match=why):
            DEFAULT_CODEC.decode(tagged(tag, {"id": 1}))


def test_a_moved_class_is_not_guessed_between_two() -> None:
    with pytest.raises(CodecError, match="unknown type"):
        Codec([class_in("a"), class_in("b")]).decode(tagged("c:Moved", {"id": 1}))


def test_reading_imports_nothing_and_wakes_no_lazy_module(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sleeping(ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError("woken")

    monkeypatch.setitem(sys.modules, "sleeping", Sleeping("sleeping"))
    monkeypatch.delitem(sys.modules, "antigravity", raising=False)
    for tag in ("sleeping:Thing", "antigravity:Thing", "antigravity:webbrowser"):
        with pytest.raises(CodecError, match="unknown type"):
            DEFAULT_CODEC.decode(tagged(tag, {}))
    assert "antigravity" not in sys.modules


def test_a_digest_does_not_depend_on_the_order_of_what_has_none() -> None:
    def same(left: object, right: object) -> bool:
        return DEFAULT_CODEC.digest(left) == DEFAULT_CODEC.digest(right)

    assert same({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"d": 2, "c": 1}, "a": 1})
    assert same({1: "a", 2: "b"}, {2: "b", 1: "a"})
    assert same({"\ud800": 1, "b": {"\udc00": 1, "a": 2}}, {"b": {"a": 2, "\udc00": 1}, "\ud800": 1})
    assert same({8, 0, 16}, {16, 8, 0})
    assert same(Counter(a=1, b=2), Counter(b=2, a=1))
    assert same(Node({"a": 1, "b": 2}), Node({"b": 2, "a": 1}))
    assert not same([1, 2], [2, 1])
    assert not same(1, 1.0)
    assert not same((1,), [1])
    assert not same(OrderedDict(a=1, b=2), OrderedDict(b=2, a=1))
    assert not same({"a": 1}, {"a": 2})
    assert re.fullmatch("[0-9a-f]{64}", DEFAULT_CODEC.digest(None))


def test_a_parcel_is_closed_when_it_is_packed_and_opened_afresh() -> None:
    item = Item("a", ["x"])
    parcel = DEFAULT_CODEC.pack(item, "$.message")
    item.tags.append("later")
    first = parcel.open()
    first.tags.append("mine")
    assert parcel.open() == Item("a", ["x"])


@pytest.mark.parametrize("atom", [None, True, 1, 1.5, "text", math.inf, "\ud800", 2**100])
def test_an_atom_is_opened_as_it_is_and_stored_like_any_value(atom: object) -> None:
    parcel = DEFAULT_CODEC.pack(atom, "$")
    assert isinstance(parcel, Encoded)
    assert alike(parcel.open(), atom)
    assert parcel.json == DEFAULT_CODEC.encode(atom)
    assert alike(parcel.open(), atom)


def test_parcels_are_equal_when_their_bytes_are_and_survive_copy_and_pickle() -> None:
    parcel = DEFAULT_CODEC.pack({"a": Point(1)}, "$")
    assert isinstance(parcel, Encoded)
    stored = Encoded(parcel.json, Codec())
    assert parcel == stored
    assert hash(parcel) == hash(stored)
    assert parcel != DEFAULT_CODEC.pack("other", "$")
    assert parcel != parcel.json
    assert copy.copy(parcel) is parcel
    assert copy.deepcopy([parcel])[0] is parcel
    again = pickle.loads(pickle.dumps(parcel))
    assert (again, again.open()) == (parcel, {"a": Point(1)})
    assert repr(DEFAULT_CODEC.pack("x", "$")) == 'Encoded("x")'


def test_bytes_from_storage_are_read_only_when_opened() -> None:
    damaged = Encoded(b"{", DEFAULT_CODEC)
    assert isinstance(damaged, Encoded)
    with pytest.raises(CodecError, match="damaged or cut short"):
        damaged.open()


class Typed(TypedDict):
    inside: Struct


Id = NewType("Id", Point)


Bound = TypeVar("Bound", bound=Item)


Limited = TypeVar("Limited", Item, Point)


@dataclass
class Puzzle:
    missing: "Nowhere"  # type: ignore[name-defined]  # noqa: F821
    found: "list[Item]"
    itself: "Puzzle"


class Held(msgspec.Struct):
    point: Point
    moods: dict[Mood, "Held"]


@pytest.mark.parametrize(
    ("annotations", "types"),
    [
        ([], set()),
        ([int, str, None, Any, list[int], object, "Text", ...], set()),
        ([Item], {Item}),
        ([Item | None, Optional[Point]], {Item, Point}),  # noqa: UP045
        ([dict[Mood, list[tuple[Item, ...]]]], {Mood, Item}),
        ([Annotated[Item, Point]], {Item}),
        ([Literal[Mood.GOOD, "x"]], {Mood}),
        ([Callable[[Item], Point]], {Item, Point}),
        ([Iterable[Item]], {Item}),
        ([Id, Bound, type[Level]], {Point, Item, Level}),
        ([Limited], {Item, Point}),
        ([Typed], {Struct, Point}),
        ([Frozen], {Frozen, Point, Item}),
        ([Order], {Order, Item}),
        ([Box[Mood]], {Box, Mood}),
        ([Page[Item]], {Page[Item], Item}),
        ([Customer], {Customer, Address, Colour}),
        ([Numbers], {Numbers}),
        ([Held], {Held, Point, Mood}),
        ([Puzzle], {Puzzle, Item}),
        ([typing.Union[Item, "Nowhere"]], {Item}),  # noqa: F821
    ],
)
def test_the_types_an_annotation_leads_to(annotations: list[object], types: set[type]) -> None:
    assert reachable_types(annotations) == types
