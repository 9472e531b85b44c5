"""A strategy for each type that can be stored, by its tag, and one class of each kind that users define."""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Generic, TypeVar
from zoneinfo import ZoneInfo

import msgspec
import numpy
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from stepwell.codec.codec import Codec

T = TypeVar("T")


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Word(StrEnum):
    YES = "yes"
    NO = "no"


class Shape(Enum):
    ROUND = (1, 2)
    SQUARE = "square"


class Access(Flag):
    READ = 1
    WRITE = 2


class Mode(IntFlag):
    FAST = 1
    SAFE = 4


@dataclasses.dataclass(slots=True, kw_only=True)
class Slotted(Generic[T]):
    value: T
    more: Any = None


@dataclasses.dataclass
class Base:
    value: Any


@dataclasses.dataclass
class Derived(Base):
    made: Any = dataclasses.field(init=False, default=0)
    more: Any = dataclasses.field(default_factory=list, repr=False, compare=False)


class Opened(BaseModel):
    model_config = ConfigDict(extra="allow")
    value: Any = Field(alias="VALUE")
    _private: Any = PrivateAttr(default=None)


class Frozen(BaseModel, Generic[T]):
    model_config = ConfigDict(frozen=True)
    value: T
    more: Any = None


class Struct(msgspec.Struct, kw_only=True, rename="camel", tag="struct"):
    the_value: Any
    more: Any = None


class Row(msgspec.Struct, array_like=True, frozen=True):
    value: Any
    more: Any = None


Point = namedtuple("Point", ["left", "right"], defaults=[0])


class Trouble(Exception):
    __slots__ = ("extra",)

    def __init__(self, value: Any, extra: Any) -> None:
        raise AssertionError("reading calls no constructor")


CLASSES = [
    Level, Word, Shape, Access, Mode, Slotted, Base, Derived, Opened, Frozen, Frozen[int], Struct, Row, Point, Trouble,
]  # fmt: skip
CODEC = Codec(CLASSES)

texts = st.text(st.characters(), max_size=8)
zones = st.one_of(
    st.sampled_from([ZoneInfo("Europe/Berlin"), ZoneInfo("UTC"), timezone.utc]),  # noqa: UP017
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23))),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)), texts),
)
plain = st.none() | st.booleans() | st.integers() | st.floats() | texts
paths = texts.filter(lambda text: "\0" not in text)
some = st.lists(plain, max_size=3)
hashable = st.integers() | texts | st.tuples(texts, st.booleans())
pairs = st.dictionaries(hashable, plain, max_size=3)

DTYPES = st.one_of(
    arrays.boolean_dtypes(),
    arrays.integer_dtypes(),
    arrays.unsigned_integer_dtypes(),
    arrays.floating_dtypes(sizes=(16, 32, 64)),
    arrays.complex_number_dtypes(sizes=(64, 128)),
    arrays.datetime64_dtypes(),
    arrays.timedelta64_dtypes(),
    arrays.byte_string_dtypes(max_len=4),
    arrays.unicode_string_dtypes(max_len=4),
    st.just(numpy.dtype([("a", ">i4"), ("b", "<f8", (2,)), ("c", "U3")])),
)


@st.composite
def any_array(draw: st.DrawFn) -> Any:
    """Of any type of elements, with up to three dimensions, none included, in any order in memory."""
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    dtype = draw(DTYPES)
    data = draw(st.binary(min_size=0, max_size=64))
    size = dtype.itemsize * int(numpy.prod(shape, dtype=int))
    body = (data * (size // max(len(data), 1) + 1))[:size] if data else bytes(size)
    if dtype.kind in "Ub" or dtype.names:  # not every byte is a letter, or a bool
        body = bytes(size)
    made = numpy.ndarray(shape, dtype, buffer=bytearray(body))
    return draw(st.sampled_from([made, made.T, numpy.asfortranarray(made), made[::-1] if shape else made]))


SCALARS = any_array().filter(lambda array: array.size and array.dtype.kind not in "SU").map(lambda array: array.flat[0])


def grown(error: BaseException, notes: list[str], cause: BaseException | None) -> BaseException:
    for note in notes:
        error.add_note(note)
    error.__cause__ = cause
    return error


def trouble(value: Any, extra: Any, hung: Any) -> Any:
    made: Any = Trouble.__new__(Trouble, value)
    made.extra, made.hung = extra, hung
    return made


def opened(value: Any, more: dict[str, Any], private: Any) -> Opened:
    made = Opened(VALUE=value, **more)
    made._private = private
    return made


def derived(value: Any, made: Any, more: Any) -> Derived:
    one = Derived(value, more)
    one.made = made
    return one


errors = st.one_of(
    st.builds(ValueError, plain),
    st.builds(KeyError, plain),
    st.builds(OSError, st.integers(200, 300), texts, texts),
    st.builds(lambda text: FileNotFoundError(2, text), texts),
    st.builds(lambda data: UnicodeDecodeError("utf-8", data, 0, 1, "why"), st.binary(min_size=1)),
    st.builds(lambda text: SyntaxError(text, ("file", 1, 2, text)), texts),
    st.builds(lambda name: ImportError("no", name=name), texts),
    st.builds(StopIteration, plain),
    st.builds(SystemExit, plain),
    st.builds(lambda value: BaseExceptionGroup("many", [KeyboardInterrupt(), trouble(value, 1, 2)]), plain),
    st.builds(trouble, plain, plain, plain),
)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tuple": some.map(tuple),
    "set": st.sets(hashable, max_size=3),
    "frozenset": st.frozensets(hashable, max_size=3),
    "dict": pairs,
    "OrderedDict": pairs.map(OrderedDict),
    "Counter": pairs.map(Counter),
    "defaultdict": st.builds(defaultdict, st.sampled_from([None, list, dict, set, int, float, str, bool]), pairs),
    "deque": st.builds(deque, some, st.none() | st.integers(0, 5)),
    "range": st.builds(range, st.integers(), st.integers(), st.integers().filter(bool)),
    "bytes": st.binary(),
    "bytearray": st.binary().map(bytearray),
    "int": st.integers(-(2**80), 2**80),
    "float": st.floats(),
    "str": texts,
    "complex": st.complex_numbers(),
    "Decimal": st.decimals() | st.sampled_from([Decimal("sNaN"), Decimal("-0.00"), Decimal("1E+999")]),
    "UUID": st.uuids(),
    "date": st.dates(),
    "datetime": st.datetimes(timezones=st.none() | zones, allow_imaginary=True),
    "time": st.times(timezones=st.none() | zones),
    "timedelta": st.timedeltas(),
    "timezone": zones.filter(lambda zone: type(zone) is timezone),
    "ZoneInfo": zones.filter(lambda zone: type(zone) is ZoneInfo),
    "Path": paths.map(Path),
    "PurePosixPath": paths.map(PurePosixPath),
    "PureWindowsPath": paths.map(PureWindowsPath),
    "numpy.ndarray": any_array(),
    "numpy.generic": SCALARS,
}
"""What has a tag of its own."""

KINDS: dict[str, st.SearchStrategy[Any]] = {
    "enum": st.sampled_from([*Level, *Word, *Shape]),
    "flag": st.integers(0, 3).map(Access) | st.sampled_from([Mode(0), Mode.FAST, Mode.FAST | Mode.SAFE]),
    "dataclass": st.builds(Base, plain) | st.builds(derived, plain, some, plain),
    "dataclass with slots": st.builds(Slotted, value=plain, more=some),
    "pydantic model": st.builds(opened, plain, st.dictionaries(st.sampled_from(["x", "é"]), plain), some),
    "generic model": st.builds(Frozen[int], value=st.integers()) | st.builds(Frozen, value=plain, more=some),
    "struct": st.builds(Struct, the_value=plain, more=some) | st.builds(Row, plain, some),
    "named tuple": st.builds(Point, plain, some),
    "exception": st.builds(grown, errors, st.lists(texts, max_size=2), st.none() | errors),
}
"""What users define."""

EVERY_TYPE = {**VALUES, **KINDS}
