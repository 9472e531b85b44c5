"""What the codec promises: what goes in comes out, of the same type; everything else is refused in words."""

import copy
import functools
import gc
import io
import math
import pickle
import random
import re
import sys
import threading
import typing
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum, auto
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import ModuleType
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, computed_field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from stepwell.codec.codec import DEFAULT_CODEC, Codec, Encoded, reachable_types, register_checkpoint_type
from stepwell.errors import CodecError

T = TypeVar("T")


class Colour(Enum):
    RED = (1, "stop")
    GREEN = object()  # an enum is stored by name, so its values may be anything


class Level(IntEnum):
    LOW = 1


class Mood(StrEnum):
    GOOD = "good"


class Mixed(str, Enum):  # noqa: UP042  people have these
    A = "a"


class Right(Flag):
    READ = auto()
    WRITE = auto()


class Bits(IntFlag):
    ONE = 1


class Point(NamedTuple):
    x: int
    y: int = 0


Pair = namedtuple("Pair", "left right")


@dataclass
class Item:
    name: str
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    at: Point
    parts: tuple[Item, ...] = ()


@dataclass
class Order:
    items: list[Item]
    note: str = "none"
    calls: list[str] = field(default_factory=list)
    total: int = field(init=False, default=0)
    secret: InitVar[int] = 1

    def __post_init__(self, secret: int) -> None:
        self.total += secret
        self.calls.append("post_init")

    @functools.cached_property
    def size(self) -> int:
        return len(self.items)

    class Line(NamedTuple):
        text: str


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class Slotted:
    __slots__ = ("value",)
    value: int


@dataclass
class Node:
    next: Any = None


@dataclass
class Late:
    value: int = field(init=False)


@pydantic_dataclass
class Checked:
    value: int


class Address(BaseModel):
    city: str
    zip_code: str = "0"


class Customer(BaseModel):
    model_config = ConfigDict(extra="allow")
    home: Address
    colours: set[Colour] = Field(default_factory=set)
    anything: Any = None
    _visits: int = PrivateAttr(0)

    @functools.cached_property
    def shout(self) -> str:
        return self.home.city.upper()

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorator of a property
    @functools.cached_property
    def size(self) -> int:
        return 1


class Capital(Address):
    country: str = "?"


class Numbers(RootModel[list[int]]):
    pass


class Page(BaseModel, Generic[T]):
    rows: list[T]


class Struct(msgspec.Struct, frozen=True, kw_only=True):
    a: int
    b: tuple[Point, ...] = ()


class Watched(msgspec.Struct):
    count: int

    def __post_init__(self) -> None:
        self.count += 1


BERLIN = ZoneInfo("Europe/Berlin")

VALUES: list[Any] = [
    None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**4000,
    0.0, -0.0, 1.0, 1e16, 1e300, 5e-324, -1.5, math.inf, -math.inf,
    "", "text", "ünïcode 🎈 \u2028 \x00", "$", '"$"', "\ud800", "a\udcffb", "\ud800\udc00",
    [], [1, [2.0, [None]]], {}, {"a": {"b": [1]}}, {"": 1}, {"$": 1}, {"$": "tuple", "v": []},
    {"\ud800": {"\ud800": "x"}},
    {1: "a", "1": "b", None: "c"}, {(1, 2): {3: 4}}, {Colour.RED: 1}, {Mood.GOOD: 1},
    (), (1, (2, "x")), [(), {"t": ((),)}],
    set(), {1, 2, 3}, {"a", (1, 2), frozenset({3})}, frozenset(), frozenset({"\ud800", "b"}),
    b"", b"\x00\xff", bytearray(b"abc"), 1 + 2j, complex(-0.0, math.inf),
    date(2024, 2, 29), time(1, 2, 3, 4), time(1, 2, tzinfo=UTC), time(2, 30, fold=1, tzinfo=BERLIN),
    datetime(2024, 1, 2, 3, 4, 5, 6), datetime(2024, 1, 1, tzinfo=UTC),
    datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    datetime(1, 1, 1, tzinfo=timezone(-timedelta(microseconds=1))),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET \ud800")),
    UTC, timezone(timedelta(hours=1)), BERLIN,
    timedelta(0), timedelta(days=-1, microseconds=1), timedelta.max, timedelta.min,
    Decimal("1.10"), Decimal("-0"), Decimal("Infinity"), Decimal("1e-1000"), UUID(int=7),
    Path("a/b"), Path("/"), Path("\udcff"), PurePosixPath("x"), PureWindowsPath("c:\\x"),
    deque(), deque([1, (2,)]), deque([1, 2], maxlen=3), deque(maxlen=0),
    OrderedDict([("b", 1), ("a", 2)]), Counter("hello"), Counter({"a": -1, 2: 0}), Counter([("a", 1)]),
    defaultdict(list, {"a": [1]}), defaultdict(None, {1: 2}), defaultdict(bool),
    range(3), range(10**30, 0, -7),
    Colour.RED, Colour.GREEN, Level.LOW, Mood.GOOD, Mixed.A, Right.READ, Right.READ | Right.WRITE, Right(0), Bits.ONE,
    Bits(9),
    Point(1, 2), Pair([], {}), Order.Line("x"),
    Item("a", ["b"]), Frozen(Point(1), (Item("x"),)), Order([Item("a")]), Box(Box({1})), Box[int](1), Slotted(3),
    Node(Node()),
    Checked(3),
    Address(city="B"), Capital(city="B"), Numbers([1, 2]),
    Customer.model_validate({"home": Capital(city="X"), "extra": {1: "\ud800"}, "anything": Item("x")}),
    Struct(a=1, b=(Point(1),)), Watched(1),
]  # fmt: skip


def alike(left: Any, right: Any) -> bool:
    """Equal, and of the same types all the way down, as far as repr tells; the order of a set does not count."""
    return type(left) is type(right) and left == right and sorted(repr(left)) == sorted(repr(right))


@pytest.mark.parametrize("value", VALUES, ids=[f"{n}-{type(value).__name__}" for n, value in enumerate(VALUES)])
def test_a_value_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    codec = Codec()
    for whole in (value, [value], {"key": (value,)}, Node(value)):
        assert alike(codec.decode(codec.encode(whole)), whole)


def test_nan_comes_back_as_nan() -> None:
    assert all(map(math.isnan, DEFAULT_CODEC.decode(DEFAULT_CODEC.encode([math.nan, Decimal("nan"), -math.nan]))))
    assert DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(Decimal("sNaN12"))).compare_total(Decimal("sNaN12")) == 0


def test_what_a_value_is_beside_equal_comes_back_too() -> None:
    def again(value: Any) -> Any:
        return DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(value))

    assert again(deque([1], maxlen=3)).maxlen == 3
    assert again(defaultdict(list)).default_factory is list
    assert again(defaultdict(None)).default_factory is None
    assert again(datetime(2024, 10, 27, 2, 30, fold=1)).fold == 1
    assert again(datetime(2024, 1, 1, tzinfo=BERLIN)).tzinfo is BERLIN
    assert again(timezone(timedelta(hours=1), "CET")).tzname(None) == "CET"
    assert math.copysign(1, again(-0.0)) == -1
    assert again(Watched(1)).count == 2, "what __post_init__ does is not done twice"
    assert list(again({"b": 1, "a": 2})) == ["b", "a"]


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ({"a": [1, 1.0, None, True]}, b'{"a":[1,1.0,null,true]}'),
        ((1, 2), b'{"$":"tuple","v":[1,2]}'),
        ({3, 1, 2}, b'{"$":"set","v":[1,2,3]}'),
        ({1: "a"}, b'{"$":"dict","v":[[1,"a"]]}'),
        (2**64, b'{"$":"int","v":"18446744073709551616"}'),
        (math.inf, b'{"$":"float","v":"inf"}'),
        (b"abc", b'{"$":"bytes","v":"YWJj"}'),
        (datetime(2024, 1, 1, tzinfo=UTC), b'{"$":"datetime","v":"2024-01-01T00:00:00+00:00"}'),
        (
            datetime(2024, 1, 1, fold=1, tzinfo=BERLIN),
            b'{"$":"datetime","v":"2024-01-01T00:00:00","tz":{"$":"ZoneInfo","v":"Europe/Berlin"},"fold":1}',
        ),
        (Mood.GOOD, b'{"$":"MODULE:Mood","v":"GOOD"}'),
        (Right.READ | Right.WRITE, b'{"$":"MODULE:Right","v":3}'),
        (Order.Line("x"), b'{"$":"MODULE:Order.Line","v":{"text":"x"}}'),
        (Item("a", ["b"]), b'{"$":"MODULE:Item","v":{"name":"a","tags":["b"]}}'),
        (Address(city="B"), b'{"$":"MODULE:Address","v":{"city":"B","zip_code":"0"},"set":["city"]}'),
    ],
)
def test_what_is_stored_can_be_read_by_a_person(value: object, body: bytes) -> None:
    assert DEFAULT_CODEC.encode(value) == body.replace(b"MODULE", __name__.encode())


def test_reading_runs_no_constructor() -> None:
    order = Order([Item("a")])
    assert order.size == 1
    again = DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(order))
    assert again.calls == ["post_init"]
    assert again.total == 1
    assert "size" not in vars(again), "a cached property is computed again, not stored"


def test_a_pydantic_model_keeps_its_whole_state() -> None:
    customer = Customer.model_validate({"home": Capital(city="x", country="y"), "colours": {Colour.RED}, "nick": "n"})
    customer._visits = 7
    assert customer.shout == "X"
    assert customer.size == 1
    again = DEFAULT_CODEC.decode(DEFAULT_CODEC.encode(customer))
    assert type(again.home) is Capital
    assert (again._visits, again.nick, again.model_extra) == (7, "n", {"nick": "n"})
    assert again.model_fields_set == {"home", "colours", "nick"}
    del customer.shout, customer.size
    assert again == customer


def test_pydantic_generics_are_found_where_they_are_known() -> None:
    page = Page[int](rows=[1])
    codec = Codec([Page[int]])
    assert alike(codec.decode(codec.encode(page)), page)


class Lazy(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, moment: datetime | None) -> None: ...

    def tzname(self, moment: datetime | None) -> None: ...


@dataclass
class Tape(io.BytesIO):
    label: str


@dataclass
class Dice(random.Random):  # its numbers come from a heap type of C, on every Python
    sides: int = 6


def with_attribute(value: T) -> T:
    object.__setattr__(value, "stray", 1)
    return value


class Loose(NamedTuple("Loose", [("x", int)])):
    pass


class Named(str):
    pass


class Rows(list[int]):
    pass


class Slot:
    __slots__ = ("hidden",)
    hidden: int


@dataclass
class Hiding(Slot):
    value: int


def hiding() -> Hiding:
    made = Hiding(1)
    made.hidden = 1
    return made


REFUSED = [
    (threading.Lock(), "$", "`lock` cannot be stored: use a dataclass, a pydantic model, or plain data"),
    (object(), "$", "`object` cannot be stored"),
    (int, "$", "`type` cannot be stored"),
    ({"state": {"cart": [1, object()]}}, "$.state.cart[1]", "`object` cannot be stored"),
    ({"odd key": object()}, "$['odd key']", "`object`"),
    ({"a" * 1000: object()}, "$['" + "a" * 60 + "…']", "`object`"),
    ({1: object()}, "$[1]", "`object`"),
    ({Point(1): object()}, "$[Point]", "`object`"),
    ({10**5000: 1}, "${...}", "cannot be stored"),
    ({1: [10**5000]}, "$[1][0]", "this `int` cannot be stored: Exceeds the limit"),
    ({object()}, "${...}", "`object`"),
    ({object(): 1}, "${...}", "`object`"),
    ((1, object()), "$[1]", "`object`"),
    (deque([object()]), "$[0]", "`object`"),
    (Order([Item("x"), Item(object())]), "$.items[1].name", "`object`"),  # type: ignore[arg-type]
    (Point(1, object()), "$.y", "`object`"),  # type: ignore[arg-type]
    (Customer(home=Address(city="x"), anything=[object()]), "$.anything[0]", "`object`"),
    (Struct(a=object()), "$.a", "`object`"),  # type: ignore[arg-type]
    (Named("x"), "$", "`Named` extends `str` and would lose its type: use a plain `str`"),
    (Rows(), "$", "`Rows` extends `list`"),
    (Tape("x"), "$", "`Tape` is a dataclass that extends a built-in class"),
    (Dice(), "$", "`Dice` is a dataclass that extends a built-in class"),
    (with_attribute(Item("x")), "$", "the attribute `stray` of this `Item` is not one of its fields and would be lost"),
    (with_attribute(Loose(1)), "$", "the attribute `stray` of this `Loose`"),
    (with_attribute(Address(city="x")), "$", "the attribute `stray` of this `Address`"),
    (hiding(), "$", "the attribute `hidden` of this `Hiding`"),
    (Late(), "$", "the field `value` of this `Late` was never set"),
    (Address.model_construct(), "$", "the field `city` of this `Address` was never set"),
    (defaultdict(lambda: 1), "$", "a `defaultdict` of `<lambda>` cannot be stored"),
    (datetime(2024, 1, 1, tzinfo=Lazy()), "$.tzinfo", "`Lazy` is a time zone that cannot be stored: use `zoneinfo"),
    (Node(Node([{"x": Lazy()}])), "$.next.next[0].x", "`Lazy`"),
]


@pytest.mark.parametrize(("value", "path", "sentence"), REFUSED, ids=[sentence[:40] for _, _, sentence in REFUSED])
def test_what_cannot_be_stored_is_refused_with_its_path(value: object, path: str, sentence: str) -> None:
    with pytest.raises(CodecError, match=re.escape(sentence)) as caught:
        DEFAULT_CODEC.encode(value)
    assert caught.value.path == path
    with pytest.raises(CodecError) as caught:
        DEFAULT_CODEC.pack(value, "$.message")
    assert caught.value.path == "$.message" + path[1:]
    with pytest.raises(CodecError, match=re.escape(sentence)):
        DEFAULT_CODEC.digest(value)


def caused(inner: Any) -> Exception:
    made = KeyError("outer")
    made.__cause__ = inner if isinstance(inner, Exception) else ValueError(inner)
    return made


def holding(inner: Any) -> Exception:
    made = ValueError()
    made.inner = inner  # type: ignore[attr-defined]
    return made


WRAPS: list[Callable[[Any], Any]] = [
    lambda inner: [inner],
    lambda inner: {"a": inner},
    lambda inner: {1: inner},
    lambda inner: {"\ud800": inner},
    lambda inner: (inner,),
    lambda inner: frozenset({inner}),
    lambda inner: deque([inner]),
    lambda inner: defaultdict(list, {1: inner}),
    lambda inner: Node(inner),
    lambda inner: Point(inner),
    lambda inner: Struct(a=inner),
    lambda inner: Address.model_construct(city=inner),
    lambda inner: Customer.model_construct(home=1, colours=1, more=inner),
    lambda inner: ValueError(inner),
    lambda inner: caused(inner),
    lambda inner: holding(inner),
]


@pytest.mark.long
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("inner", [1, "\ud800", Path("\ud800")], ids=["int", "text", "path"])
def test_whatever_is_not_too_deep_to_write_is_not_too_deep_to_read(wrap: Callable[[Any], Any], inner: Any) -> None:
    value, deepest = inner, 0
    for level in range(1, 202):
        value = wrap(value)
        if level not in (99, 100, 198, 199, 200, 201):
            continue
        try:
            body = DEFAULT_CODEC.encode(value)
        except CodecError:
            continue
        DEFAULT_CODEC.decode(body)
        DEFAULT_CODEC.digest(value)
        deepest = level
    assert deepest in (99, 100, 198, 199, 200), "extra fields of a model and arguments are a level of their own"
    with pytest.raises(CodecError, match="nested deeper than 200 levels"):
        DEFAULT_CODEC.encode(value)


def tagged(tag: str, v: object, **more: object) -> bytes:
    return msgspec.json.encode({"$": tag, "v": v, **more})


def ours(name: str, v: object, **more: object) -> bytes:
    return tagged(f"{__name__}:{name}", v, **more)


HOSTILE = [
    b"", b"{", b"[1", b"nul", b"\xff", b'"\\ud800"', b"1 2", b"NaN", b"1e999", b"1" * 5000, b'"\xed\xa0\x80"',
    b"[" * 201 + b"]" * 201, b'{"a":' * 201 + b"1" + b"}" * 201, b"[" * 1_000_000, b"[" * 1_000_000 + b"]" * 1_000_000,
    b'{"$":"tuple","v":[' * 300 + b"]}" * 300, b'["$",' * 300 + b"1" + b"]" * 300, b'{"$":' * 5000,
    b'{"$":1}', b'{"$":null,"v":1}', b'{"$":["a"],"v":1}', b'{"$":{"$":"tuple","v":[]},"v":1}', b'{"$":"tuple"}',
    b'{"$":""}',
    tagged("tuple", 1), tagged("tuple", {}), tagged("tuple", [], extra=1), tagged("nothing", 1), tagged("a:b", 1),
    tagged(":", 1), tagged("os:", 1), tagged("os:system", "true"), tagged("builtins:object", {}),
    tagged("x" * 10**6, 1),
    tagged("subprocess:Popen", {"args": "true"}), tagged("sys:modules.os", 1), tagged("os:path.join", 1),
    tagged(f"{__name__}:Order.Line.missing", {}), tagged(f"{__name__}:Order.items", {}), tagged(f"{__name__}:Slot", {}),
    tagged("set", [[]]), tagged("set", [{}]), tagged("set", "abc"), tagged("frozenset", [{"$": "set", "v": []}]),
    tagged("dict", [[[], 1]]), tagged("dict", [[1]]), tagged("dict", [1]), tagged("dict", {"a": 1}),
    tagged("dict", ["ab"]),
    tagged("Counter", {"a": 1}), tagged("OrderedDict", [[1, 2, 3]]), tagged("defaultdict", [], of="eval"),
    tagged("defaultdict", [], of=[]), tagged("deque", [], maxlen=-1), tagged("deque", [], maxlen="3"),
    tagged("deque", 1),
    tagged("bytes", "a"), tagged("bytes", "é"), tagged("bytes", "a!=="), tagged("bytes", 1), tagged("bytearray", []),
    tagged("str", "gICA"), tagged("str", 1), tagged("int", "1" * 10**6), tagged("int", "x"), tagged("int", 5),
    tagged("int", None),
    tagged("float", "1.0"), tagged("float", "x"), tagged("float", 1.0), tagged("complex", [1.0]),
    tagged("complex", ["a", 1.0]),
    tagged("complex", 1), tagged("Decimal", "junk"), tagged("Decimal", "1e999999999999999999999"), tagged("Decimal", 1),
    tagged("UUID", "x"), tagged("UUID", 1), tagged("Path", 1), tagged("Path", None), tagged("PurePosixPath", []),
    tagged("date", "2024-13-01"), tagged("date", 1), tagged("datetime", "yesterday"), tagged("datetime", 1),
    tagged("datetime", "2024-01-01", fold=2), tagged("datetime", "2024-01-01", fold="1"),
    tagged("datetime", "2024-01-01", tz=1),
    tagged("datetime", "2024-01-01", tz={"$": "ZoneInfo", "v": "../../etc/passwd"}), tagged("time", "25:00"),
    tagged("ZoneInfo", "Europe"), tagged("ZoneInfo", "No/Where"), tagged("ZoneInfo", "/etc/passwd"),
    tagged("ZoneInfo", "\0"),
    tagged("ZoneInfo", ""), tagged("timezone", [2, 0, 0]), tagged("timezone", 1), tagged("timezone", [0, 0, 0], name=1),
    tagged("timedelta", [10**12, 0, 0]), tagged("timedelta", [1]), tagged("timedelta", [1.5, 0, 0]),
    tagged("timedelta", "x"),
    tagged("range", [0, 1, 0]), tagged("range", [0]), tagged("range", ["a", 1, 1]), tagged("range", 1),
    ours("Colour", "BLUE"), ours("Colour", 1), ours("Colour", []), ours("Right", 64), ours("Right", "READ"),
    ours("Right", True),
    ours("Point", [1]), ours("Point", {}), ours("Point", {"x": 1, "z": 2}), ours("Pair", {"left": 1}),
    ours("Item", {}), ours("Item", []), ours("Item", None), ours("Item", {"name": 1, "other": 2}),
    ours("Item", {"$": "a"}),
    ours("Item", {"name": "x"}, set=[]), ours("Slotted", {}), ours("Late", {}),
    ours("Struct", {}), ours("Struct", {"a": 1, "z": 1}), ours("Struct", [1]),
    ours("Address", {}), ours("Address", {"city": 1, "z": 2}), ours("Address", 1),
    ours("Address", {"city": "x"}, set=1),
    ours("Address", {"city": "x"}, set=[1]), ours("Address", {"city": "x"}, extra={"a": 1}),
    ours("Address", {"city": "x"}, private={"_a": 1}), ours("Customer", {"home": 1}, extra=[1]),
    ours("Customer", {"home": 1}, extra={"$": "dict", "v": [[1, 2]]}), ours("Customer", {"home": 1}, private=1),
]  # fmt: skip


@pytest.mark.parametrize("body", HOSTILE, ids=lambda body: ascii(body)[:60])
def test_bytes_that_hold_no_value_give_a_codec_error_of_readable_length(body: bytes) -> None:
    with pytest.raises(CodecError) as caught:
        Codec().decode(body, "$.state")
    assert caught.value.path.startswith("$.state")
    assert len(str(caught.value)) < 600


def test_an_error_of_reading_says_where() -> None:
    body = DEFAULT_CODEC.encode({"cart": [Item("a"), Frozen(Point(1), (Item("b"),))]}).replace(
        b'"name":"b"', b'"nome":"b"'
    )
    with pytest.raises(CodecError, match="`Item` has no field `nome`") as caught:
        DEFAULT_CODEC.decode(body, "$.state")
    assert caught.value.path == "$.state.cart[1].parts[0]"


def test_a_field_that_was_added_takes_its_default() -> None:
    def read(name: str, v: object) -> Any:
        return DEFAULT_CODEC.decode(ours(name, v))

    assert read("Item", {"name": "a"}) == Item("a")
    assert read("Point", {"x": 3}) == Point(3)
    assert read("Struct", {"a": 1}) == Struct(a=1)
    assert read("Address", {"city": "a"}) == Address(city="a")
    assert read("Address", {"city": "a"}).model_fields_set == set()
    customer = read("Customer", {"home": None})
    assert (customer.colours, customer._visits, customer.model_extra) == (set(), 0, {})


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
    assert alike(parcel.open(), atom)
    assert parcel.json == DEFAULT_CODEC.encode(atom)
    assert alike(parcel.open(), atom)


def test_parcels_are_equal_when_their_bytes_are_and_survive_copy_and_pickle() -> None:
    parcel = DEFAULT_CODEC.pack({"a": Point(1)}, "$")
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
