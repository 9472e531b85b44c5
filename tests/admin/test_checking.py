"""What becomes of stored runs with some code, before it is deployed."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Any, Never

import pytest

from stepwell import (
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    Migration,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    register_checkpoint_type,
    response_handler,
)
from stepwell.admin import check, fork
from stepwell.agents import ScriptedAgent
from stepwell.declarative import AgentWorkflow
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore


class Desk(Executor):
    """Asks about a text, and says what was answered."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("text", text)
        await ctx.request_info(text, bool, request_id=f"is it {text}?")

    @response_handler
    async def hear(self, original_request: str, response: bool, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(f"{original_request}: {response}")


def desk(storage: Any, id: str = "desk", *, broken: bool = False, **options: Any) -> Workflow:
    @executor(id="tell")
    async def tell(text: str, ctx: WorkflowContext[None, str]) -> None:
        if broken:
            raise ValueError("hoarse")
        await ctx.yield_output(text)

    first = Desk(id)
    return (
        WorkflowBuilder(name="desk", start_executor=first, checkpoint_storage=storage, **options)
        .add_edge(first, tell)
        .build()
    )


async def filled(storage: Any) -> None:
    """One run of each status that rests."""
    for run_id in ("waits", "done", "failed", "stopped"):
        await desk(storage).run(run_id, run_id=run_id)
    await desk(storage).run(run_id="done", responses={"is it done?": True})
    with pytest.raises(HandlerFailed):
        await desk(storage, broken=True).run(run_id="failed", responses={"is it failed?": True})
    await desk(storage).attach("stopped", drive=True).cancel()


async def test_every_run_has_a_verdict_and_nothing_is_changed(everywhere: Any) -> None:
    storage = everywhere()
    await filled(storage)
    before = await storage.list_checkpoint_ids()
    same = await check(storage, desk(storage))
    assert {run.run_id: run.verdict for run in same.runs} == {"waits": "compatible", "failed": "compatible"}
    assert (same.incompatible, same.migrating, len(same.compatible)) == ((), (), 2)
    renamed = await check(storage, desk(storage, "front"), every=True)
    assert {run.run_id: run.verdict for run in renamed.runs} == {
        "waits": "incompatible",
        "failed": "compatible",  # what asked is gone, and has nothing to do with it any more
        "stopped": "incompatible",
        "done": "compatible",
    }
    (waits,) = [run for run in renamed.incompatible if run.run_id == "waits"]
    assert waits.why == ("executor 'desk' was removed, but its request 'is it waits?' is open",)
    step = Migration(2).rename_executor("desk", "front")
    migrating = await check(storage, desk(storage, "front", migrations=[step]))
    assert {run.verdict for run in migrating.runs} == {"migrates"}
    assert migrating.version == 2
    assert await storage.list_checkpoint_ids() == before
    await storage.close()


async def test_runs_are_found_under_another_name() -> None:
    storage = InMemoryCheckpointStorage()
    await desk(storage).run("x", run_id="r")
    other = WorkflowBuilder(name="counter", start_executor=Desk("desk"), on_unroutable="drop").build()
    assert (await check(storage, other)).runs == ()
    (run,) = (await check(storage, other, stored_as="desk")).runs
    assert run.verdict == "compatible"


class Forward(MemoryStore):
    """Gives the whole history of a run to nobody."""

    async def history(self, run_id: str, **known: Any) -> Never:
        raise AssertionError(f"the history of {run_id!r} was read")


async def test_no_history_is_read() -> None:
    storage = BuiltInStorage(Forward())
    await desk(storage).run("x", run_id="r")
    assert len((await check(storage, desk(storage))).runs) == 1


def _loan() -> Any:
    made = make_dataclass("Loan", ["amount"])
    made.__module__ = "bank.loans"
    return made


async def test_values_that_this_code_cannot_read_strand_a_run() -> None:
    storage = InMemoryCheckpointStorage()
    loan = register_checkpoint_type(_loan(), version=2, upcast={1: dict})

    class Asks(Executor):
        @handler
        async def ask(self, text: str, ctx: WorkflowContext) -> None:
            ctx.set_state("value", {"inside": [loan(3)]})
            await ctx.request_info(text, bool, request_id="q")

        @response_handler
        async def hear(self, original_request: str, response: bool, ctx: WorkflowContext) -> None: ...

    workflow = WorkflowBuilder(name="asks", start_executor=Asks("asks"), checkpoint_storage=storage).build()
    await workflow.run("x", run_id="r")
    assert [run.verdict for run in (await check(storage, workflow)).runs] == ["compatible"]
    register_checkpoint_type(_loan())  # rolled back to version 1
    (run,) = (await check(storage, workflow)).runs
    assert (run.verdict, "version 2" in run.why[0], "$.state.value" in run.why[0]) == ("incompatible", True, True)


async def test_a_run_with_no_supersteps_left_is_told() -> None:
    storage = InMemoryCheckpointStorage()

    def counting(limit: int) -> Workflow:
        @executor(id="count")
        async def count(number: int, ctx: WorkflowContext[int]) -> None:
            if number == 5:
                raise ValueError("stop here")
            await ctx.send_message(number + 1)

        builder = WorkflowBuilder(limit, "counting", start_executor=count, checkpoint_storage=storage)
        return builder.add_edge(count, count).build()

    with pytest.raises(HandlerFailed):
        await counting(100).run(1, run_id="r")
    (run,) = (await check(storage, counting(4))).runs
    assert run.why == ("it has made 4 supersteps since its last input, and the limit is 4",)
    assert (await check(storage, counting(5))).incompatible == ()


def around(inner: Workflow, storage: Any) -> Workflow:
    nested = WorkflowExecutor(inner, "inside", allow_direct_output=True)
    return WorkflowBuilder(name="around", start_executor=nested, checkpoint_storage=storage).build()


async def test_runs_inside_are_looked_at_where_the_run_around_left_them() -> None:
    storage = InMemoryCheckpointStorage()
    await around(desk(None), storage).run("x", run_id="r")
    await fork(storage, "r", run_id="fork")  # it refers to a checkpoint of the run inside the other
    changed = await check(storage, around(desk(None, "front"), storage))
    words = "executor 'desk' was removed, but its request 'is it x?' is open"
    assert [(run.run_id, run.verdict, run.why) for run in sorted(changed.runs, key=lambda run: run.run_id)] == [
        ("fork", "incompatible", (words,)),
        ("r", "incompatible", (words,)),
    ]
    step = Migration(2).rename_executor("desk", "front")
    migrating = await check(storage, around(desk(None, "front", migrations=[step]), storage))
    assert {run.verdict for run in migrating.runs} == {"migrates"}
    assert all(": version 1 became version 2" in run.why[0] for run in migrating.runs)


async def test_a_run_inside_that_is_under_way_is_looked_at() -> None:
    storage = InMemoryCheckpointStorage()

    def failing(broken: bool, id: str = "last") -> Workflow:
        @executor(id="first")
        async def first(text: str, ctx: WorkflowContext[str]) -> None:
            await ctx.send_message(text)

        @executor(id=id)
        async def last(text: str, ctx: WorkflowContext[None, str]) -> None:
            if broken:
                raise ValueError("not yet")
            await ctx.yield_output(text)

        return WorkflowBuilder(name="failing", start_executor=first).add_edge(first, last).build()

    with pytest.raises(HandlerFailed):
        await around(failing(True), storage).run("x", run_id="r")
    assert (await check(storage, around(failing(False), storage))).incompatible == ()
    (run,) = (await check(storage, around(failing(False, "end"), storage))).incompatible
    assert run.why == ("executor 'last' was removed, but a message from 'first' is in flight to it",)


async def test_agents_by_name_that_were_begun_with_other_edges_are_told() -> None:
    storage = InMemoryCheckpointStorage()

    def named(*ways: tuple[str, str]) -> Any:
        builder = AgentWorkflow.create().with_name("team").with_checkpointing().with_workflow_store(storage)
        for id in "abc":
            builder = builder.add_agent(id, ScriptedAgent(id, ["fine"]), approval=True)
        for source, target in ways:
            builder = builder.from_(source).to(target)
        return builder.build()

    await named(("a", "b"), ("b", "c")).run("x", run_id="r")
    assert (await check(storage, named(("a", "b"), ("b", "c")).workflow)).incompatible == ()
    (run,) = (await check(storage, named(("a", "b"), ("a", "c")).workflow)).incompatible
    assert any("is gone" in words for words in run.why)
