"""Values come back equal, with their types, in a process that never saw them made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SHAPES = """
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import BaseModel


class Colour(Enum):
    RED = "red"

class Box:
    class Deep(Enum):
        BLUE = 1

class Level(IntEnum):
    HIGH = 3

class Mood(StrEnum):
    GOOD = "good"

class Point(NamedTuple):
    x: int
    y: float = 0.5

@dataclass(frozen=True, slots=True)
class Tag:
    name: str

@dataclass
class Order:
    tag: Tag
    lines: list["Order"] = field(default_factory=list)
    by_key: dict[tuple[int, str], set[int]] = field(default_factory=dict)

class Customer(BaseModel):
    name: str
    since: date
    favourite: Order | None = None

VALUES: dict[str, Any] = {
    "dataclass": Order(Tag("a"), [Order(Tag("b"))], {(1, "x"): {1, 2}}),
    "pydantic": Customer(name="c", since=date(2020, 1, 2), favourite=Order(Tag("z"))),
    "namedtuple": Point(1, 2.5),
    "enum": [Colour.RED, Box.Deep.BLUE, Level.HIGH, Mood.GOOD],
    "time": [datetime(2024, 5, 6, 7, 8, 9, 10), datetime(2024, 5, 6, tzinfo=timezone.utc),
             datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("UTC"), fold=1), date(2024, 1, 1), time(1, 2, 3),
             timedelta(days=-1, microseconds=5)],
    "number": [Decimal("1.10"), 2**80, -0.0, float("inf"), 1.0, 1, True],
    "uuid": UUID(int=5),
    "path": Path("a/b"),
    "sets": [{1, 2}, frozenset({"a"}), (1, (2, [3]))],
    "bytes": [b"\\x00\\xff", bytearray(b"x")],
    "keys": {1: "int", (1, 2): "tuple", "s": None, Level.HIGH: "enum"},
    "collections": [deque([1], maxlen=3), OrderedDict(b=1), Counter("aab"), defaultdict(list, a=[1])],
    "nested": {"a": [{"b": ({"c": {Tag("d")}},)}]},
    "odd": {"$": "not a tag", "": None, "\\ud800": "lone"},
}
"""

PROGRAM = """
import sys
from stepwell import (Executor, FileCheckpointStorage, SQLiteCheckpointStorage, WorkflowBuilder, WorkflowContext,
                      executor, handler)
from shapes import VALUES

kind, path, life = sys.argv[1:]

class Keeper(Executor):
    def __init__(self):
        super().__init__("keeper")
        self.kept = None
    @handler
    async def keep(self, values: dict, ctx: WorkflowContext[dict]) -> None:
        self.kept = values
        for key, value in values.items():
            ctx.set_state(key, value)
        await ctx.send_message(values)
    async def on_checkpoint_save(self):
        return {"kept": self.kept}
    async def on_checkpoint_restore(self, state):
        self.kept = state["kept"]

def same(one, other, path="$"):
    assert type(one) is type(other), (path, type(one), type(other))
    assert one == other, (path, one, other)
    if isinstance(one, dict):
        assert list(one) == list(other), path
        for key, mine in zip(one, other):
            assert type(key) is type(mine), (path, key)
            same(one[key], other[key], f"{path}[{key!r}]")
    elif isinstance(one, (list, tuple)):
        for n, (a, b) in enumerate(zip(one, other)):
            same(a, b, f"{path}[{n}]")

@executor(id="check")
async def check(values: dict, ctx: WorkflowContext[None, str]) -> None:
    if life == "first":
        import os
        os._exit(9)
    same(values, VALUES)
    same({key: ctx.get_state(key) for key in VALUES}, VALUES)
    assert str(ctx.get_state("number")[2]) == "-0.0"
    await ctx.yield_output("equal")

storage = SQLiteCheckpointStorage(path + "/runs.db") if kind == "sqlite" else FileCheckpointStorage(path + "/runs")
keeper = Keeper()
builder = WorkflowBuilder(start_executor=keeper, name="values", checkpoint_storage=storage)
workflow = builder.add_edge(keeper, check).build()
if life == "first":
    workflow.run_sync(VALUES, run_id="r")
else:
    result = workflow.run_sync(run_id="r")
    same(keeper.kept, VALUES)
    print(result.get_outputs())
"""


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_every_kind_of_value_survives_into_a_new_process(kind: str, tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text(SHAPES)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), kind, str(tmp_path)]
    assert subprocess.run([*command, "first"]).returncode == 9
    second = subprocess.run([*command, "second"], capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    assert second.stdout.strip() == "['equal']"
