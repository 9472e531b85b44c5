"""A run is moved back to one of its checkpoints and goes on from there: what it did since is history, and no more."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    CheckpointInfo,
    CheckpointMissing,
    Executor,
    GraphChanged,
    HandlerFailed,
    InMemoryCheckpointStorage,
    ResponseRejected,
    RunBusy,
    RunError,
    UnknownRequest,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    handler,
    persistent,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.workflows import RunHandle
from tests.support.held import PLACES, Script, asking, counting, durable, in_background, sleeping, storage_at

IDLE, WAITING = WorkflowRunState.IDLE, WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
CANCELLED = WorkflowRunState.CANCELLED


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each kind of storage, one of six methods, and none at all."""
    return storage_at(request.param, tmp_path)


@pytest.fixture(params=["sqlite", "file"])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The storage as two programs have it: nothing but the disk is common to them."""
    return storage_at(request.param, tmp_path), storage_at(request.param, tmp_path)


async def at(handle: RunHandle, number: int) -> CheckpointInfo:
    return next(info for info in await handle.checkpoints() if info.number == number)


async def everything(handle: RunHandle, **options: Any) -> list[Any]:
    return [event async for event in handle.events(**options)]


# ------------------------------------------------------------------------------------------- going back


async def test_from_each_checkpoint_in_turn_what_came_after_it_is_done_again_and_ends_the_same(place: Any) -> None:
    script = Script()
    handle = counting(place, script).start(1, run_id="r")
    await handle.result()
    for info in await handle.checkpoints():
        script.ran.clear()
        await handle.restore(info)
        result = await handle.result()
        assert (result.get_outputs(), result.get_final_state()) == ([1, 2, 3, 4], IDLE)
        assert script.ran == [1, 2, 3, 4][info.number :]
        assert [event.iteration for event in result if event.type == "superstep_completed"] == [1, 2, 3, 4]
    ids = [info.checkpoint_id for info in await handle.checkpoints()]
    assert len(set(ids)) == len(ids) == 5 + 5 + 4 + 3 + 2 + 1
    assert len(set(script.keys)) == len(script.keys)  # no key is given twice, though the same work is done again


async def test_a_checkpoint_may_be_given_by_its_id(place: Any) -> None:
    script = Script()
    handle = counting(place, script).start(1, run_id="r")
    await handle.result()
    script.ran.clear()
    here = await handle.restore((await at(handle, 2)).checkpoint_id)
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]
    assert (here.run_id, here.number, script.ran) == ("r", 5, [3, 4])


async def test_an_id_that_is_not_of_this_run_is_refused(place: Any) -> None:
    workflow = counting(place, Script())
    handle, other = workflow.start(1, run_id="r"), workflow.start(1, run_id="other")
    await handle.result()
    await other.result()
    foreign = (await at(other, 1)).checkpoint_id
    with pytest.raises(CheckpointMissing, match=f"{foreign!r} belongs to run 'other', not to 'r'"):
        await handle.restore(foreign)
    with pytest.raises(CheckpointMissing, match="'nobody' of run 'r' is not stored"):
        await handle.restore("nobody")
    with pytest.raises(TypeError, match="a CheckpointInfo or an id, not a int"):
        await handle.restore(7)  # type: ignore[arg-type]
    assert len(await handle.checkpoints()) == 5


async def test_moving_back_gives_where_the_run_is_now_and_events_go_on_from_there(place: Any) -> None:
    handle = counting(place, Script()).start(1, run_id="r")
    await handle.result()
    here = await handle.restore(await at(handle, 2))
    assert (here.run_id, here.number) == ("r", 5)
    assert here in await handle.checkpoints()
    told = await everything(handle, after=here)
    assert [event.data for event in told if event.type == "output"] == [3, 4]


async def test_that_a_run_was_moved_back_is_part_of_its_history_and_so_is_what_it_did_before(place: Any) -> None:
    handle = counting(place, Script()).start(1, run_id="r")
    before = durable(await everything(handle))
    await handle.restore(await at(handle, 2))
    await handle.result()
    told = durable(await everything(handle))
    assert told[: len(before)] == before
    assert told[len(before)] == (5, "restored", None, 2)
    assert [event[3] for event in told if event[1] == "output"] == [1, 2, 3, 4, 3, 4]
    if isinstance(place, BuiltInStorage):
        assert durable(await place.event_history("r")) == told


async def test_the_messages_that_led_to_a_checkpoint_are_not_those_that_led_elsewhere(storage: Any) -> None:
    script = Script()
    workflow = counting(storage, script)
    handle = workflow.start(1, run_id="r")
    await handle.result()
    undone = (await handle.checkpoints())[-1]
    await handle.restore(await at(handle, 2))
    await handle.result()

    async def exchanged(info: CheckpointInfo) -> list[Any]:
        return [message.data for message in await storage.message_history(info.checkpoint_id)]

    assert await exchanged((await handle.checkpoints())[-1]) == [1, 2, 3, 4]
    assert await exchanged(undone) == [1, 2, 3, 4]
    await handle.restore(undone)
    assert await exchanged((await handle.checkpoints())[-1]) == [1, 2, 3, 4]
    await workflow.run(checkpoint_id=(await at(handle, 6)).checkpoint_id, run_id="fork")  # after the first way back
    head = await storage.get_latest(run_id="fork")
    assert [m.data for m in await storage.message_history(head.checkpoint_id)] == [1, 2, 3, 4]


async def test_state_and_what_executors_keep_are_as_they_were(place: Any) -> None:
    class Keeper(Executor):
        seen = persistent(0)

        @handler
        async def keep(self, n: int, ctx: WorkflowContext[int, str]) -> None:
            self.seen += n
            ctx.append_state("log", n)
            await ctx.yield_output(f"{self.seen} after {ctx.get_state('log')}")
            if n < 3:
                await ctx.send_message(n + 1)

    keeper = Keeper("keeper")
    builder = WorkflowBuilder(name="w", start_executor=keeper, checkpoint_storage=place)
    handle = builder.add_edge(keeper, keeper).build().start(1, run_id="r")
    expected = ["1 after [1]", "3 after [1, 2]", "6 after [1, 2, 3]"]
    assert (await handle.result()).get_outputs() == expected
    await handle.restore(await at(handle, 1))
    assert (await handle.result()).get_outputs() == expected


async def test_back_and_forth_the_outputs_are_those_of_the_way_that_led_there(place: Any) -> None:
    """Also forwards again, to what had been undone."""
    script = Script()
    workflow = counting(place, script)
    handle = workflow.start(1, run_id="r")
    await handle.result()
    await handle.restore(await at(handle, 1))
    await handle.result()
    await handle.restore(await at(handle, 3))  # of the first way
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]
    await handle.restore(await at(handle, 6))  # of the second
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]
    await handle.restore(await at(handle, 4))  # the end of the first
    result = await handle.result()
    assert (result.get_outputs(), result.get_final_state()) == ([1, 2, 3, 4], IDLE)
    if place is not None:
        assert (await workflow.run(run_id="r")).get_outputs() == [1, 2, 3, 4]


async def test_a_run_that_is_done_there_stays_done(place: Any) -> None:
    script = Script()
    handle = counting(place, script).start(1, run_id="r")
    await handle.result()
    await handle.send(4)
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4, 4]
    await handle.restore(await at(handle, 4))
    result = await handle.result()
    assert (result.get_outputs(), result.get_final_state()) == ([1, 2, 3, 4], IDLE)
    assert script.ran == [1, 2, 3, 4, 4]


async def test_a_fork_of_what_was_undone_and_one_of_what_was_not_have_their_own_past(place: Any) -> None:
    if place is None:
        pytest.skip("a run can be forked only from where it is stored")
    workflow = counting(place, Script())
    handle = workflow.start(1, run_id="r")
    await handle.result()
    await handle.restore(await at(handle, 1))
    await handle.result()
    for number in (3, 6):
        info = await at(handle, number)
        result = await workflow.run(checkpoint_id=info.checkpoint_id, run_id=f"fork {number}")
        assert result.get_outputs() == [1, 2, 3, 4]
        assert (await workflow.attach(f"fork {number}", drive=True).result()).get_outputs() == [1, 2, 3, 4]


async def test_a_run_that_is_copied_elsewhere_takes_with_it_that_it_was_moved_back(storage: Any) -> None:
    handle = counting(storage, Script()).start(1, run_id="r")
    await handle.result()
    await handle.restore(await at(handle, 2))
    await handle.result()
    elsewhere = InMemoryCheckpointStorage()
    for checkpoint in await storage.list_checkpoints(run_id="r"):
        await elsewhere.save(checkpoint)
    assert (await counting(elsewhere, Script()).run(run_id="r")).get_outputs() == [1, 2, 3, 4]


# ----------------------------------------------------------------------------------------- live runs


async def test_a_run_in_the_middle_of_a_superstep_is_moved_back_and_those_who_wait_for_it_wait_on(place: Any) -> None:
    script = Script()
    workflow = counting(place, script)
    gate = script.hold(3)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    other = workflow.attach("r", drive=True)
    async with in_background(asyncio.gather(handle.result(), other.result(), everything(other))) as waiting:
        await asyncio.sleep(0)
        await handle.restore(await at(handle, 1))
        assert script.cleaned == [3]
        script.let_go()
        one, two, told = await waiting
    assert one.get_outputs() == two.get_outputs() == [1, 2, 3, 4]
    assert [event.data for event in told if event.type in ("output", "restored")] == [1, 2, 1, 2, 3, 4]
    assert durable(told) == durable(await everything(handle))
    assert script.ran == [1, 2, 3, 2, 3, 4]


async def test_any_handle_of_the_program_moves_it_back(place: Any) -> None:
    script = Script()
    workflow = counting(place, script)
    gate = script.hold(3)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    async with in_background(handle.result()) as waiting:
        other = workflow.attach("r", drive=True)
        await other.restore(await at(other, 0))
        script.let_go()
        assert (await waiting).get_outputs() == [1, 2, 3, 4]
    assert script.ran == [1, 2, 3, 1, 2, 3, 4]


async def test_moved_back_by_several_at_once_it_is_moved_back_each_time(place: Any) -> None:
    workflow = counting(place, Script())
    handle = workflow.start(1, run_id="r")
    await handle.result()
    first = await at(handle, 1)
    handles = [workflow.attach("r", drive=True) for _ in range(4)]
    await asyncio.gather(*(one.restore(first) for one in handles))
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]
    told = [event.type for event in await everything(handle)]
    assert told.count("restored") == 4


async def test_started_again_while_it_is_moved_back_it_is_moved_back_and_both_hold_it(place: Any) -> None:
    workflow = counting(place, Script())
    handle = workflow.start(1, run_id="r")
    await handle.result()
    first = await at(handle, 1)
    again = workflow.start(1, run_id="r")  # has not taken its first step when it is stopped
    await handle.restore(first)
    assert (await again.result()).get_outputs() == (await handle.result()).get_outputs() == [1, 2, 3, 4]
    assert [event.type for event in await everything(again)].count("restored") == 1


async def test_a_failed_run_and_a_cancelled_one_go_on_from_where_they_are_moved_to(place: Any) -> None:
    script = Script()
    script.broken = {3}
    handle = counting(place, script).start(1, run_id="r")
    with pytest.raises(HandlerFailed):
        await handle.result()
    script.broken = set()
    await handle.restore(await at(handle, 1))
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]
    gate = script.hold(3)
    await handle.restore(await at(handle, 1))
    await gate.reached.wait()
    await handle.cancel()
    script.let_go()
    await handle.restore((await handle.checkpoints())[-1])  # the very commit that says it was cancelled
    result = await handle.result()
    assert (result.get_outputs(), result.get_final_state()) == ([1, 2, 3, 4], IDLE)


async def test_what_finished_in_the_superstep_that_is_left_is_done_again(storage: Any) -> None:
    ran, held = list[str](), Script()

    @executor(id="start")
    async def start(n: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(n)

    @executor(id="quick")
    async def quick(n: int, ctx: WorkflowContext[None, str]) -> None:
        ran.append(ctx.idempotency_key)
        await ctx.yield_output("quick")

    @executor(id="slow")
    async def slow(n: int, ctx: WorkflowContext[None, str]) -> None:
        await held.act("slow", ctx)
        await ctx.yield_output("slow")

    builder = WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=storage)
    workflow = builder.add_fan_out_edges(start, [quick, slow]).build()
    gate = held.hold("slow")
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    await handle.restore(await at(handle, 1))
    held.let_go()
    assert (await handle.result()).get_outputs() == ["quick", "slow"]
    assert len(ran) == len(set(ran)) == 2


async def test_a_run_that_sleeps_sleeps_again_from_the_beginning(storage: Any, later: Any) -> None:
    script = Script()
    handle = sleeping(storage, script, timedelta(hours=1)).start("morning", run_id="r")
    async for event in handle.events():
        if event.type == "sleeping":
            break
    parked = (await handle.checkpoints())[-1]
    later(minutes=30)
    await handle.restore(parked)
    async for again in handle.events(after=parked):
        if again.type == "sleeping":
            break
    assert again.data - event.data > timedelta(minutes=20)
    assert [run.until for run in await storage.ready_runs(by=again.data)] == [again.data.isoformat()]
    later(minutes=61)
    result = await handle.result()
    assert (result.get_outputs(), result.wakes_at) == (["morning"], None)
    assert script.ran == ["to bed", "to bed", "to bed", "up"]


# ------------------------------------------------------------------------------------------ questions


async def test_a_question_that_was_answered_is_open_again_and_the_old_answer_does_not_count(place: Any) -> None:
    script = Script()
    workflow = asking(place, script)
    handle = workflow.start("a", run_id="r")
    await handle.result()
    asked = (await handle.checkpoints())[-1]
    await handle.respond({"a": True})
    assert (await handle.result()).get_outputs() == ["done a"]
    for _ in range(2):
        await handle.restore(asked)
        result = await handle.result()
        assert (result.get_outputs(), result.get_final_state()) == ([], WAITING)
        assert [event.request_id for event in result.get_request_info_events()] == ["a"]
        if isinstance(place, BuiltInStorage):
            assert [one.request_id for one in await place.pending_requests(run_id="r")] == ["a"]
        await handle.respond({"a": False})
        result = await handle.result()
        assert [event.request_id for event in result.get_request_info_events()] == ["a?"]
    await handle.respond({"a?": True})
    assert (await handle.result()).get_outputs() == ["done a?"]
    assert script.ran == ["a", "a True", "a False", "a False", "a? True"]


async def test_before_the_question_was_asked_nothing_is_open(storage: Any) -> None:
    script = Script()
    handle = asking(storage, script).start("a b", run_id="r")
    await handle.result()
    gate = script.hold("a b")
    await handle.restore(await at(handle, 0))
    await gate.reached.wait()
    assert await storage.pending_requests() == []
    with pytest.raises(UnknownRequest):
        await handle.respond({"a": True})
    script.let_go()
    await handle.result()
    assert [one.request_id for one in await storage.pending_requests()] == ["a", "b"]


async def test_the_answer_that_was_taken_in_there_is_handled_again(place: Any) -> None:
    script = Script()
    handle = asking(place, script).start("a", run_id="r")
    await handle.result()
    await handle.respond({"a": True})
    await handle.result()
    await handle.restore(await at(handle, 2))  # the commit that took the answer in
    assert (await handle.result()).get_outputs() == ["done a"]
    assert script.ran == ["a", "a True", "a True"]


async def test_what_was_posted_before_it_was_moved_back_counts_no_more(place: Any) -> None:
    script = Script()
    workflow = asking(place, script)
    gate = script.hold(3)
    handle = workflow.start("and", run_id="r")
    await gate.reached.wait()
    await handle.respond({"and": False})
    await handle.send("x")
    await handle.restore(await at(handle, 1))
    script.let_go()
    result = await handle.result()
    assert [event.request_id for event in result.get_request_info_events()] == ["and"]
    await handle.respond({"and": True})
    assert (await handle.result()).get_outputs() == ["worked 3", "done and"]


async def test_whoever_answers_what_is_being_moved_back_is_told_and_the_answer_does_not_count(storage: Any) -> None:
    """The answer was checked against the run as it was, and is posted when that is no more."""
    script = Script()
    workflow = asking(storage, script)
    handle = workflow.start("a", run_id="r")
    await handle.result()
    asked = (await handle.checkpoints())[-1]
    moved, slow = asyncio.Event(), workflow.attach("r", drive=True)
    post = storage._store.send

    async def late(*given: Any, **named: Any) -> bool:
        await moved.wait()
        return bool(await post(*given, **named))

    storage._store.send = late
    async with in_background(slow.respond({"a": True})) as answering:
        await asyncio.sleep(0)
        await handle.restore(asked)
        moved.set()
        with pytest.raises(RunError, match="was moved back meanwhile"):
            await answering
    storage._store.send = post
    assert (await handle.result()).get_final_state() is WAITING
    await handle.respond({"a": False})
    await handle.result()
    assert script.ran == ["a", "a False"]


async def test_an_answer_to_the_run_as_it_was_is_still_refused_to_be_changed(storage: Any) -> None:
    handle = asking(storage, Script()).start("a", run_id="r")
    await handle.result()
    asked = (await handle.checkpoints())[-1]
    await handle.restore(asked)
    other = asking(storage, Script()).attach("r", drive=True)
    given = await asyncio.gather(handle.respond({"a": True}), other.respond({"a": False}), return_exceptions=True)
    assert sorted(type(one).__name__ for one in given) in (
        ["NoneType", ResponseRejected.__name__],
        ["NoneType", UnknownRequest.__name__],
    )


async def test_a_question_of_a_run_inside_is_asked_again_and_answered_for_itself(storage: Any) -> None:
    script = Script()
    inner = WorkflowExecutor(asking(None, script), "inner", allow_direct_output=True)
    workflow = WorkflowBuilder(name="outer", start_executor=inner, checkpoint_storage=storage).build()
    handle = workflow.start("a", run_id="r")
    await handle.result()
    asked = (await handle.checkpoints())[-1]
    await handle.respond({"a": True})
    assert (await handle.result()).get_outputs() == ["done a"]
    await handle.restore(asked)
    assert [e.request_id for e in (await handle.result()).get_request_info_events()] == ["a"]
    await handle.respond({"a": False})
    assert [e.request_id for e in (await handle.result()).get_request_info_events()] == ["a?"]
    await handle.respond({"a?": True})
    assert (await handle.result()).get_outputs() == ["done a?"]


# --------------------------------------------------------------------------------------- what is refused


async def test_a_checkpoint_that_is_not_one_of_the_run_is_refused_and_the_run_goes_on_undisturbed(place: Any) -> None:
    script = Script()
    workflow = counting(place, script)
    other = workflow.start(1, run_id="other")
    await other.result()
    gate = script.hold(3)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    with pytest.raises(CheckpointMissing, match="belongs to run 'other', not to 'r'"):
        await handle.restore(await at(other, 1))
    with pytest.raises(CheckpointMissing, match="'x' of run 'r' is not stored"):
        await handle.restore(CheckpointInfo("r", "x", 1))
    foreign = (await at(other, 1)).checkpoint_id
    with pytest.raises(CheckpointMissing):
        await handle.restore(CheckpointInfo("r", foreign, 1))
    script.let_go()
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]
    assert [event for event in await everything(handle) if event.type == "restored"] == []


async def test_a_run_that_another_program_drives_is_not_moved_back(programs: Any) -> None:
    script = Script()
    one, other = (counting(storage, script) for storage in programs)
    gate = script.hold(3)
    handle = one.start(1, run_id="r")
    await gate.reached.wait()
    outside = other.attach("r", drive=True)
    with pytest.raises(RunBusy, match="is being driven by process"):
        await outside.restore(await at(outside, 1))
    await outside.send(9)  # and what it posts is not forgotten over that
    with pytest.raises(RunBusy):
        await outside.restore(await at(outside, 1))
    script.let_go()
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4, 9]
    assert script.ran == [1, 2, 3, 4, 9]


async def test_a_run_that_somebody_awaits_is_not_moved_back(storage: Any) -> None:
    script = Script()
    workflow = counting(storage, script)
    gate = script.hold(3)
    async with in_background(workflow.run(1, run_id="r")) as running:
        await gate.reached.wait()
        handle = workflow.attach("r", drive=True)
        with pytest.raises(RunBusy):
            await handle.restore(await at(handle, 1))
        script.let_go()
        assert (await running).get_outputs() == [1, 2, 3, 4]


async def test_a_graph_that_has_changed_is_refused(storage: Any) -> None:
    handle = counting(storage, Script()).start(1, run_id="r")
    await handle.result()
    with pytest.raises(GraphChanged):
        await asking(storage, Script()).attach("r", drive=True).restore(await at(handle, 1))
    assert await handle.status() is IDLE
