"""A program of the door may die before or after any write: a resume gives the same result and repeats no outcome."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any, Never

from stepwell.compat.agent_framework import (
    Executor,
    InMemoryCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    response_handler,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing.faults.crash import Crash, CrashingStore
from tests.compat.scripted import agent


class Splits(Executor):
    @handler
    async def split(self, text: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("text", text)
        await ctx.send_message(text)


class Counts(Executor):
    def __init__(self, id: str, calls: Counter[str]) -> None:
        super().__init__(id)
        self.calls, self.seen = calls, 0

    @handler
    async def count(self, text: str, ctx: WorkflowContext[str]) -> None:
        self.calls[self.id] += 1
        self.seen += 1
        await ctx.send_message(f"{self.id}{self.seen}:{text}")

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"seen": self.seen}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


class Joins(Executor):
    @handler
    async def join(self, parts: list[str], ctx: WorkflowContext[str]) -> None:
        await ctx.request_info(" ".join(parts), str, request_id="ok")

    @response_handler
    async def answered(self, asked: str, response: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(f"{asked} {response} {ctx.get_state('text')}")


class Ends(Executor):
    @handler
    async def end(self, text: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(text)


def build(storage: InMemoryCheckpointStorage, calls: Counter[str]) -> Any:
    inner = WorkflowBuilder(name="inner", start_executor=Ends("inside")).build()
    start, join, nested = Splits("start"), Joins("join"), WorkflowExecutor(inner, "nested")
    work, poet = [Counts("a", calls), Counts("b", calls)], agent("poet", "a poem")
    builder = WorkflowBuilder(name="crashes", start_executor=start, checkpoint_storage=storage)
    builder.add_fan_out_edges(start, work).add_fan_in_edges(work, join).add_edge(join, nested).add_edge(nested, poet)
    return builder.build()


def storage_on(store: Any) -> InMemoryCheckpointStorage:
    storage = InMemoryCheckpointStorage()
    storage.native = BuiltInStorage(store)
    return storage


async def finish(storage: InMemoryCheckpointStorage, calls: Counter[str]) -> str:
    """Continue from the latest checkpoint, as another process would, until the run is over."""
    workflow = build(storage, calls)
    latest = await storage.get_latest(workflow_name="crashes")
    if latest is None:
        result = await workflow.run("x")
    else:
        result = await workflow.run(checkpoint_id=latest.checkpoint_id)
    if result.get_request_info_events():
        result = await workflow.run(responses={"ok": "yes"})
    last = await storage.native.get_latest(workflow_name="crashes")
    assert last is not None
    assert last.status.value == "IDLE"
    done = [done for checkpoint in await storage.native.list_checkpoints(workflow_name="crashes")
            for done in checkpoint.position.get("done", ())]  # fmt: skip
    return repr([one.get("outputs") for one in done if one["executor"] == "poet"])


async def test_a_program_may_die_at_any_write() -> None:
    whole = CrashingStore(MemoryStore())
    expected = await finish(storage_on(whole), Counter())
    assert "poem" in expected
    for at in range(1, whole.writes + 1):
        for after in (False, True):
            inner, calls = MemoryStore(), Counter[str]()
            dying = CrashingStore(inner, at, after=after)
            with suppress(Crash):
                await finish(storage_on(dying), calls)
            assert dying.is_dead
            assert await finish(storage_on(inner), calls) == expected, (at, after)
            # A handler whose outcome was stored is not called again; one that was cut off may be.
            assert max(calls.values()) <= 2
