"""Starting runs, going on with them, leaving them, cancelling them, and many of them at once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    CheckpointMissing,
    GraphChanged,
    HandlerFailed,
    InMemoryCheckpointStorage,
    InputMismatch,
    RoutingFailed,
    RunBusy,
    RunError,
    SQLiteCheckpointStorage,
    WorkflowBuilder,
    WorkflowEvent,
    WorkflowRunState,
    executor,
)
from stepwell.engine.durability import lease_renewal as claims
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, Record
from stepwell.stores.memory.store import MemoryStore
from tests.engine.running_samples import Chain, Ctx

# --- the forms of run ---------------------------------------------------------------------------------------------


async def test_an_omitted_message_means_none() -> None:
    result = await Chain().build().run()
    assert result.get_outputs() == [None]


async def test_a_start_executor_that_does_not_take_the_message_says_what_it_takes() -> None:
    @executor(id="start")
    async def start(message: int) -> None: ...

    workflow = WorkflowBuilder(start_executor=start).build()
    with pytest.raises(
        RoutingFailed, match=r"the start executor 'start' accepts int, but the message is of type NoneType"
    ):
        await workflow.run()


async def test_a_message_and_a_checkpoint_id_are_one_too_many_and_refused_at_once() -> None:
    with pytest.raises(ValueError, match="not both"):
        _ = Chain().build().run(1, checkpoint_id="c")
    with pytest.raises(ValueError, match="not both"):
        Chain().build().run(None, checkpoint_id="c", stream=True)


@pytest.mark.parametrize("ids", [{"run_id": ""}, {"run_id": 7}, {"checkpoint_id": ""}])
async def test_an_id_is_a_non_empty_string(ids: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(ids))} must be a non-empty string"):
        Chain().build().run(**ids)


@pytest.mark.parametrize("ids", [{"run_id": "nobody"}, {"checkpoint_id": "nothing"}])
async def test_an_unknown_id_without_a_message_is_an_error_that_names_it(ids: dict[str, Any]) -> None:
    chain = Chain()
    with pytest.raises(CheckpointMissing, match=next(iter(ids.values()))):
        await chain.build().run(**ids)
    assert await chain.storage.list_checkpoint_ids() == []


@pytest.mark.parametrize("ids", [{"run_id": "r"}, {"checkpoint_id": "c"}])
async def test_going_on_without_a_storage_says_what_to_give(ids: dict[str, Any]) -> None:
    chain = Chain()
    with pytest.raises(CheckpointMissing, match="pass checkpoint_storage"):
        await chain.build(checkpoint_storage=None).run(**ids)


async def test_a_storage_given_to_run_beats_the_one_of_the_builder() -> None:
    chain, other = Chain(), InMemoryCheckpointStorage()
    await chain.build().run(1, run_id="r", checkpoint_storage=other)
    assert await chain.storage.list_checkpoint_ids() == []
    assert len(await other.list_checkpoint_ids(run_id="r")) == 4


async def test_a_run_without_a_name_gets_one_of_its_own() -> None:
    workflow = Chain().build()
    first, second = await workflow.run(1), await workflow.run(1)
    assert first.run_id != second.run_id
    assert (await workflow.run(run_id=first.run_id)).get_outputs() == [1]


def test_run_sync_runs_without_an_event_loop_and_goes_on_in_another_one() -> None:
    chain = Chain()
    chain.failing.add("s2")
    with pytest.raises(HandlerFailed):
        chain.build().run_sync("x", run_id="r")
    chain.failing.clear()
    assert chain.build().run_sync(run_id="r").get_outputs() == ["x"]
    assert chain.calls == {"s1": 1, "s2": 2, "s3": 1}


async def test_run_sync_inside_a_running_loop_says_what_to_use() -> None:
    with pytest.raises(RuntimeError, match=r"inside a running event loop; use `await workflow.run"):
        Chain().build().run_sync(1)


async def test_run_streaming_is_run_with_a_stream() -> None:
    stream = Chain().build().run_streaming("x", run_id="r")
    assert [e.data async for e in stream if e.type == "output"] == ["x"]
    assert (await stream).get_outputs() == ["x"]


async def test_run_stream_from_checkpoint_goes_on_from_there() -> None:
    chain = Chain()
    await chain.build(checkpoint_storage=None).run("x", checkpoint_storage=chain.storage, run_id="r")
    middle = (await chain.heads("r"))[1]
    stream = chain.build(checkpoint_storage=None).run_stream_from_checkpoint(middle.checkpoint_id, chain.storage)
    assert [e.executor_id async for e in stream if e.type == "executor_invoked"] == ["s2", "s3"]


# --- position -----------------------------------------------------------------------------------------------------


async def test_the_same_run_id_with_the_same_input_goes_on_from_the_head() -> None:
    chain = Chain()
    chain.failing.add("s2")
    with pytest.raises(HandlerFailed):
        await chain.build().run({"a": 1, "b": 2}, run_id="r")
    chain.failing.clear()
    result = await chain.build().run({"b": 2, "a": 1}, run_id="r")
    assert result.get_outputs() == [{"a": 1, "b": 2}]
    assert chain.calls == {"s1": 1, "s2": 2, "s3": 1}


@pytest.mark.parametrize("again", [{"message": "x"}, {}])
async def test_a_finished_run_gives_its_outputs_and_runs_and_writes_nothing(again: dict[str, Any]) -> None:
    chain = Chain()
    first = await chain.build().run("x", run_id="r")
    before = await chain.storage.list_checkpoint_ids()
    second = await chain.build().run(run_id="r", **again)
    assert second.get_outputs() == first.get_outputs() == ["x"]
    assert second.get_final_state() is WorkflowRunState.IDLE
    assert chain.calls == {"s1": 1, "s2": 1, "s3": 1}
    assert await chain.storage.list_checkpoint_ids() == before


async def test_the_same_run_id_with_another_input_is_a_clear_error() -> None:
    chain = Chain()
    await chain.build().run("x", run_id="r")
    with pytest.raises(InputMismatch, match="run 'r' was started with another input") as caught:
        await chain.build().run("y", run_id="r")
    assert caught.value.run_id == "r"
    with pytest.raises(InputMismatch):
        await chain.build().run(None, run_id="r")
    assert chain.calls == {"s1": 1, "s2": 1, "s3": 1}


async def test_a_second_drive_of_a_run_is_refused_and_names_the_owner() -> None:
    chain = Chain()
    chain.hold["s2"] = asyncio.Event()
    workflow = chain.build()
    first = asyncio.ensure_future(workflow.run("x", run_id="r"))
    await chain.reached("s2")
    for again in (workflow.run(run_id="r"), chain.build().run("x", run_id="r")):
        with pytest.raises(RunBusy, match="run 'r' is being driven by process") as caught:
            await again
        assert str(os.getpid()) in caught.value.owner
    chain.hold["s2"].set()
    assert (await first).get_outputs() == ["x"]
    assert (await workflow.run(run_id="r")).get_outputs() == ["x"]


async def test_the_head_continues_its_run() -> None:
    chain = Chain()
    chain.failing.add("s2")
    with pytest.raises(HandlerFailed):
        await chain.build().run("x", run_id="r")
    chain.failing.clear()
    head = (await chain.heads("r"))[-1]
    result = await chain.build().run(checkpoint_id=head.checkpoint_id)
    assert result.run_id == "r"
    assert chain.calls == {"s1": 1, "s2": 2, "s3": 1}


async def test_an_older_checkpoint_starts_a_new_run_with_that_lineage_executing_afresh() -> None:
    chain = Chain()
    await chain.build().run("x", run_id="r")
    kept = await chain.heads("r")
    result = await chain.build().run(checkpoint_id=kept[1].checkpoint_id, run_id="fork")
    assert chain.calls == {"s1": 1, "s2": 2, "s3": 2}
    assert result.run_id == "fork"
    forked = await chain.heads("fork")
    assert [c.previous_checkpoint_id for c in forked] == [
        kept[1].checkpoint_id,
        *(c.checkpoint_id for c in forked[:-1]),
    ]
    assert [c.iteration_count for c in forked] == [1, 2, 3]
    assert not {c.checkpoint_id for c in forked} & {c.checkpoint_id for c in kept}
    assert [c.checkpoint_id for c in await chain.heads("r")] == [c.checkpoint_id for c in kept]


async def test_a_new_run_from_an_older_checkpoint_has_the_outputs_from_before_it() -> None:
    @executor(id="loop")
    async def loop(message: int, ctx: Ctx) -> None:
        await ctx.yield_output(message)
        if message < 3:
            await ctx.send_message(message + 1)

    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=loop, checkpoint_storage=storage).add_edge(loop, loop).build()
    await workflow.run(1, run_id="r")
    second = (await storage.list_checkpoint_ids(run_id="r"))[2]
    result = await workflow.run(checkpoint_id=second)
    assert result.get_outputs() == [1, 2, 3]
    third = (await storage.list_checkpoint_ids(run_id=result.run_id))[0]
    again = await workflow.run(checkpoint_id=third)
    assert again.get_outputs() == [1, 2, 3]
    assert again.run_id not in ("r", result.run_id)


async def test_a_fork_of_a_failed_checkpoint_is_a_run_in_progress() -> None:
    chain = Chain()
    chain.failing.add("s2")
    with pytest.raises(HandlerFailed):
        await chain.build().run("x", run_id="r")
    failed = (await chain.heads("r"))[-1]
    chain.failing.clear()
    await chain.build().run(checkpoint_id=failed.checkpoint_id, run_id="fork")
    assert [c.status for c in await chain.heads("fork")] == [
        WorkflowRunState.IN_PROGRESS,
        WorkflowRunState.IN_PROGRESS,
        WorkflowRunState.IDLE,
    ]
    assert chain.calls == {"s1": 1, "s2": 2, "s3": 1}


async def test_the_name_of_a_fork_can_be_given_and_asked_for_again() -> None:
    chain = Chain()
    await chain.build().run("x", run_id="r")
    first, second, *_ = await chain.heads("r")
    chain.failing.add("s3")
    with pytest.raises(HandlerFailed):
        await chain.build().run(checkpoint_id=second.checkpoint_id, run_id="fork")
    chain.failing.clear()
    await chain.build().run(checkpoint_id=second.checkpoint_id, run_id="fork")
    assert chain.calls == {"s1": 1, "s2": 2, "s3": 3}
    with pytest.raises(RunError, match="'fork' is stored already, and it was not forked from"):
        await chain.build().run(checkpoint_id=first.checkpoint_id, run_id="fork")
    with pytest.raises(RunError, match="is not the head of run 'r'"):
        await chain.build().run(checkpoint_id=first.checkpoint_id, run_id="r")


@pytest.mark.parametrize("by", ["run_id", "checkpoint_id", "input"])
async def test_a_graph_without_what_the_run_needs_is_refused_in_words(by: str) -> None:
    chain = Chain(3)
    chain.failing.add("s3")
    with pytest.raises(HandlerFailed):
        await chain.build().run("x", run_id="r")
    before = await chain.heads("r")
    how: dict[str, dict[str, Any]] = {
        "run_id": {"run_id": "r"},
        "checkpoint_id": {"checkpoint_id": before[-1].checkpoint_id},
    }
    shorter = Chain(2, chain.storage)
    with pytest.raises(GraphChanged, match="cannot continue with this code: executor 's3' was removed") as caught:
        await shorter.build().run(**how.get(by, {"message": "x", "run_id": "r"}))
    assert caught.value.differences == ("executor 's3' was removed, but a message from 's2' is in flight to it",)
    assert shorter.calls == {}
    assert [one.number for one in await chain.heads("r")] == [one.number for one in before]


# --- streams ------------------------------------------------------------------------------------------------------


async def test_a_stream_is_iterated_and_then_awaited() -> None:
    stream = Chain().build().run("x", stream=True)
    told = [event async for event in stream]
    result = await stream
    assert [e.type for e in told if e.type not in ("started", "status", "checkpoint")] == [e.type for e in result]
    assert result.get_outputs() == ["x"]
    assert await stream == result


async def test_a_stream_is_only_awaited() -> None:
    assert (await Chain().build().run("x", stream=True)).get_outputs() == ["x"]


async def test_a_stream_awaited_inside_its_own_loop_goes_to_the_end_and_the_loop_misses_nothing() -> None:
    stream, told, result = Chain().build().run("x", stream=True), [], None
    async for event in stream:
        told.append(event.type)
        if result is None:
            result = await stream
    assert result is not None
    assert result.get_outputs() == ["x"]
    assert told.count("executor_completed") == 3
    assert told[-1] == "status"


async def test_a_stream_that_is_not_read_does_not_run() -> None:
    chain = Chain()
    stream = chain.build().run("x", stream=True, run_id="r")
    await asyncio.sleep(0.01)
    assert chain.calls == {}
    assert stream.run_id is None


async def test_a_stream_is_iterated_once() -> None:
    stream = Chain().build().run("x", stream=True)
    async for _ in stream:
        pass
    with pytest.raises(RuntimeError, match="read already"):
        aiter(stream)


async def test_the_error_of_a_run_comes_out_of_the_loop_and_of_the_await() -> None:
    chain = Chain()
    chain.failing.add("s1")
    stream = chain.build().run("x", stream=True)
    with pytest.raises(HandlerFailed):
        async for _ in stream:
            pass
    with pytest.raises(HandlerFailed):
        await stream


Leave = Callable[[Any, Callable[[WorkflowEvent], bool]], Any]


async def by_break(stream: Any, now: Callable[[WorkflowEvent], bool]) -> None:
    async for event in stream:
        if now(event):
            break


async def by_exception(stream: Any, now: Callable[[WorkflowEvent], bool]) -> None:
    with contextlib.suppress(LookupError):
        async for event in stream:
            if now(event):
                raise LookupError


async def by_cancelled_task(stream: Any, now: Callable[[WorkflowEvent], bool]) -> None:
    reached = asyncio.Event()

    async def read() -> None:
        async for event in stream:
            if now(event):
                reached.set()
                await asyncio.sleep(60)

    task = asyncio.ensure_future(read())
    await reached.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def by_aclose(stream: Any, now: Callable[[WorkflowEvent], bool]) -> None:
    async for event in stream:
        if now(event):
            await stream.aclose()


async def by_aclose_of_the_iterator(stream: Any, now: Callable[[WorkflowEvent], bool]) -> None:
    iterator = aiter(stream)
    while not now(await anext(iterator)):
        pass
    await iterator.aclose()


async def by_context(stream: Any, now: Callable[[WorkflowEvent], bool]) -> None:
    async with stream:
        iterator = aiter(stream)
        while not now(await anext(iterator)):
            pass


async def by_dropping(stream: Any, now: Callable[[WorkflowEvent], bool]) -> None:
    iterator = aiter(stream)
    while not now(await anext(iterator)):
        pass
    del iterator, stream


WAYS: list[Leave] = [
    by_break,
    by_exception,
    by_cancelled_task,
    by_aclose,
    by_aclose_of_the_iterator,
    by_context,
    by_dropping,
]


@pytest.fixture(params=["memory", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return InMemoryCheckpointStorage() if request.param == "memory" else SQLiteCheckpointStorage(tmp_path / "runs.db")


@pytest.mark.parametrize("keep", [False, True], ids=["dropped", "variable kept"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("moment", ["started", "executor_invoked", "superstep_completed", "checkpoint"])
async def test_a_stream_left_early_stops_at_the_last_commit_and_is_resumed_at_once(
    way: Leave, moment: str, keep: bool, storage: Any
) -> None:
    chain = Chain(3, storage)
    workflow = chain.build()
    told: list[WorkflowEvent] = []

    def now(event: WorkflowEvent) -> bool:
        told.append(event)
        return event.type == moment and (moment in ("started", "executor_invoked") or event.iteration == 2)

    streams = [workflow.run("x", stream=True, run_id="r")]
    await way(streams[0] if keep else streams.pop(), now)
    resumed = workflow.run(run_id="r", stream=True)
    opening = [e async for e in resumed]
    seen = await storage.list_checkpoints(run_id="r")
    assert WorkflowRunState.CANCELLED not in {c.status for c in seen}
    committed = [e for e in told if e.type == "superstep_completed"]
    begun = next(e.iteration for e in opening if e.type == "superstep_started")
    assert begun == (committed[-1].iteration or 0) + 1 if committed else begun == 1
    assert (await resumed).get_outputs() == ["x"]
    assert [c.iteration_count for c in seen] == [0, 1, 2, 3]
    for id in [f"s{n}" for n in range(1, (begun or 0))]:
        assert chain.calls[id] == 1
    if moment != "executor_invoked":
        assert chain.calls == {"s1": 1, "s2": 1, "s3": 1}
    assert claims._RELEASES == {}
    if keep:
        with pytest.raises(RunError, match=r"left before the run ended; resume it with run\(run_id='r'\)"):
            await streams[0]
    await storage.close()


async def test_a_handler_that_had_finished_when_the_stream_was_left_is_not_run_again() -> None:
    chain = Chain(2)
    async for event in chain.build().run("x", stream=True, run_id="r"):
        if event.type == "executor_invoked":
            await asyncio.sleep(0.01)  # it finishes meanwhile; its superstep is not committed
            break
    assert (await chain.build().run(run_id="r")).get_outputs() == ["x"]
    assert chain.calls == {"s1": 1, "s2": 1}


async def test_handlers_of_a_stream_that_is_left_have_stopped_before_the_run_goes_on() -> None:
    chain = Chain(1)
    chain.hold["s1"] = asyncio.Event()
    async for event in chain.build().run("x", stream=True, run_id="r"):
        if event.type == "executor_invoked":
            await asyncio.sleep(0.001)
            break
    hold, chain.hold = chain.hold, {}
    await chain.build().run(run_id="r")
    assert chain.cleaned == ["s1"]
    assert not hold["s1"].is_set()


async def test_a_stream_left_while_another_task_waits_for_its_next_event_stops_at_once() -> None:
    chain = Chain(1)
    chain.hold["s1"] = asyncio.Event()
    stream = chain.build().run("x", stream=True, run_id="r")

    async def read() -> list[str]:
        return [event.type async for event in stream]

    reader = asyncio.ensure_future(read())
    await chain.reached("s1")
    await asyncio.wait_for(stream.aclose(), 5)
    assert (await reader)[-1] == "executor_invoked"
    chain.hold.clear()
    assert (await chain.build().run(run_id="r")).get_outputs() == ["x"]


async def test_a_run_whose_task_is_cancelled_is_left_and_not_cancelled() -> None:
    chain = Chain(2)
    chain.hold["s2"] = asyncio.Event()
    task = asyncio.ensure_future(chain.build().run("x", run_id="r"))
    await chain.reached("s2")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [c.status for c in await chain.heads("r")] == [WorkflowRunState.IN_PROGRESS] * 2
    chain.hold.clear()
    assert (await chain.build().run(run_id="r")).get_outputs() == ["x"]
    assert chain.calls == {"s1": 1, "s2": 2}


async def test_a_stream_left_in_the_middle_of_a_commit_is_left_after_it() -> None:
    """The task is cancelled while the store writes: the commit is finished, and the handler is not run again."""

    class Slow(MemoryStore):
        completes_writes = False

        async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
            writing.set()
            await asyncio.sleep(0.01)
            await super().append(record, effects)

    writing = asyncio.Event()
    chain = Chain(1, BuiltInStorage(Slow()))
    task = asyncio.ensure_future(chain.build().run("x", run_id="r"))
    for _ in range(2):  # the input, then the superstep
        await writing.wait()
        writing.clear()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [c.status for c in await chain.heads("r")] == [WorkflowRunState.IN_PROGRESS, WorkflowRunState.IDLE]
    assert (await chain.build().run(run_id="r")).get_outputs() == ["x"]
    assert chain.calls == {"s1": 1}


@pytest.mark.long
async def test_a_stream_dropped_to_the_garbage_collector_lets_the_run_go() -> None:
    chain = Chain(2)
    iterator = aiter(chain.build().run("x", stream=True, run_id="r"))
    await anext(iterator)
    cycle: list[Any] = [iterator]
    cycle.append(cycle)
    del iterator, cycle
    gc.collect()
    assert (await chain.build().run(run_id="r")).get_outputs() == ["x"]


def test_a_stream_left_in_a_loop_that_ends_is_resumed_in_the_next_loop(tmp_path: Path) -> None:
    chain = Chain(2, SQLiteCheckpointStorage(tmp_path / "runs.db"))

    async def leave() -> None:
        async for event in chain.build().run("x", stream=True, run_id="r"):
            if event.type == "superstep_completed":
                break

    asyncio.run(leave())
    assert chain.build().run_sync(run_id="r").get_outputs() == ["x"]
    assert chain.calls == {"s1": 1, "s2": 1}
    asyncio.run(chain.storage.close())
