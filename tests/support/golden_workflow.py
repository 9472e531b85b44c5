"""The workflow whose runs are kept in the golden stores. It must stay as it is for ever."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel

from stepwell import (
    Case,
    Default,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    persistent,
    response_handler,
)


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: float


class Person(BaseModel):
    name: str
    tags: set[str]


@dataclass
class Parcel:
    label: str
    values: dict[str, Any] = field(default_factory=dict)


GIVEN = Parcel(
    "golden",
    {
        "when": datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
        "span": timedelta(days=1, seconds=2),
        "price": Decimal("1.10"),
        "id": UUID(int=7),
        "path": PurePosixPath("a/b"),
        "bytes": b"\x00\xff",
        "keys": {1: "int", (1, 2): "tuple"},
        "sets": [{1, 2}, frozenset({3})],
        "enums": [Colour.RED, Level.HIGH],
        "point": Point(1, 2.5),
        "person": Person(name="somebody", tags={"x"}),
        "big": 2**70,
        "odd": {"$": "not a tag"},
    },
)


class Counter(Executor):
    """Keeps an attribute and uses the hooks."""

    seen = persistent(0)

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.labels: list[str] = []

    @handler
    async def count(self, parcel: Parcel, ctx: WorkflowContext[Parcel]) -> None:
        self.seen += 1
        self.labels.append(parcel.label)
        ctx.set_state("parcel", parcel)
        ctx.set_state("scratch", 1)
        ctx.append_state("log", "counted")
        await ctx.send_message(parcel)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"labels": self.labels}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.labels = state["labels"]


def build(storage: Any, *, broken: bool) -> Workflow:
    @executor(id="left")
    async def left(parcel: Parcel, ctx: WorkflowContext[int, str]) -> None:
        ctx.append_state("log", "left")
        ctx.delete_state("scratch")
        await ctx.yield_output("left was here")
        await ctx.send_message(1)
        await ctx.send_message(2)

    @executor(id="right")
    async def right(parcel: Parcel, ctx: WorkflowContext[int]) -> None:
        if broken:
            raise ValueError("right is broken")
        await ctx.send_message(3)

    @executor(id="join")
    async def join(numbers: list[int], ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(sum(numbers))

    @executor(id="last")
    async def last(total: int, ctx: WorkflowContext[None, Any]) -> None:
        await ctx.yield_output({"total": total, "log": ctx.get_state("log"), "parcel": ctx.get_state("parcel")})

    @executor(id="never")
    async def never(total: int, ctx: WorkflowContext) -> None: ...

    def is_negative(total: int) -> bool:
        return total < 0

    counter = Counter("counter")
    return (
        WorkflowBuilder(name="golden", start_executor=counter, checkpoint_storage=storage)
        .add_fan_out_edges(counter, [left, right])
        .add_fan_in_edges([left, right], join)
        .add_switch_case_edge_group(join, [Case(is_negative, never), Default(last)])
        .build()
    )


@dataclass
class Verdict:
    good: bool


class Asker(Executor):
    """Asks a person; in the golden stores from format 2 on."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext) -> None:
        await ctx.request_info(Parcel(text), Verdict, request_id="golden question")

    @response_handler
    async def hear(self, original_request: Parcel, response: Verdict, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{original_request.label} is {'good' if response.good else 'bad'}")


def build_asking(storage: Any) -> Workflow:
    return WorkflowBuilder(name="asking", start_executor=Asker("asker"), checkpoint_storage=storage).build()
