"""What a stream shows: the run's own events; more on request; never nothing."""

from typing import Any

import pytest

from stepwell import (
    HandlerFailed,
    InMemoryCheckpointStorage,
    LatestOnly,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    executor,
)
from tests.engine.handle_samples import everything
from tests.support.nesting import Asker, Flag, Ok, alone, around

OUTPUTS = ("output", "intermediate")


def outputs(events: list[WorkflowEvent]) -> list[tuple[Any, bool]]:
    return [(event.data, event.replayed) for event in events if event.type in OUTPUTS]


def requests(events: list[WorkflowEvent]) -> list[tuple[Any, bool]]:
    return [(event.data.text, event.replayed) for event in events if event.type == "request_info"]


async def read(stream: Any) -> list[WorkflowEvent]:
    return [event async for event in stream]


def counting(storage: Any, broken: Flag | None = None) -> Workflow:
    """Yields 1, 2 and 3 in three supersteps; while it is broken, the third fails."""

    @executor
    async def first(n: int, ctx: WorkflowContext[int, int]) -> None:
        await ctx.yield_output(n)
        await ctx.send_message(n + 1)

    @executor
    async def second(n: int, ctx: WorkflowContext[int, int]) -> None:
        await ctx.yield_output(n)
        await ctx.send_message(n + 1)

    @executor
    async def third(n: int, ctx: WorkflowContext[int, int]) -> None:
        if broken:
            raise ValueError("broken")
        await ctx.yield_output(n)

    builder = WorkflowBuilder(
        name="counting",
        start_executor=first,
        checkpoint_storage=storage,
        output_from=[first, third],
        intermediate_output_from=[second],
    )
    return builder.add_chain([first, second, third]).build()


async def test_events_of_sub_workflows_are_shown_when_asked_for(everywhere: Any) -> None:
    storage = everywhere()
    workflow = around(alone(Asker()), storage)
    stream = workflow.run("a", stream=True, run_id="r")
    assert not [event for event in await read(stream) if event.path]
    # The result has them all the same.
    result = await stream
    assert {event.path for event in result} == {(), ("sub",)}
    shown = await read(workflow.run_streaming("b", nested=True))
    assert {(event.type, event.path) for event in shown} >= {
        ("output", ("sub",)),
        ("output", ()),
        ("started", ("sub",)),
    }
    assert not [event for event in await everything(workflow.start("c")) if event.path]
    assert [event for event in await everything(workflow.start("d"), nested=True) if event.path]
    await storage.close()


async def test_a_request_of_a_sub_workflow_is_emitted_once(everywhere: Any) -> None:
    storage = everywhere()
    workflow = around(alone(Asker()), storage)
    assert requests(await read(workflow.run("a", stream=True, run_id="r", nested=True))) == [("a", False)]
    assert requests(await read(workflow.run(run_id="r", stream=True, nested=True))) == [("a", True)]
    assert requests(await everything(workflow.attach("r"), nested=True)) == [("a", True)]
    await storage.close()


async def test_outputs_from_before_a_resume_are_shown_when_asked_for(everywhere: Any) -> None:
    storage, broken = everywhere(), Flag()
    for run_id in ("r", "s", "t"):
        with pytest.raises(HandlerFailed, match="broken"):
            await counting(storage, broken).run(1, run_id=run_id)
    broken.put_down()
    stream = counting(storage).run(run_id="r", stream=True)
    assert outputs(await read(stream)) == [(3, False)]
    # Results and histories keep them.
    assert outputs(await stream) == [(1, True), (2, True), (3, False)]
    assert (await stream).get_outputs() == [1, 3]
    shown = await read(counting(storage).run(run_id="s", stream=True, replay=True))
    assert outputs(shown) == [(1, True), (2, True), (3, False)]
    assert outputs(await counting(storage).run(run_id="t")) == [(1, True), (2, True), (3, False)]
    assert outputs(await storage.event_history("r")) == [(1, True), (2, True), (3, True)]
    await storage.close()


@pytest.mark.parametrize("options", [{}, {"retention": LatestOnly}])
async def test_a_stream_of_a_completed_run_has_its_outputs(everywhere: Any, options: Any) -> None:
    storage = everywhere(**options)
    workflow = counting(storage)
    await workflow.run(1, run_id="r")
    every = [(1, True), (2, True), (3, True)]
    assert outputs(await read(workflow.run(run_id="r", stream=True))) == every
    handle = workflow.attach("r")
    assert outputs(await everything(handle)) == every
    # With nothing new to show, too.
    last = (await handle.checkpoints())[-1]
    again = await everything(handle, after=last)
    assert outputs(again) == every
    assert (again[-1].type, again[-1].state, again[-1].commit) == ("status", "IDLE", last.number)
    # A fork of it is completed already, and so are its outputs.
    stream = workflow.run(checkpoint_id=last.checkpoint_id, run_id="fork", stream=True)
    assert outputs(await read(stream)) == every
    assert outputs(await everything(workflow.attach("fork"))) == every
    await storage.close()


async def test_a_completed_run_that_gets_more_to_do_is_not_repeated() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = counting(storage)
    await workflow.run(1, run_id="r")
    handle = workflow.attach("r", drive=True)
    numbers = [event.commit for event in await everything(handle) if event.type == "output"]
    await handle.send(11)
    assert outputs(await everything(handle, after=max(filter(None, numbers)))) == [
        (11, False),
        (12, False),
        (13, False),
    ]


async def test_a_stream_of_a_run_that_failed_without_anything_new_says_so(everywhere: Any) -> None:
    storage = everywhere()
    workflow = counting(storage, Flag())
    with pytest.raises(HandlerFailed, match="broken"):
        await workflow.run(1, run_id="r")
    handle = workflow.attach("r")
    last = (await handle.checkpoints())[-1]
    assert [(event.type, event.state) for event in await everything(handle, after=last)] == [("status", "FAILED")]
    await storage.close()


async def test_open_requests_are_always_shown(everywhere: Any) -> None:
    storage = everywhere()
    workflow = alone(Asker(), checkpoint_storage=storage)
    first = await workflow.run("a", run_id="r")
    assert requests(await read(workflow.run(run_id="r", stream=True))) == [("a", True)]
    handle = workflow.attach("r")
    assert requests(await everything(handle)) == [("a", True)]
    last = (await handle.checkpoints())[-1]
    again = await everything(handle, after=last)
    assert requests(again) == [("a", True)]
    assert [event.type for event in again] == ["request_info", "status"]
    # A fork has them open too, although its own history does not say when they were made.
    await workflow.run(checkpoint_id=last.checkpoint_id, run_id="fork")
    assert requests(await everything(workflow.attach("fork"))) == [("a", True)]
    # Answered in the same call, it is not open any more.
    (event,) = first.get_request_info_events()
    shown = await read(workflow.run(run_id="r", responses={event.request_id: Ok(True)}, stream=True))
    assert requests(shown) == []
    await storage.close()


async def test_a_request_that_a_restore_opens_again_is_shown(everywhere: Any) -> None:
    storage = everywhere()
    workflow = alone(Asker(), checkpoint_storage=storage)
    await workflow.run("a", run_id="r")
    handle = workflow.attach("r", drive=True)
    waiting = (await handle.checkpoints())[-1]
    await handle.respond(
        {event.request_id: Ok(True) for event in await everything(handle) if event.type == "request_info"}
    )
    await handle.result()
    moved = await handle.restore(waiting)
    assert requests(await everything(handle, after=moved)) == [("a", True)]
    await storage.close()


async def test_with_direct_output_an_inner_output_is_shown_as_one_of_the_run() -> None:
    sub = WorkflowExecutor(alone(Asker()), "sub", allow_direct_output=True)
    shown = await read(alone(sub, "outer").run("a", stream=True))
    assert [(event.data, event.path) for event in shown if event.type == "output"] == [("saw a", ())]
