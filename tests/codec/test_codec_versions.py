"""Classes that change: versions with the way from one to the next, and names they had before."""

import re
import sys
from dataclasses import dataclass, field, make_dataclass
from enum import Enum, Flag
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict

from stepwell import register_checkpoint_type
from stepwell.codec.codec import DEFAULT_CODEC, Codec
from stepwell.codec.registry import REGISTRY
from stepwell.errors import CodecError

pytestmark = pytest.mark.usefixtures("clean_registry")


@dataclass
class Order:
    id: int
    lines: list[str] = field(default_factory=list)
    total: int = 0

    def __post_init__(self) -> None:
        self.made = True
        del self.made


class Size(Enum):
    SMALL = 1
    LARGE = 2


class Right(Flag):
    READ = 1
    WRITE = 4


class Point(NamedTuple):
    x: int
    y: int = 0


class Struct(msgspec.Struct):
    value: int


class Model(BaseModel):
    model_config = ConfigDict(extra="allow")
    value: int
    note: str = "none"


class Trouble(Exception):
    def __init__(self, sku: str) -> None:
        raise AssertionError("nobody calls this")


def stored(cls: type, v: object, n: object = 1, **more: object) -> bytes:
    return msgspec.json.encode({"$": f"{__name__}:{cls.__qualname__}", "n": n, "v": v, **more})


def again(value: Any) -> Any:
    return DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(value))


def with_total(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "total": len(fields["lines"])}


def without_amount(fields: dict[str, Any]) -> dict[str, Any]:
    fields["id"] = int(fields.pop("number"))
    return fields


def test_the_first_version_is_not_said_and_a_later_one_is() -> None:
    assert DEFAULT_CODEC.encode(Order(1)) == stored(Order, {"id": 1, "lines": [], "total": 0}).replace(b'"n":1,', b"")
    register_checkpoint_type(Order, version=3, upcast={1: without_amount, 2: with_total})
    assert DEFAULT_CODEC.encode(Order(1)) == stored(Order, {"id": 1, "lines": [], "total": 0}, 3)
    assert again([Order(1, ["a"])]) == [Order(1, ["a"])]


def test_an_older_version_becomes_todays_one_step_after_the_other() -> None:
    register_checkpoint_type(Order, version=3, upcast={1: without_amount, 2: with_total})
    codec = Codec()
    for body in (
        stored(Order, {"number": "7", "lines": ["a", "b"]}),
        stored(Order, {"number": "7", "lines": ["a", "b"]}).replace(b'"n":1,', b""),
        stored(Order, {"id": 7, "lines": ["a", "b"]}, 2),
        stored(Order, {"id": 7, "lines": ["a", "b"], "total": 2}, 3),
    ):
        assert codec.decode(body) == Order(7, ["a", "b"], 2)


def test_the_fields_are_values_with_their_types_when_they_are_raised() -> None:
    def raised(fields: dict[str, Any]) -> dict[str, Any]:
        assert fields["lines"] == [Point(1, 2), (3,)]
        return fields

    register_checkpoint_type(Order, version=2, upcast={1: raised})
    inner = DEFAULT_CODEC.encode([Point(1, 2), (3,)])
    assert DEFAULT_CODEC.decode(stored(Order, {"id": 1, "lines": msgspec.Raw(inner)})).lines == [Point(1, 2), (3,)]


def test_every_kind_of_class_can_have_a_version() -> None:
    register_checkpoint_type(Size, version=2, upcast={1: lambda name: {"BIG": "LARGE"}.get(name, name)})
    register_checkpoint_type(Right, version=2, upcast={1: lambda number: number << 1})
    register_checkpoint_type(Point, version=2, upcast={1: lambda fields: {"x": fields["left"]}})
    register_checkpoint_type(Struct, version=2, upcast={1: lambda fields: {"value": fields["v"]}})
    register_checkpoint_type(Model, version=2, upcast={1: lambda fields: {"value": fields["v"]}})
    register_checkpoint_type(Trouble, version=2, upcast={1: lambda f: {"args": f["args"][1:], "sku": f["args"][0]}})
    assert DEFAULT_CODEC.decode(stored(Size, "BIG")) is Size.LARGE
    assert DEFAULT_CODEC.decode(stored(Right, 2)) is Right.WRITE
    assert DEFAULT_CODEC.decode(stored(Point, {"left": 1})) == Point(1)
    assert DEFAULT_CODEC.decode(stored(Struct, {"v": 1})) == Struct(1)
    model = DEFAULT_CODEC.decode(stored(Model, {"v": 1, "note": "x"}, set=["v", "more"], extra={"more": 1}))
    assert (model.value, model.note, model.model_fields_set) == (1, "none", {"value", "more"})
    trouble = DEFAULT_CODEC.decode(stored(Trouble, {"args": ["cup", "gone"]}))
    assert (type(trouble), trouble.args, trouble.sku) == (Trouble, ("gone",), "cup")
    for value in (Size.LARGE, Right.WRITE, Point(1), Struct(1), Model(value=1)):
        assert b'"n":2' in DEFAULT_CODEC.encode(value)
        assert again(value) == value
    assert b'"n":2' in DEFAULT_CODEC.encode(trouble)
    assert again(trouble).sku == "cup"


def test_a_version_that_is_newer_than_the_program_is_refused() -> None:
    register_checkpoint_type(Order, version=2, upcast={1: with_total})
    sentence = re.escape("`Order` was stored as version 3, but this program knows it only up to version 2")
    with pytest.raises(CodecError, match=sentence) as caught:
        DEFAULT_CODEC.decode(b'{"cart":[' + stored(Order, {"id": 1}, 3) + b"]}", "$.state")
    assert caught.value.path == "$.state.cart[0]"
    with pytest.raises(CodecError, match="up to version 1: read it with the newer program"):
        DEFAULT_CODEC.decode(stored(Point, {"x": 1}, 2))


def test_a_version_that_nothing_raises_is_refused() -> None:
    register_checkpoint_type(Order, version=3, upcast={2: with_total})
    with pytest.raises(CodecError, match=re.escape("register `Order` with upcast={1: ...}")):
        DEFAULT_CODEC.decode(stored(Order, {"id": 1, "lines": []}))


def fails(fields: dict[str, Any]) -> dict[str, Any]:
    raise KeyError("number")


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (fails, "the upcast of `Order` from version 1 to 2 failed: KeyError: 'number'"),
        (lambda fields: None, "must return a `dict`, but returned a `NoneType`"),
        (lambda fields: [1], "must return a `dict`, but returned a `list`"),
        (lambda fields: {"id": 1, "colour": 2}, "`Order` has no field `colour`"),
        (lambda fields: {1: 2}, "`Order` has no field `1`"),
        (lambda fields: {}, "the field `id` of `Order` is not stored and has no default"),
    ],
)
def test_what_a_function_does_wrong_is_a_codec_error_with_its_path(function: Any, sentence: str) -> None:
    register_checkpoint_type(Order, version=2, upcast={1: function})
    with pytest.raises(CodecError, match=re.escape(sentence)) as caught:
        DEFAULT_CODEC.decode(b"[0," + stored(Order, {"id": 1}) + b"]")
    assert caught.value.path == "$[1]"
    assert not isinstance(caught.value.__cause__, KeyError) or function is fails


@pytest.mark.parametrize("n", [0, -1, True, 1.0, "2", None, [], {}, 2**70])
def test_a_version_that_is_none_is_refused(n: object) -> None:
    register_checkpoint_type(Order, version=2, upcast={1: with_total})
    for cls, v in (
        (Order, {"id": 1}),
        (Size, "SMALL"),
        (Point, {"x": 1}),
        (Model, {"value": 1}),
        (Struct, {"value": 1}),
    ):
        with pytest.raises(CodecError):
            DEFAULT_CODEC.decode(stored(cls, v, n))


def test_types_of_the_engine_have_no_version() -> None:
    with pytest.raises(CodecError, match=r"should have the keys `[$]`, `v`, but has"):
        DEFAULT_CODEC.decode(b'{"$":"tuple","n":1,"v":[]}')


def test_a_decorator_with_arguments_registers_what_it_decorates() -> None:
    @register_checkpoint_type(version=2, upcast={1: lambda fields: {"id": fields["id"] + 1}})
    @dataclass
    class Local:
        id: int

    @register_checkpoint_type()
    @dataclass
    class Other:
        id: int

    assert again([Local(1), Other(1)]) == [Local(1), Other(1)]
    assert b'"n":2' in DEFAULT_CODEC.encode(Local(1))


def test_registering_is_seen_by_every_codec_at_once() -> None:
    codec = Codec([Order])
    codec.encode(Order(1))
    register_checkpoint_type(Order, version=2, upcast={1: with_total})
    assert b'"n":2' in codec.encode(Order(1))
    assert codec.decode(stored(Order, {"id": 1, "lines": ["a"]})).total == 1


def test_registering_a_known_class_without_more_leaves_its_terms_alone() -> None:
    register_checkpoint_type(Order, version=2, upcast={1: with_total}, names=["shop:Bought"])
    register_checkpoint_type(Order)
    assert b'"n":2' in DEFAULT_CODEC.encode(Order(1))
    assert DEFAULT_CODEC.decode(b'{"$":"shop:Bought","n":2,"v":{"id":1}}') == Order(1)
    register_checkpoint_type(Order, version=3, upcast={2: with_total})
    assert b'"n":3' in DEFAULT_CODEC.encode(Order(1))
    with pytest.raises(CodecError, match="unknown type"):
        DEFAULT_CODEC.decode(b'{"$":"shop:Bought","v":{"id":1}}')


# --- names ------------------------------------------------------------------------------------------------------------


def made(name: str, module: str) -> Any:
    cls = make_dataclass(name, [("id", int)])
    cls.__module__ = module
    return cls


def test_a_class_is_found_under_the_names_it_had_and_stored_under_its_own() -> None:
    register_checkpoint_type(Order, names=("shop.old:Order", "shop:Purchase.Order"), version=2, upcast={1: with_total})
    for name in ("shop.old:Order", "shop:Purchase.Order"):
        body = msgspec.json.encode({"$": name, "v": {"id": 1, "lines": ["a"]}})
        value = DEFAULT_CODEC.decode(body)
        assert value == Order(1, ["a"], 1)
        assert DEFAULT_CODEC.encode(value).startswith(b'{"$":"' + __name__.encode() + b':Order","n":2')


def test_an_old_name_leads_to_the_class_even_where_its_module_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    old = ModuleType("shop_that_was")
    monkeypatch.setitem(sys.modules, "shop_that_was", old)
    register_checkpoint_type(Order, names=["shop_that_was:Order"])
    body = b'{"$":"shop_that_was:Order","v":{"id":1}}'
    assert DEFAULT_CODEC.decode(body) == Order(1)
    old.Order = made("Order", "shop_that_was")  # type: ignore[attr-defined]
    assert type(DEFAULT_CODEC.decode(body)) is Order, "what somebody said goes before what is found"
    with pytest.raises(CodecError, match="would come back as another class of the same name"):
        DEFAULT_CODEC.encode(old.Order(1))


def test_two_classes_cannot_have_had_one_name() -> None:
    register_checkpoint_type(Order, names=["shop:Order"])
    with pytest.raises(ValueError, match=r"`shop:Order` is already a former name of `.*:Order`"):
        register_checkpoint_type(Point, names=["shop:Order"])
    assert DEFAULT_CODEC.decode(b'{"$":"shop:Order","v":{"id":1}}') == Order(1)


def test_a_class_that_is_defined_again_takes_over_names_and_all() -> None:
    first, second = made("Again", "shop"), made("Again", "shop")
    register_checkpoint_type(first, names=["shop:Before", "shop:Again"], version=2)
    register_checkpoint_type(second, names=["shop:Before"], version=2)
    assert type(DEFAULT_CODEC.decode(b'{"$":"shop:Before","n":2,"v":{"id":1}}')) is second
    assert b'"n":2' in Codec([first]).encode(first(1)), "an older class that is still in use keeps its version"


# --- what makes no sense ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "error"),
    [
        ({"version": 0}, ValueError),
        ({"version": "2"}, ValueError),
        ({"version": True}, ValueError),
        ({"version": 2, "upcast": {2: with_total}}, ValueError),
        ({"version": 2, "upcast": {0: with_total}}, ValueError),
        ({"version": 2, "upcast": {"1": with_total}}, ValueError),
        ({"version": 2, "upcast": {1: "with_total"}}, TypeError),
        ({"upcast": {1: with_total}}, ValueError),
        ({"names": "shop:Order"}, TypeError),
        ({"names": ["Order"]}, ValueError),
        ({"names": ["tuple"]}, ValueError),
        ({"names": [Order]}, ValueError),
        ({"pickle_needs": [Order]}, ValueError),
        ({"pickle": True, "version": 2}, ValueError),
        ({"pickle": True, "pickle_needs": [3]}, TypeError),
    ],
)
def test_terms_that_make_no_sense_are_refused_at_once(terms: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        register_checkpoint_type(Order, **terms)
    with pytest.raises(error):
        register_checkpoint_type(**terms)
    assert not REGISTRY.by_tag


def test_reading_an_old_version_imports_nothing() -> None:
    sys.modules.pop("antigravity", None)
    register_checkpoint_type(Order, names=["antigravity:Order"])
    assert DEFAULT_CODEC.decode(b'{"$":"antigravity:Order","v":{"id":1}}') == Order(1)
    assert "antigravity" not in sys.modules
