"""The codec at any nesting: what goes in comes out; whatever else is read gives a value or a CodecError."""

import dataclasses
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import timedelta, timezone
from enum import Enum, Flag
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from stepwell.codec.codec import Codec, Encoded, register_checkpoint_type
from stepwell.errors import CodecError


class Colour(Enum):
    RED = 1
    GREEN = 2


class Right(Flag):
    READ = 1
    WRITE = 2


class Pair(NamedTuple):
    left: Any
    right: Any = None


@dataclasses.dataclass(frozen=True)
class Leaf:
    value: Any
    more: Any = ()


class Model(BaseModel):
    value: Any
    more: Any = None


class Struct(msgspec.Struct, frozen=True):
    value: Any
    more: Any = None


@register_checkpoint_type(version=3, upcast={1: lambda fields: fields, 2: lambda fields: fields}, names=["old:Raised"])
@dataclasses.dataclass(frozen=True)
class Raised:
    value: Any
    more: Any = ()


@register_checkpoint_type(pickle=True)
class Pickled:
    def __init__(self, value: Any) -> None:
        self.value = value


class Trouble(ValueError):
    def __init__(self, value: Any, more: Any) -> None:
        super().__init__(value)
        self.more = more


CODEC = Codec([Colour, Right, Pair, Leaf, Model, Struct, Trouble])
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")  # of the strategies, which are large
quick = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))

any_text = st.text(st.characters())  # lone surrogates included
zones = st.one_of(
    st.sampled_from([ZoneInfo("Europe/Berlin"), ZoneInfo("America/St_Johns"), timezone.utc]),  # noqa: UP017
    st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone),
)
atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    any_text,
    st.binary(),
    st.complex_numbers(allow_nan=False),
    st.datetimes(timezones=st.none() | zones),
    st.dates(),
    st.times(timezones=st.none() | zones),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
    *(any_text.filter(lambda text: "\0" not in text).map(kind) for kind in (PurePosixPath, PureWindowsPath, Path)),
    st.builds(range, st.integers(), st.integers(), st.integers(1, 2**70)),
    zones,
    st.integers(-(2**63), 2**63 - 1).map(numpy.int64),
    st.floats(allow_nan=False).map(numpy.float64),
    st.floats(width=16, allow_nan=False).map(numpy.float16),
    any_text.filter(lambda text: not text.endswith("\0")).map(numpy.str_),
    st.sampled_from(Colour),
    st.sampled_from([Right(0), Right.READ, Right.READ | Right.WRITE]),
)
hashables = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner),
        st.frozensets(inner, max_size=4),
        st.builds(Pair, inner, inner),
        st.builds(Leaf, inner, inner),
        st.builds(Struct, inner, inner),
        st.builds(Raised, inner, inner),
    ),
    max_leaves=6,
)
arrays = st.one_of(
    st.lists(st.floats(width=32), max_size=5).map(lambda items: numpy.array(items, "f4")),
    st.lists(st.integers(0, 255), min_size=6, max_size=6).map(lambda items: numpy.array(items, ">i2").reshape(2, 3).T),
    st.lists(any_text, min_size=1, max_size=3).map(lambda items: numpy.array(items, "U4")),
    st.integers(0, 3).map(lambda size: numpy.ones(size, [("a", ">f8"), ("b", "S3", (2,))])),
)


def troubled(kind: Any, arguments: list[Any], notes: list[str], cause: Any) -> BaseException:
    error: BaseException = kind(*arguments)
    for note in notes:
        error.add_note(note)
    error.__cause__ = cause
    return error


def exceptions(inner: Any) -> Any:
    plain = st.builds(
        troubled,
        st.sampled_from([ValueError, KeyError, RuntimeError, KeyboardInterrupt, SystemExit, StopIteration]),
        st.lists(inner, max_size=3),
        st.lists(any_text, max_size=2),
        st.none() | st.builds(Trouble, inner, inner) | st.builds(OSError, st.integers(200, 300), any_text, any_text),
    )
    return (
        plain
        | st.builds(Trouble, inner, inner)
        | st.builds(lambda one: ExceptionGroup("many", [Trouble(1, one)]), inner)
    )


values = st.recursive(
    hashables,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(hashables, max_size=4),
        st.dictionaries(any_text | st.just("$"), inner, max_size=4),
        st.dictionaries(hashables, inner, max_size=4),
        st.dictionaries(hashables, inner, max_size=4).map(OrderedDict),
        st.dictionaries(hashables, inner, max_size=4).map(Counter),
        st.dictionaries(hashables, inner, max_size=4).map(lambda items: defaultdict(list, items)),
        st.lists(inner, max_size=4).map(lambda items: deque(items, maxlen=5)),
        st.binary().map(bytearray),
        arrays,
        exceptions(inner),
        st.builds(Pickled, st.lists(st.integers())),
        st.builds(Pair, inner, inner),
        st.builds(Leaf, inner, inner),
        st.builds(Model, value=inner, more=inner),
        st.builds(Struct, inner, inner),
        st.builds(Raised, inner, inner),
    ),
    max_leaves=12,
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats() | any_text,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(any_text | st.sampled_from(["$", 1]), inner, max_size=5)
    ),
    max_leaves=20,
)


def spelled(value: Any) -> Any:
    """The value and all types in it, in an order of its own: two are spelled alike only if nothing differs."""
    kind = type(value)
    if isinstance(value, (set, frozenset)):
        return kind, sorted(repr(spelled(item)) for item in value)
    if isinstance(value, dict):
        return (
            kind,
            getattr(value, "default_factory", None),
            [(spelled(key), spelled(item)) for key, item in value.items()],
        )
    if isinstance(value, (list, tuple, deque)):
        return kind, [spelled(item) for item in value]
    if isinstance(value, (Leaf, Model, Struct, Raised)):
        return kind, spelled(value.value), spelled(value.more)
    if isinstance(value, Pickled):
        return kind, spelled(vars(value))
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        return kind, value.dtype.str, value.dtype.descr, value.shape, value.tobytes()
    if isinstance(value, BaseException):
        beside = [getattr(value, name, None) for name in ("filename", "value", "code")]
        return kind, spelled(value.args), spelled(vars(value)), spelled(beside), spelled(value.__cause__)
    return kind, repr(value), getattr(value, "fold", None)


@quick
@given(values)
def test_a_value_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    body = CODEC.encode(value)
    msgspec.json.decode(body.decode("utf-8"))
    again = CODEC.decode(body)
    assert spelled(again) == spelled(value)
    assert CODEC.encode(again) == body, "what was read is written as it was"


@quick
@given(values | plain)
def test_what_is_written_is_left_as_it_was(value: Any) -> None:
    before = spelled(value)
    CODEC.encode(value)
    CODEC.digest(value)
    assert spelled(value) == before


@quick
@given(values | plain)
def test_what_json_can_say_as_it_is_becomes_the_tree_and_nothing_else_does(value: Any) -> None:
    closed = CODEC._close(value, 0)
    assert (closed is value) == (spelled(closed) == spelled(value))


@quick
@given(st.dictionaries(hashables, hashables, max_size=5), st.randoms(use_true_random=False))
def test_a_digest_does_not_depend_on_order(value: dict[Any, Any], random: Any) -> None:
    pairs = list(value.items())
    random.shuffle(pairs)
    assert CODEC.digest([dict(pairs), set(dict(pairs))]) == CODEC.digest([value, set(value)])


@quick
@given(values)
def test_a_parcel_opens_to_the_value_however_it_travelled(value: Any) -> None:
    parcel = CODEC.pack(value, "$.message")
    assert isinstance(parcel, Encoded)
    for travelled in (parcel, Encoded(parcel.json, CODEC), pickle.loads(pickle.dumps(parcel))):
        assert travelled == parcel
        assert spelled(travelled.open()) == spelled(value)


def read(body: bytes) -> None:
    """Reading may refuse, or find a value that can be stored like any other; anything else is a bug."""
    try:
        value = CODEC.decode(body)
    except CodecError:
        return
    assert spelled(CODEC.decode(CODEC.encode(value))) == spelled(value)


@quick
@given(values, st.data())
def test_a_body_cut_short_never_gives_anything_but_a_codec_error(value: Any, data: st.DataObject) -> None:
    body = CODEC.encode([value])
    with pytest.raises(CodecError):
        CODEC.decode(body[: data.draw(st.integers(0, len(body) - 1))])


@quick
@given(values, st.data())
def test_a_body_with_a_changed_byte_is_read_or_refused(value: Any, data: st.DataObject) -> None:
    body = bytearray(CODEC.encode([value]))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    read(bytes(body))


@quick
@given(values, values, st.data())
def test_a_body_with_parts_of_another_in_it_is_read_or_refused(value: Any, other: Any, data: st.DataObject) -> None:
    body, source = CODEC.encode([value]), CODEC.encode([other])
    for _ in range(data.draw(st.integers(1, 3))):
        first, last = sorted(data.draw(st.integers(0, len(body))) for _ in range(2))
        start, end = sorted(data.draw(st.integers(0, len(source))) for _ in range(2))
        body = body[:first] + source[start:end] + body[last:]
    read(body)


@quick
@given(values, values, st.data())
def test_a_tree_with_parts_of_another_in_it_is_read_or_refused(value: Any, other: Any, data: st.DataObject) -> None:
    tree, source = (msgspec.json.decode(CODEC.encode([one])) for one in (value, other))
    place, step = data.draw(st.sampled_from(list(places(tree))))
    elsewhere, away = data.draw(st.sampled_from(list(places(source))))
    place[step] = elsewhere[away]
    read(msgspec.json.encode(tree))


def places(tree: Any) -> Any:
    """Every part of a tree, as what holds it and under which key."""
    for step, item in list(enumerate(tree) if isinstance(tree, list) else tree.items()):
        yield tree, step
        if isinstance(item, (list, dict)):
            yield from places(item)


@quick
@given(st.binary())
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    read(body)


TAGS = [
    "tuple", "set", "frozenset", "dict", "OrderedDict", "Counter", "defaultdict", "deque", "range", "bytes",
    "bytearray", "int", "float", "str", "complex", "Decimal", "UUID", "date", "datetime", "time", "timedelta",
    "timezone", "ZoneInfo", "Path", "PurePosixPath", "PureWindowsPath", "os:system", "nowhere:Thing", "",
    "numpy.ndarray", "numpy.generic", "builtins:ValueError", "builtins:OSError", "builtins:ExceptionGroup",
    "builtins:UnicodeDecodeError", "builtins:SyntaxError", "old:Raised",
    *(
        f"{kind.__module__}:{kind.__qualname__}"
        for kind in (Colour, Right, Pair, Leaf, Model, Struct, Raised, Pickled, Trouble)
    ),
]  # fmt: skip
MORE = (
    "tz", "fold", "name", "maxlen", "of", "set", "extra", "private", "n", "by", "notes", "cause", "dtype", "shape",
)  # fmt: skip
json_atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(
        [
            "RED",
            "2024-01-01",
            "12:00",
            "Europe/Berlin",
            "..",
            "1e5",
            "inf",
            "YWJj",
            "list",
            "value",
            "|u1",
            "<U1",
            "pickle",
        ]
    ),
)
hostile_trees = st.recursive(
    json_atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(st.lists(inner, min_size=2, max_size=2), max_size=2),
        st.dictionaries(st.sampled_from(["value", "more", "left", "args", "$", "v"]), inner, max_size=3),
        st.fixed_dictionaries({"$": st.sampled_from(TAGS) | inner, "v": inner}),
        st.fixed_dictionaries(
            {"$": st.sampled_from(TAGS), "v": inner},
            optional=dict.fromkeys(MORE, inner),
        ),
    ),
    max_leaves=10,
)


@settings(quick, max_examples=300)
@given(hostile_trees)
def test_any_tree_of_tags_is_read_or_refused(tree: Any) -> None:
    read(msgspec.json.encode(tree))
