"""The codec at any nesting: what goes in comes out; whatever else is read gives a value or a CodecError."""

import dataclasses
import pickle
from collections import Counter, OrderedDict, deque
from datetime import timedelta, timezone
from enum import Enum, Flag
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from holdfast.core.errors import CodecError
from holdfast.durable.codec import Codec, encoded


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


CODEC = Codec([Colour, Right, Pair, Leaf, Model, Struct])
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
    any_text.filter(lambda text: "\0" not in text).map(PurePosixPath),
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
    ),
    max_leaves=6,
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
        st.lists(inner, max_size=4).map(lambda items: deque(items, maxlen=5)),
        st.builds(Pair, inner, inner),
        st.builds(Leaf, inner, inner),
        st.builds(Model, value=inner, more=inner),
        st.builds(Struct, inner, inner),
    ),
    max_leaves=12,
)


def spelled(value: Any) -> Any:
    """The value and all types in it, in an order of its own: two are spelled alike only if nothing differs."""
    kind = type(value)
    if isinstance(value, (set, frozenset)):
        return kind, sorted(repr(spelled(item)) for item in value)
    if isinstance(value, dict):
        return kind, [(spelled(key), spelled(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return kind, [spelled(item) for item in value]
    if isinstance(value, (Leaf, Model, Struct)):
        return kind, spelled(value.value), spelled(value.more)
    return kind, repr(value), getattr(value, "fold", None)


@quick
@given(values)
def test_a_value_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    body = CODEC.encode(value)
    msgspec.json.decode(body.decode("utf-8"))
    again = CODEC.decode(body)
    assert again == value
    assert spelled(again) == spelled(value)
    assert CODEC.encode(again) == body, "what was read is written as it was"


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
    for travelled in (parcel, encoded(parcel.json, CODEC), pickle.loads(pickle.dumps(parcel))):
        assert travelled == parcel
        assert spelled(travelled.open()) == spelled(value)


def read(body: bytes) -> None:
    """Reading may find a value or refuse; anything else is a bug."""
    try:
        CODEC.decode(body)
    except CodecError:
        return


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
@given(st.binary())
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    read(body)


TAGS = [
    "tuple", "set", "frozenset", "dict", "OrderedDict", "Counter", "defaultdict", "deque", "range", "bytes",
    "bytearray", "int", "float", "str", "complex", "Decimal", "UUID", "date", "datetime", "time", "timedelta",
    "timezone", "ZoneInfo", "Path", "PurePosixPath", "PureWindowsPath", "os:system", "nowhere:Thing", "",
    *(f"{kind.__module__}:{kind.__qualname__}" for kind in (Colour, Right, Pair, Leaf, Model, Struct)),
]  # fmt: skip
json_atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(["RED", "2024-01-01", "12:00", "Europe/Berlin", "..", "1e5", "inf", "YWJj", "list", "value"]),
)
hostile_trees = st.recursive(
    json_atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(st.lists(inner, min_size=2, max_size=2), max_size=2),
        st.dictionaries(st.sampled_from(["value", "more", "left", "$", "v"]), inner, max_size=3),
        st.fixed_dictionaries({"$": st.sampled_from(TAGS) | inner, "v": inner}),
        st.fixed_dictionaries(
            {"$": st.sampled_from(TAGS), "v": inner},
            optional=dict.fromkeys(("tz", "fold", "name", "maxlen", "of", "set", "extra", "private"), inner),
        ),
    ),
    max_leaves=10,
)


@settings(quick, max_examples=300)
@given(hostile_trees)
def test_any_tree_of_tags_is_read_or_refused(tree: Any) -> None:
    read(msgspec.json.encode(tree))
