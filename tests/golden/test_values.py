"""Every kind of value as it was ever written: read for ever, and written the same way still."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest
from pydantic import BaseModel

from stepwell import register_checkpoint_type
from stepwell.codec.codec import DEFAULT_CODEC

LINES = (Path(__file__).parent / "values.jsonl").read_bytes().splitlines()


def lasting(cls: Any) -> Any:
    """Known by a name that does not change when this file moves."""
    cls.__module__ = "golden_values"
    return register_checkpoint_type(cls)


@lasting
class Size(Enum):
    SMALL = 1


@lasting
class Right(Flag):
    READ = 1
    WRITE = 2


@lasting
@dataclass(frozen=True)
class Order:
    id: int
    lines: list[str] = field(default_factory=list)


@lasting
class Point(NamedTuple):
    x: int
    y: float = 0.5


@lasting
class Page(BaseModel):
    number: int
    title: str = "none"


@lasting
class Reply(msgspec.Struct):
    text: str


@lasting
class OutOfStock(Exception):
    def __init__(self, sku: str) -> None:
        super().__init__(f"{sku} is out of stock")
        self.sku = sku
        self.add_note("asked twice")
        self.__cause__ = KeyError("cup")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutOfStock) and DEFAULT_CODEC.encode(other) == DEFAULT_CODEC.encode(self)

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Customer:
    first: str
    last: str


Customer.__module__ = "golden_values"
register_checkpoint_type(
    Customer,
    version=2,
    upcast={1: lambda fields: dict(zip(("first", "last"), fields["name"].split(), strict=True))},
    names=["golden_values:Client"],
)


class Sketch:
    def __init__(self, strokes: list[int]) -> None:
        self.strokes = strokes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sketch) and other.strokes == self.strokes

    __hash__ = None  # type: ignore[assignment]


Sketch.__module__ = "golden_values"
register_checkpoint_type(Sketch, pickle=True)

WRITTEN: list[Any] = [
    [None, True, 1, -0.5, "ü", {"a": []}], 2**70, float("inf"), "\ud800", {"$": 1, 2: "b"}, (1, ("a",)),
    {3, 1, 2}, frozenset({"b", "a"}), deque([1], 3), OrderedDict(a=1), Counter("aab"), defaultdict(list, a=[1]),
    range(1, 9, 2), b"\x00\xff", bytearray(b"x"), 1 - 2j, Decimal("1.50"), UUID(int=7), date(2024, 2, 29),
    datetime(2024, 2, 29, 12, 0, 0, 5, tzinfo=UTC),
    datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    time(1, 2), timedelta(1, 2, 3), timezone(timedelta(hours=1), "CET"), ZoneInfo("UTC"), Path("a/b"),
    PurePosixPath("/a"), PureWindowsPath("C:/a"), Size.SMALL, Right.READ | Right.WRITE, Order(7, ["cup"]), Point(1),
    Page(number=1), Reply("yes"),
]  # fmt: skip
WRITTEN_SINCE: list[Any] = [
    OutOfStock("cup"), Customer("Ada", "Lovelace"), np.float32(1.5), np.arange(4, dtype=">i2").reshape(2, 2),
    np.asfortranarray(np.arange(4, dtype="u1").reshape(2, 2)), np.zeros(1, [("id", "<i4"), ("at", "<f8", (2,))]),
]  # fmt: skip
ONLY_READ: list[Any] = [Customer("Ada", "Lovelace"), Sketch([1, 2])]
VALUES = [*WRITTEN, *WRITTEN_SINCE, *ONLY_READ]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        alike = left.dtype == right.dtype and left.flags.fnc == right.flags.fnc
        return bool(alike and left.tobytes() == right.tobytes())
    return type(left) is type(right) and bool(left == right)


@pytest.mark.parametrize(
    ("line", "value"), list(zip(LINES, VALUES, strict=True)), ids=[ascii(line)[:40] for line in LINES]
)
def test_what_was_written_is_read(line: bytes, value: object) -> None:
    assert same(DEFAULT_CODEC.decode(line), value)


@pytest.mark.parametrize("number", range(len(WRITTEN + WRITTEN_SINCE)))
def test_it_is_written_as_it_was(number: int) -> None:
    assert DEFAULT_CODEC.encode(VALUES[number]) == LINES[number]


def test_each_line_is_json_that_any_tool_reads() -> None:
    assert all(json.loads(line) for line in LINES)
