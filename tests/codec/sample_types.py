"""Types that the tests of the codec share."""

import functools
import io
import random
from dataclasses import InitVar, dataclass, field
from datetime import datetime, timedelta, tzinfo
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum, auto
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, computed_field
from pydantic.dataclasses import dataclass as pydantic_dataclass

T = TypeVar("T")


class Colour(Enum):
    RED = (1, "stop")
    GREEN = object()  # an enum is stored by name, so its values may be anything


class Level(IntEnum):
    LOW = 1


class Mood(StrEnum):
    GOOD = "good"


class Point(NamedTuple):
    x: int
    y: int = 0


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
class Node:
    next: Any = None


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


class Numbers(RootModel[list[int]]):
    pass


class Page(BaseModel, Generic[T]):
    rows: list[T]


class Struct(msgspec.Struct, frozen=True, kw_only=True):
    a: int
    b: tuple[Point, ...] = ()


def alike(left: Any, right: Any) -> bool:
    """Equal, and of the same types all the way down, as far as repr tells; the order of a set does not count."""
    return type(left) is type(right) and left == right and sorted(repr(left)) == sorted(repr(right))


@dataclass
class Tape(io.BytesIO):
    label: str


@dataclass
class Dice(random.Random):  # its numbers come from a heap type of C, on every Python
    sides: int = 6


class Slot:
    __slots__ = ("hidden",)
    hidden: int


def tagged(tag: str, v: object, **more: object) -> bytes:
    return msgspec.json.encode({"$": tag, "v": v, **more})


class Mixed(str, Enum):  # noqa: UP042  people have these
    A = "a"


class Right(Flag):
    READ = auto()
    WRITE = auto()


class Bits(IntFlag):
    ONE = 1


@dataclass
class Slotted:
    __slots__ = ("value",)
    value: int


@dataclass
class Late:
    value: int = field(init=False)


@pydantic_dataclass
class Checked:
    value: int


class Capital(Address):
    country: str = "?"


class Watched(msgspec.Struct):
    count: int

    def __post_init__(self) -> None:
        self.count += 1


class Lazy(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, moment: datetime | None) -> None: ...

    def tzname(self, moment: datetime | None) -> None: ...


class Loose(NamedTuple("Loose", [("x", int)])):
    pass


class Named(str):
    pass


class Rows(list[int]):
    pass


@dataclass
class Hiding(Slot):
    value: int
