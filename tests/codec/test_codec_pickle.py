"""Pickle is for classes whose author named it, one by one: nothing else is ever pickled, or unpickled."""

import base64
import os
import pickle
import re
import sys
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import msgspec
import numpy
import pytest

from stepwell import register_checkpoint_type
from stepwell.codec.codec import DEFAULT_CODEC, Codec
from stepwell.errors import CodecError

pytestmark = pytest.mark.usefixtures("clean_registry")


class Model:
    """Holds data, and is of no kind that the codec knows."""

    def __init__(self, **weights: Any) -> None:
        self.weights = weights

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]


class Part(Model):
    pass


class Name(str):
    pass


@dataclass
class Order:
    id: int


def helper(number: int) -> "Helped":
    return Helped(number)


class Helped:
    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return helper, (self.number,)


class Evil:
    """Its pickle names a function of another module."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("true",)


def stored(tag: str, data: bytes, **more: Any) -> bytes:
    return msgspec.json.encode({"$": tag, "by": "pickle", "v": base64.b64encode(data).decode(), **more})


def own(name: str) -> str:
    return f"{__name__}:{name}"


def test_a_class_that_was_named_is_stored_by_pickle_and_comes_back() -> None:
    register_checkpoint_type(Model, pickle=True)
    model = Model(
        a=[1, (2,)], b={1: OrderedDict(a=1)}, c=datetime(2024, 1, 1, tzinfo=UTC), d=defaultdict(list, {1: [2]})
    )
    body = DEFAULT_CODEC.encode({"x": [model]})
    assert DEFAULT_CODEC.decode(body) == {"x": [model]}
    assert body.startswith(b'{"x":[{"$":"' + own("Model").encode() + b'","by":"pickle","v":"')


def test_a_subclass_of_a_builtin_can_be_stored_so() -> None:
    register_checkpoint_type(Name, pickle=True)
    again = DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(Name("ada")))
    assert (type(again), again) == (Name, "ada")


def test_a_value_that_contains_itself_can_be_stored_so() -> None:
    register_checkpoint_type(Model, pickle=True)
    model = Model()
    model.weights["self"] = model
    again = DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(model))
    assert again.weights["self"] is again


def test_without_the_name_nothing_is_pickled() -> None:
    with pytest.raises(CodecError, match="`Model` cannot be stored"):
        DEFAULT_CODEC.encode(Model())
    register_checkpoint_type(Model, pickle=True)
    with pytest.raises(CodecError, match="`Part` cannot be stored"):
        DEFAULT_CODEC.encode(Part())


def test_without_the_name_nothing_is_unpickled() -> None:
    for cls in (Model, Order):
        body = stored(own(cls.__name__), pickle.dumps(Evil()))
        with pytest.raises(CodecError, match=rf"register_checkpoint_type\({cls.__name__}, pickle=True\)"):
            DEFAULT_CODEC.decode(body)
        with pytest.raises(CodecError, match=rf"register_checkpoint_type\({cls.__name__}, pickle=True\)"):
            Codec([cls]).decode(body)
    for tag in ("tuple", "bytes", "numpy.ndarray", "builtins:ValueError", "nowhere:Thing", "os:system"):
        with pytest.raises(CodecError):
            DEFAULT_CODEC.decode(stored(tag, pickle.dumps(Evil())))


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Evil()),
        pickle.dumps(Evil(), 0),
        pickle.dumps([Evil()]),
        pickle.dumps(Order(1)),
        pickle.dumps(Helped(1)),
        pickle.dumps(os.path.join),
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cantigravity\nfly\n.",
        pickle.dumps(3),
        pickle.dumps([Model()]),
        pickle.dumps(Model()) [:-1],
        b"", b".", b"garbage", b"\x80\x04", b"\x80\xff.",
    ],
    ids=lambda data: ascii(data)[:50],
)  # fmt: skip
def test_a_pickle_may_name_only_what_was_allowed_and_must_hold_its_class(data: bytes) -> None:
    register_checkpoint_type(Model, pickle=True)
    with pytest.raises(CodecError) as caught:
        DEFAULT_CODEC.decode(b"[" + stored(own("Model"), data) + b"]")
    assert caught.value.path == "$[0]"
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("more", [{"n": 1}, {"set": []}, {"by": 1}, {"by": "json"}, {"by": None}, {"v": 1}, {"v": "!"}])
def test_an_object_that_is_no_pickle_is_refused(more: dict[str, Any]) -> None:
    register_checkpoint_type(Model, pickle=True)
    with pytest.raises(CodecError):
        DEFAULT_CODEC.decode(stored(own("Model"), pickle.dumps(Model()), **more))
    with pytest.raises(CodecError, match="expected a pickled `"):
        DEFAULT_CODEC.decode(msgspec.json.encode({"$": own("Model"), "v": {}}))


def test_what_a_pickle_needs_is_asked_for_when_it_is_written() -> None:
    register_checkpoint_type(Helped, pickle=True)
    with pytest.raises(CodecError, match=re.escape(f"uses `{own('helper')}`, which is not allowed")) as caught:
        DEFAULT_CODEC.encode([Helped(1)])
    assert caught.value.path == "$[0]"
    register_checkpoint_type(Helped, pickle=True, pickle_needs=[helper])
    assert DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(Helped(3))).number == 3


def test_classes_named_one_by_one_may_hold_each_other() -> None:
    register_checkpoint_type(Model, pickle=True)
    with pytest.raises(CodecError, match="Part`, which is not allowed"):
        DEFAULT_CODEC.encode(Model(part=Part()))
    register_checkpoint_type(Part, pickle=True)
    assert DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(Model(part=Part(a=1)))) == Model(part=Part(a=1))


def test_a_class_that_has_a_kind_can_be_stored_by_pickle_and_what_was_stored_before_is_still_read() -> None:
    before = DEFAULT_CODEC.encode(Order(1))
    register_checkpoint_type(Order, pickle=True)
    after = DEFAULT_CODEC.encode(Order(1))
    assert b'"by":"pickle"' in after
    assert [DEFAULT_CODEC.decode(body) for body in (before, after)] == [Order(1), Order(1)]


def test_a_pickle_is_read_under_an_old_name(monkeypatch: pytest.MonkeyPatch) -> None:
    register_checkpoint_type(Model, pickle=True, names=["shop_old:Model"])
    with monkeypatch.context() as before:  # as a program wrote it in which the module had another name
        old = ModuleType("shop_old")
        old.Model = Model  # type: ignore[attr-defined]
        before.setitem(sys.modules, "shop_old", old)
        before.setattr(Model, "__module__", "shop_old")
        data = pickle.dumps(Model(a=1))
    assert DEFAULT_CODEC.decode(stored("shop_old:Model", data)) == Model(a=1)


def test_what_cannot_be_pickled_is_a_codec_error() -> None:
    register_checkpoint_type(Model, pickle=True)
    with pytest.raises(CodecError, match="this `Model` cannot be stored") as caught:
        DEFAULT_CODEC.encode({"a": Model(b=lambda: 1)})
    assert caught.value.path == "$.a"


@pytest.mark.parametrize("cls", [str, int, float, bool, list, dict, tuple, datetime, bytes, numpy.ndarray, numpy.int8])
def test_types_of_the_engine_are_never_pickled(cls: type) -> None:
    with pytest.raises(TypeError, match="is stored without pickle"):
        register_checkpoint_type(cls, pickle=True)
