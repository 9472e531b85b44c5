"""What the codec promises: what goes in comes out, of the same type; everything else is refused in words."""

import math
import re
import threading
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from stepwell.codec.codec import DEFAULT_CODEC, Codec
from stepwell.errors import CodecError
from tests.codec.sample_types import (
    Address,
    Bits,
    Box,
    Capital,
    Checked,
    Colour,
    Customer,
    Dice,
    Frozen,
    Hiding,
    Item,
    Late,
    Lazy,
    Level,
    Loose,
    Mixed,
    Mood,
    Named,
    Node,
    Numbers,
    Order,
    Page,
    Point,
    Right,
    Rows,
    Slotted,
    Struct,
    T,
    Tape,
    Watched,
    alike,
    tagged,
)

Pair = namedtuple("Pair", "left right")


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
    assert DEFAULT_CODEC.encode(value) == body.replace(b"MODULE", Item.__module__.encode())


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


def with_attribute(value: T) -> T:
    object.__setattr__(value, "stray", 1)
    return value


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


def ours(name: str, v: object, **more: object) -> bytes:
    return tagged(f"{Item.__module__}:{name}", v, **more)


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
    ours("Order.Line.missing", {}), ours("Order.items", {}), ours("Slot", {}),
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
