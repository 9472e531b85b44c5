"""Odd exceptions, odd names, odd moments: each has a plain answer, and none costs a run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    DefinitionError,
    HandlerFailed,
    InMemoryCheckpointStorage,
    RoutingFailed,
    RunBusy,
    RunError,
    SQLiteCheckpointStorage,
    StoreUnavailable,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
)
from stepwell.workflows import FunctionExecutor


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def pair(storage: Any, error: list[BaseException], ran: list[str], *, plain: bool = False) -> Workflow:
    @executor(id="start")
    async def start(n: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(n)

    def work(n: int) -> None:
        ran.append("bad")
        if error:
            raise error[0]

    async def work_async(n: int) -> None:
        work(n)

    bad = FunctionExecutor(work if plain else work_async, "bad")

    @executor(id="sibling")
    async def sibling(n: int, ctx: WorkflowContext[None, str]) -> None:
        await asyncio.sleep(0.01)
        ran.append("sibling")
        await ctx.yield_output("done")

    return (
        WorkflowBuilder(start_executor=start, name="pair", checkpoint_storage=storage)
        .add_fan_out_edges(start, [bad, sibling])
        .build()
    )


class Own(BaseException):
    """Not an Exception, and yet no reason to end the process."""


@pytest.mark.parametrize(
    "error",
    [
        Own("o"),
        BaseExceptionGroup("g", [Own("o")]),
        GeneratorExit("g"),
        Speechless(),
        OSError(2, "no such file", "\udcff.txt"),
        StopAsyncIteration("s"),
    ],
    ids=["own", "group", "GeneratorExit", "speechless", "half a character", "StopAsyncIteration"],
)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("plain", [False, True])
async def test_any_exception_of_a_handler_fails_the_run_and_keeps_its_siblings(
    error: Any, stream: bool, plain: bool
) -> None:
    storage, ran, errors = InMemoryCheckpointStorage(), list[str](), [error]
    workflow = pair(storage, errors, ran, plain=plain)
    with pytest.raises(HandlerFailed):
        await workflow.run(1, run_id="r", stream=stream)
    latest = await storage.get_latest(run_id="r")
    assert latest is not None
    assert latest.status is WorkflowRunState.FAILED
    errors.clear()
    assert (await workflow.run(run_id="r")).get_outputs() == ["done"]
    assert (sorted(ran[:2]), ran[2:]) == (["bad", "sibling"], ["bad"])  # whoever of the two was faster


@pytest.mark.long
async def test_a_task_that_is_cancelled_at_any_moment_leaves_the_run_free(storage: Any) -> None:
    workflow = pair(storage, [], [])
    await workflow.run(1)
    for moment in range(60):
        task = asyncio.ensure_future(workflow.run(1, run_id=f"r{moment}"))
        await asyncio.sleep(moment * 0.0002)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await workflow.run(1, run_id=f"r{moment}")).get_outputs() == ["done"]


async def test_saving_an_old_checkpoint_again_does_not_move_the_run_back(storage: Any) -> None:
    ran: list[str] = []
    workflow = pair(storage, [], ran)
    await workflow.run(1, run_id="r")
    ids = await storage.list_checkpoint_ids(run_id="r")
    await storage.save(await storage.load(ids[0]))
    assert (await storage.get_latest(run_id="r")).checkpoint_id == ids[-1]
    assert (await workflow.run(run_id="r")).get_outputs() == ["done"]
    assert sorted(ran) == ["bad", "sibling"]


async def test_what_was_remembered_after_a_deleted_checkpoint_is_forgotten_with_it(storage: Any) -> None:
    value, broken = ["old"], [True]

    @executor(id="start")
    async def start(n: int, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(value[0])

    @executor(id="b")
    async def b(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"b {text}")

    @executor(id="c")
    async def c(text: str, ctx: WorkflowContext[None, str]) -> None:
        if broken:
            raise ValueError("not yet")
        await ctx.yield_output(f"c {text}")

    builder = WorkflowBuilder(start_executor=start, name="w", checkpoint_storage=storage)
    workflow = builder.add_fan_out_edges(start, [b, c]).build()
    with pytest.raises(HandlerFailed):
        await workflow.run(1, run_id="r")
    for id in reversed((await storage.list_checkpoint_ids(run_id="r"))[1:]):
        await storage.delete(id)
    value[0] = "new"
    broken.clear()
    assert (await workflow.run(run_id="r")).get_outputs() == ["b new", "c new"]


async def test_names_that_cannot_be_stored_are_refused_where_they_are_given(storage: Any) -> None:
    workflow = pair(storage, [], [])
    with pytest.raises(ValueError, match="not valid Unicode"):
        _ = workflow.run(1, run_id="\ud800")

    @executor(id="bad\ud800")
    async def bad(n: int, ctx: WorkflowContext) -> None: ...

    with pytest.raises(DefinitionError, match="lone surrogate"):
        WorkflowBuilder(start_executor=bad).build()

    @executor(id="key")
    async def key(n: int, ctx: WorkflowContext) -> None:
        ctx.set_state("\ud800", 1)

    with pytest.raises(HandlerFailed, match="not valid Unicode"):
        await WorkflowBuilder(start_executor=key, checkpoint_storage=storage).build().run(1)
    with pytest.raises(DefinitionError, match="valid Unicode"):
        WorkflowBuilder(start_executor=key, name="\ud800").build()


@pytest.mark.parametrize("name", ["stepwell.json", "..", ".", "a/b", "con", " ", "\x00", "ü" * 300, ".new", "runs.db"])
async def test_any_other_name_will_do(storage: Any, name: str) -> None:
    @executor(id=name)
    async def only(n: int, ctx: WorkflowContext[None, int]) -> None:
        ctx.set_state(name, n)
        await ctx.yield_output(ctx.get_state(name))

    workflow = WorkflowBuilder(start_executor=only, name=name, checkpoint_storage=storage).build()
    assert (await workflow.run(1, run_id=name)).get_outputs() == [1]
    assert (await workflow.run(run_id=name)).get_outputs() == [1]
    latest = await storage.get_latest(workflow_name=name)
    assert (latest.run_id, latest.workflow_name, dict(latest.state)) == (name, name, {name: 1})


@pytest.mark.parametrize("method", ["load", "list_checkpoints", "save"])
async def test_what_a_storage_of_the_users_own_raises_comes_out_as_one_of_our_errors(method: str) -> None:
    class Broken(InMemoryCheckpointStorage):
        pass

    async def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError("the cable is out")

    storage = Broken()
    workflow = pair(storage, [], [])
    await workflow.run(1, run_id="r")
    (id, *_) = await storage.list_checkpoint_ids(run_id="r")
    setattr(storage, method, fail)
    with pytest.raises(StoreUnavailable, match="the cable is out"):
        await (workflow.run(checkpoint_id=id) if method == "load" else workflow.run(1, run_id="s"))


async def test_deletes_at_the_same_time_bring_nothing_back(storage: Any) -> None:
    @executor(id="loop")
    async def loop(n: int, ctx: WorkflowContext[int]) -> None:
        if n:
            await ctx.send_message(n - 1)

    builder = WorkflowBuilder(start_executor=loop, name="w", checkpoint_storage=storage)
    await builder.add_edge(loop, loop).build().run(9, run_id="r")
    ids = await storage.list_checkpoint_ids(run_id="r")
    assert all(await asyncio.gather(*(storage.delete(id) for id in ids[:-1])))
    assert await storage.list_checkpoint_ids(run_id="r") == ids[-1:]
    assert (await storage.get_latest(workflow_name="w")).checkpoint_id == ids[-1]


LEAVES = """
import asyncio, sys
from stepwell import SQLiteCheckpointStorage, WorkflowBuilder, WorkflowContext, executor

@executor(id="a")
async def a(n: int, ctx: WorkflowContext[None, int]) -> None:
    await ctx.yield_output(n)

workflow = WorkflowBuilder(start_executor=a, checkpoint_storage=SQLiteCheckpointStorage(sys.argv[1])).build()

async def main():
    async for event in workflow.run(1, run_id="r", stream=True):
        if event.type == "executor_invoked":
            if sys.argv[2] == "raise":
                raise ValueError("enough")
            break

for _ in range(5):
    try:
        asyncio.run(main())
    except ValueError:
        pass
print(workflow.run_sync(run_id="r").get_outputs())
"""


@pytest.mark.process
@pytest.mark.parametrize("how", ["break", "raise"])
def test_a_stream_left_as_its_loop_ends_leaves_the_run_free_and_says_nothing(how: str, tmp_path: Path) -> None:
    command = [sys.executable, "-X", "dev", "-c", LEAVES, str(tmp_path / "runs.db"), how]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[1]", "")


async def test_another_workflow_does_not_get_the_result_of_a_run_that_is_not_its_own(storage: Any) -> None:
    def agent(words: str) -> FunctionExecutor:
        @executor(id="agent")
        async def act(order: str, ctx: WorkflowContext[None, str]) -> None:
            await ctx.yield_output(f"{words} {order}")

        return act

    def workflow(name: str) -> Workflow:
        return WorkflowBuilder(name=name, start_executor=agent(name), checkpoint_storage=storage).build()

    assert (await workflow("charge").run("42", run_id="order-42")).get_outputs() == ["charge 42"]
    with pytest.raises(RunError, match="by workflow 'charge', not 'refund'"):
        await workflow("refund").run("42", run_id="order-42")


async def test_a_join_that_nobody_can_take_as_a_whole_says_so() -> None:
    @executor(id="start")
    async def start(n: int, ctx: WorkflowContext) -> None:
        await ctx.send_message(n)  # type: ignore[arg-type]

    @executor(id="number")
    async def number(n: int, ctx: WorkflowContext) -> None:
        await ctx.send_message(n)  # type: ignore[arg-type]

    @executor(id="text")
    async def text(n: int, ctx: WorkflowContext) -> None:
        await ctx.send_message(str(n))  # type: ignore[arg-type]

    @executor(id="join", input=list[int] | list[str])
    async def join(found: Any, ctx: WorkflowContext) -> None: ...

    builder = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, [number, text])
    workflow = builder.add_fan_in_edges([number, text], join).build()
    with pytest.raises(
        RoutingFailed, match=r"'join' accepts list\[int\] \| list\[str\], but was sent a list\[int \| str\]"
    ):
        await workflow.run(1)


@pytest.mark.long
async def test_a_wide_fan_in_is_no_slower_per_source_than_a_narrow_one() -> None:
    """Counted, not timed: the name of a fan-in is made once, not once per message."""

    @executor(id="start")
    async def start(n: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(n)

    def source(number: int) -> FunctionExecutor:
        @executor(id=f"s{number}")
        async def send(n: int, ctx: WorkflowContext[int]) -> None:
            await ctx.send_message(number)

        return send

    @executor(id="join")
    async def join(found: list[int], ctx: WorkflowContext[None, int]) -> None:
        await ctx.yield_output(sum(found))

    sources = [source(number) for number in range(1000)]
    builder = WorkflowBuilder(start_executor=start).add_fan_out_edges(start, sources)
    workflow = builder.add_fan_in_edges(sources, join).build()
    (edge,) = [edge for edge in workflow.edges if edge.targets == ("join",)]
    assert edge.key is edge.key  # type: ignore[union-attr]
    assert (await workflow.run(1)).get_outputs() == [sum(range(1000))]


def test_a_sqlite_storage_in_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="InMemoryCheckpointStorage"):
        SQLiteCheckpointStorage(":memory:")


TYPED = """
import asyncio
from stepwell import Executor, Workflow, WorkflowBuilder, WorkflowContext, WorkflowRunResult
from stepwell import executor, handler, persistent

class Counter(Executor):
    count = persistent(0)

    @handler
    async def add(self, n: int, ctx: WorkflowContext[int, str]) -> None:
        self.count += n
        await ctx.send_message(self.count)
        await ctx.yield_output("x")

@executor(id="plain")
def plain(n: int) -> str:
    return str(n)

async def main(workflow: Workflow, flag: bool) -> list[object]:
    task = asyncio.create_task(workflow.run(1))
    async with asyncio.TaskGroup() as group:
        other = group.create_task(workflow.run(2, run_id="r"))
    async for event in workflow.run(3, stream=True):
        print(event.type)
    stream = workflow.run(4, stream=True)
    result: WorkflowRunResult = await stream
    either = await workflow.run(5, stream=flag)
    return [await task, other.result(), result.get_outputs(), either.get_final_state()]

counter = Counter("counter")
asyncio.run(main(WorkflowBuilder(start_executor=counter).add_edge(counter, plain).build(), True))
"""


@pytest.mark.process
def test_a_users_program_is_well_typed_by_the_strictest_rules(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


async def test_of_many_drives_at_once_in_one_process_exactly_one_holds_the_run(storage: Any) -> None:
    """A claim that was only just granted is not taken for one that was left over."""
    ran: list[str] = []
    workflow = pair(storage, [], ran)
    for number in range(10):
        ran.clear()
        runs = [workflow.run(1, run_id=f"r{number}") for _ in range(6)]
        outcomes = await asyncio.gather(*runs, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert {type(outcome) for outcome in refused} <= {RunBusy}
        assert ran == ["bad", "sibling"]
