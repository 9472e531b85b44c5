"""Wherever the process dies, the run ends the same, and nothing that was committed runs again."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    Case,
    CheckpointMissing,
    Default,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    persistent,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.files.store import FileStore
from stepwell.stores.memory.store import MemoryStore
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing import Crash, CrashingStore


@dataclass
class Order:
    item: str
    price: int


def shop(storage: BuiltInStorage, effects: Counter[str]) -> Workflow:
    """receive → (price, risk, stock) → join → switch → loop until paid → done; every kind of change is in it."""

    class Receive(Executor):
        @handler
        async def receive(self, order: Order, ctx: WorkflowContext[Order]) -> None:
            effects["receive"] += 1
            ctx.set_state("seen", order)
            await ctx.send_message(order)
            order.price = -1  # must not be seen by anybody

    class Price(Executor):
        asked = persistent(0)

        @handler
        async def price(self, order: Order, ctx: WorkflowContext[int]) -> None:
            effects["price"] += 1
            self.asked += 1
            ctx.append_state("log", "price")
            await ctx.send_message(order.price * 2)

    @executor(id="risk")
    async def risk(order: Order, ctx: WorkflowContext[int, str]) -> None:
        effects["risk"] += 1
        await asyncio.sleep(0)
        ctx.append_state("log", "risk")
        await ctx.yield_output(f"risk of {order.item}")
        await ctx.send_message(0)
        await ctx.send_message(1)

    @executor(id="stock")
    def stock(order: Order) -> int:
        effects["stock"] += 1
        return 7

    @executor(id="join")
    async def join(found: list[int], ctx: WorkflowContext[int]) -> None:
        effects["join"] += 1
        await ctx.send_message(sum(found))

    class Pay(Executor):
        def __init__(self) -> None:
            super().__init__("pay")
            self._left: int | None = None

        @handler
        async def pay(self, due: int, ctx: WorkflowContext[int, str]) -> None:
            effects["pay"] += 1
            self._left = due - 20
            ctx.append_state("log", f"paid 20 of {due}")
            if self._left > 0:
                await ctx.send_message(self._left)
            else:
                await ctx.yield_output(f"paid after {ctx.get_state('log')}")

        async def on_checkpoint_save(self) -> dict[str, Any]:
            return {"left": self._left}

        async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
            self._left = state["left"]

    @executor(id="free")
    async def free(due: int, ctx: WorkflowContext[int, str]) -> None:
        raise AssertionError("nothing here is free")

    def is_free(due: int) -> bool:
        effects["condition"] += 1
        return due == 0

    receive, price, pay = Receive("receive"), Price("price"), Pay()
    return (
        WorkflowBuilder(start_executor=receive, name="shop", checkpoint_storage=storage)
        .add_fan_out_edges(receive, [price, risk, stock])
        .add_fan_in_edges([price, risk, stock], join)
        .add_switch_case_edge_group(join, [Case(is_free, free), Default(pay)])
        .add_edge(pay, pay)
        .build()
    )


ONCE = {"receive": 1, "price": 1, "risk": 1, "stock": 1, "join": 1, "pay": 3, "condition": 1}


async def finish(inner: Any, effects: Counter[str], *, at: int | None = None, after: bool = False) -> tuple[Any, int]:
    """Run to the end; the first life dies at the write that is asked for."""
    store = CrashingStore(inner, at, after=after)
    try:
        result = await shop(BuiltInStorage(store), effects).run(Order("boat", 25), run_id="r")
    except Crash:
        survivor = BuiltInStorage(inner)
        try:
            result = await shop(survivor, effects).run(run_id="r")
        except CheckpointMissing:  # it died before the input was stored: whoever asked must ask again
            result = await shop(survivor, effects).run(Order("boat", 25), run_id="r")
    latest = await BuiltInStorage(inner).get_latest(run_id="r")
    assert latest is not None
    seen = (result.get_outputs(), dict(latest.state), dict(latest.executor_states), latest.iteration_count)
    return seen, store.writes


@pytest.fixture(params=["memory", "sqlite", "file"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = iter(range(1000))
    kinds = {
        "memory": MemoryStore,
        "sqlite": lambda: SQLiteStore(tmp_path / f"{next(made)}.db"),
        "file": lambda: FileStore(tmp_path / str(next(made))),
    }
    return kinds[request.param]


async def test_it_ends_the_same_wherever_it_dies(make_store: Any) -> None:
    effects: Counter[str] = Counter()
    reference, writes = await finish(make_store(), effects)
    assert effects == ONCE
    assert reference[0][-1] == "paid after ['price', 'risk', 'paid 20 of 58', 'paid 20 of 38', 'paid 20 of 18']"
    for at in range(1, writes + 1):
        for after in (False, True):
            effects = Counter()
            seen, _ = await finish(make_store(), effects, at=at, after=after)
            assert seen == reference, f"died {'after' if after else 'before'} write {at}"
            again = {name: effects[name] - times for name, times in ONCE.items() if effects[name] != times}
            assert sum(again.values()) <= 3, f"died {'after' if after else 'before'} write {at}: {again}"


async def test_what_was_committed_is_never_run_again(make_store: Any) -> None:
    """After each append that succeeded, a resume runs nothing of the supersteps before it."""
    effects: Counter[str] = Counter()
    inner = make_store()
    result = await shop(BuiltInStorage(inner), effects).run(Order("boat", 25), run_id="r")
    assert effects == ONCE
    again = await shop(BuiltInStorage(inner), effects).run(run_id="r")
    assert again.get_outputs() == result.get_outputs()
    assert effects == ONCE
