"""A run is stopped on purpose, wherever it is driven; it goes on when somebody says so, and not before."""

from __future__ import annotations

import asyncio
import random
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    HandlerFailed,
    InMemoryCheckpointStorage,
    RunBusy,
    RunError,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
)
from stepwell.engine.events import watchers as watching
from stepwell.model.signal import ReceivedCancel
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import Owner
from stepwell.storage.signals import cancel_key, write_signal
from stepwell.stores.memory.store import MemoryStore
from tests.support.held import PLACES, Script, asking, counting, in_background, sleeping, storage_at
from tests.support.hurried import hurried

IDLE, WAITING = WorkflowRunState.IDLE, WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
CANCELLED, FAILED = WorkflowRunState.CANCELLED, WorkflowRunState.FAILED


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each kind of storage, one of six methods, and none at all."""
    return storage_at(request.param, tmp_path)


@pytest.fixture(params=["sqlite", "file"])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The storage as two programs have it: nothing but the disk is common to them."""
    return storage_at(request.param, tmp_path), storage_at(request.param, tmp_path)


async def letters(storage: Any, run_id: str) -> list[str]:
    return [signal.key for signal in await storage._store.pending_signals(run_id)]


async def wish(storage: Any, run_id: str, number: int, *, epoch: int = 0) -> None:
    """Leave the wish to stop, as a program does that dies right after."""
    assert await storage._store.send(run_id, cancel_key(epoch, number), write_signal(ReceivedCancel(number)))


# ---------------------------------------------------------------------------------- where it is driven


class SlowToRelease(MemoryStore):
    """Lets the loop turn many times before a run is let go of."""

    async def release(self, run_id: str, owner: Owner, *, stalls: bool = False) -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        await super().release(run_id, owner, stalls=stalls)


async def test_whoever_has_cancelled_a_run_can_resume_it_at_once() -> None:
    script = Script()
    workflow = counting(BuiltInStorage(SlowToRelease()), script)
    gate = script.hold(3)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    assert await handle.cancel() is CANCELLED
    script.let_go()
    assert (await workflow.run(run_id="r")).get_outputs() == [1, 2, 3, 4]


async def test_a_run_is_stopped_at_its_last_commit_and_goes_on_when_it_is_resumed(place: Any) -> None:
    script = Script()
    workflow = counting(place, script)
    gate = script.hold(3)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    assert await handle.cancel() is CANCELLED
    assert script.cleaned == [3]
    assert await handle.status() is CANCELLED
    result = await handle.result()
    assert (result.get_outputs(), result.get_final_state()) == ([1, 2], CANCELLED)
    script.let_go()
    resumed = await workflow.start(1, run_id="r").result()
    assert (resumed.get_outputs(), resumed.get_final_state()) == ([1, 2, 3, 4], IDLE)
    assert script.ran == [1, 2, 3, 3, 4]


async def test_any_handle_of_the_program_stops_it(place: Any) -> None:
    script = Script()
    workflow = counting(place, script)
    gate = script.hold(2)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    async with in_background(handle.result()) as waiting:
        assert await workflow.attach("r", drive=True).cancel() is CANCELLED
        assert (await waiting).get_final_state() is CANCELLED
    events = [event async for event in handle.events()]
    assert (events[-1].type, events[-1].state) == ("status", CANCELLED)


async def test_a_run_that_another_task_awaits_is_stopped_and_that_task_goes_on(storage: Any) -> None:
    script = Script()
    workflow = counting(storage, script)
    gate = script.hold(2)

    async def caller() -> tuple[Any, str]:
        result = await workflow.run(1, run_id="r")
        await asyncio.sleep(0)  # it is not being cancelled itself
        return result.get_final_state(), "went on"

    async with in_background(caller()) as calling:
        await gate.reached.wait()
        assert await workflow.attach("r", drive=True).cancel() is CANCELLED
        assert await calling == (CANCELLED, "went on")
    assert script.cleaned == [2]
    script.let_go()
    assert (await workflow.run(run_id="r")).get_outputs() == [1, 2, 3, 4]


async def test_a_run_that_is_streamed_is_stopped_also_by_whoever_reads_the_stream(storage: Any) -> None:
    script = Script()
    workflow = counting(storage, script)
    told = []
    async for event in workflow.run(1, run_id="r", stream=True):
        told.append((event.type, event.state))
        if event.type == "output" and event.data == 2:
            assert await workflow.attach("r", drive=True).cancel() is CANCELLED
    assert told[-1] == ("status", CANCELLED)
    assert script.ran == [1, 2]


async def test_a_run_that_is_driven_on_another_event_loop_is_stopped(storage: Any) -> None:
    script = Script()
    workflow = counting(storage, script)
    began, result = threading.Event(), list[Any]()

    def elsewhere() -> None:
        async def drive() -> None:
            gate = script.hold(2)
            handle = workflow.start(1, run_id="r")
            await gate.reached.wait()
            began.set()
            result.append((await handle.result()).get_final_state())

        asyncio.run(drive())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(began.wait)
    assert await workflow.attach("r", drive=True).cancel() is CANCELLED
    await asyncio.to_thread(thread.join)
    assert (result, script.cleaned) == ([CANCELLED], [2])


@pytest.mark.long
async def test_a_run_that_another_program_drives_hears_of_it(programs: Any) -> None:
    script = Script()
    one, other = (counting(storage, script) for storage in programs)
    gate = script.hold(2)
    handle = one.start(1, run_id="r")
    await gate.reached.wait()
    async with in_background(handle.result()) as waiting:
        assert await other.attach("r", drive=True).cancel() is CANCELLED
        assert (await waiting).get_final_state() is CANCELLED
    assert script.cleaned == [2]
    assert await letters(programs[0], "r") == []
    script.let_go()
    assert (await other.run(run_id="r")).get_outputs() == [1, 2, 3, 4]
    assert script.ran == [1, 2, 2, 3, 4]


@pytest.mark.long
async def test_a_run_that_another_program_awaits_hears_of_it_too(programs: Any) -> None:
    script = Script()
    one, other = (counting(storage, script) for storage in programs)
    gate = script.hold(2)
    async with in_background(one.run(1, run_id="r")) as running:
        await gate.reached.wait()
        assert await other.attach("r", drive=True).cancel() is CANCELLED
        assert (await running).get_final_state() is CANCELLED


@pytest.mark.long
async def test_a_run_that_another_program_has_resumed_after_it_was_stopped_is_stopped_again(programs: Any) -> None:
    """What is stored still says CANCELLED, and yet it runs."""
    script = Script()
    one, other = (counting(storage, script) for storage in programs)
    gate = script.hold(2)
    handle = one.start(1, run_id="r")
    await gate.reached.wait()
    await handle.cancel()
    gate.reached.clear()
    resumed = one.start(1, run_id="r")
    await gate.reached.wait()
    async with in_background(resumed.result()) as waiting:
        assert await other.attach("r", drive=True).cancel() is CANCELLED
        assert (await waiting).get_final_state() is CANCELLED
    assert script.cleaned == [2, 2]


# -------------------------------------------------------------------------------------- where it stands


async def test_a_run_that_waits_is_stopped_and_asks_again_when_it_is_resumed(place: Any) -> None:
    workflow = asking(place, Script())
    handle = workflow.start("a", run_id="r")
    await handle.result()
    assert await handle.cancel() is CANCELLED
    with pytest.raises(RunError, match=r"run 'r' is cancelled; resume it with run\(run_id=...\) before you answer it"):
        await handle.respond({"a": True})
    with pytest.raises(RunError, match="before you send to it"):
        await handle.send("b")
    resumed = workflow.start("a", run_id="r")
    result = await resumed.result()
    assert [event.request_id for event in result.get_request_info_events()] == ["a"]
    assert result.get_final_state() is WAITING
    await resumed.respond({"a": True})
    assert (await handle.result()).get_outputs() == ["done a"]


async def test_a_cancelled_run_that_waited_is_answered_by_resuming_it(storage: Any) -> None:
    workflow = asking(storage, Script())
    handle = workflow.start("a", run_id="r")
    await handle.result()
    await handle.cancel()
    assert await storage.pending_requests() == []
    result = await workflow.run(run_id="r", responses={"a": True})
    assert (result.get_outputs(), result.get_final_state()) == (["done a"], IDLE)


async def test_an_answer_that_was_there_when_it_was_stopped_is_taken_in_when_it_goes_on(place: Any) -> None:
    script = Script()
    workflow = asking(place, script)
    gate = script.hold(3)
    handle = workflow.start("and", run_id="r")
    await gate.reached.wait()
    await handle.respond({"and": True})
    assert await handle.cancel() is CANCELLED
    script.let_go()
    assert (await workflow.start("and", run_id="r").result()).get_outputs() == ["worked 3", "done and"]
    assert script.ran == ["and", 3, 3, "and True"]


async def test_what_was_sent_does_not_make_a_cancelled_run_go_on(place: Any) -> None:
    script = Script()
    workflow = counting(place, script)
    gate = script.hold(2)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    await handle.send(30)
    await workflow.attach("r", drive=True).send(31)
    assert await handle.cancel() is CANCELLED
    script.let_go()
    for holder in (handle, workflow.attach("r", drive=True)):
        assert (await holder.result()).get_final_state() is CANCELLED
    assert script.ran == [1, 2]
    assert (await workflow.start(1, run_id="r").result()).get_outputs() == [1, 2, 3, 4, 30, 31]


async def test_a_run_that_sleeps_is_stopped_and_sleeps_on_when_it_is_resumed(storage: Any, later: Any) -> None:
    script = Script()
    workflow = sleeping(storage, script, timedelta(hours=1))
    handle = workflow.start("morning", run_id="r")
    async for event in handle.events():
        if event.type == "sleeping":
            break
    assert await handle.cancel() is CANCELLED
    assert (await handle.result()).wakes_at is None
    assert await storage.ready_runs(by=event.data + timedelta(days=1)) == []
    asleep = await workflow.run(run_id="r")
    assert asleep.wakes_at == event.data  # the same hour, not another one
    later(minutes=61)
    assert (await workflow.run(run_id="r")).get_outputs() == ["morning"]


def test_a_run_that_was_stopped_in_its_sleep_is_not_woken_when_the_time_comes() -> None:
    async def work() -> tuple[Any, ...]:
        script = Script()
        workflow = sleeping(InMemoryCheckpointStorage(), script, timedelta(hours=1))
        handle = workflow.start("morning", run_id="r")
        async for event in handle.events():
            if event.type == "sleeping":
                break
        await handle.cancel()
        await asyncio.sleep(timedelta(days=1).total_seconds())  # nobody really waits on this loop
        return await handle.status(), script.ran

    assert hurried(work()) == (CANCELLED, ["to bed"])


async def test_a_run_that_is_done_stays_done(place: Any) -> None:
    handle = counting(place, Script()).start(1, run_id="r")
    await handle.result()
    count = len(await handle.checkpoints())
    assert await handle.cancel() is IDLE
    assert await handle.status() is IDLE
    assert len(await handle.checkpoints()) == count
    await handle.send(4)
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4, 4]


async def test_stopped_twice_it_is_stopped_once(place: Any) -> None:
    script = Script()
    workflow = counting(place, script)
    gate = script.hold(2)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    handles = [handle, handle, workflow.attach("r", drive=True), workflow.attach("r", drive=True)]
    assert await asyncio.gather(*(one.cancel() for one in handles)) == [CANCELLED] * 4
    count = len(await handle.checkpoints())
    assert await handle.cancel() is CANCELLED
    assert len(await handle.checkpoints()) == count == 3
    assert script.ran == [1, 2]


async def test_a_failed_run_can_be_given_up(place: Any) -> None:
    script = Script()
    script.broken = {2}
    workflow = counting(place, script)
    handle = workflow.start(1, run_id="r")
    with pytest.raises(HandlerFailed):
        await handle.result()
    assert await handle.cancel() is CANCELLED
    assert (await handle.result()).get_outputs() == [1]
    assert script.ran == [1, 2]
    script.broken = set()
    assert (await workflow.start(1, run_id="r").result()).get_outputs() == [1, 2, 3, 4]


async def test_a_run_that_nobody_drives_is_stopped_where_it_stands(storage: Any) -> None:
    script = Script()
    workflow = counting(storage, script)
    async with workflow.run(1, run_id="r", stream=True) as stream:
        async for event in stream:
            if event.type == "superstep_completed":
                break
    assert await workflow.attach("r", drive=True).cancel() is CANCELLED
    assert script.ran == [1]
    assert (await workflow.run(run_id="r")).get_outputs() == [1, 2, 3, 4]


# ----------------------------------------------------------------------------------- what handlers may do


async def test_handlers_clean_up_and_what_their_siblings_had_finished_is_not_run_again(storage: Any) -> None:
    ran, cleaned, held = list[str](), list[str](), Script()

    @executor(id="start")
    async def start(n: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(n)

    @executor(id="quick")
    async def quick(n: int, ctx: WorkflowContext[None, str]) -> None:
        ran.append("quick")
        await ctx.yield_output("quick")

    @executor(id="slow")
    async def slow(n: int, ctx: WorkflowContext[None, str]) -> None:
        ran.append("slow")
        try:
            await held.act("slow", ctx)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # cleaning up may take its time
            cleaned.append("slow")
            raise
        await ctx.yield_output("slow")

    @executor(id="stubborn")
    async def stubborn(n: int, ctx: WorkflowContext[None, str]) -> None:
        ran.append("stubborn")
        try:
            await held.act("stubborn", ctx)
        except asyncio.CancelledError:
            cleaned.append("stubborn")  # and goes on to its end: then it has finished
        await ctx.yield_output("stubborn")

    @executor(id="clumsy")
    async def clumsy(n: int, ctx: WorkflowContext[None, str]) -> None:
        ran.append("clumsy")
        try:
            await held.act("clumsy", ctx)
        finally:
            if "again" not in held.broken:
                raise ValueError("the cleaning up fails")
        await ctx.yield_output("clumsy")

    branches = [quick, slow, stubborn, clumsy]
    builder = WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=storage)
    workflow = builder.add_fan_out_edges(start, branches).build()
    gates = [held.hold(name) for name in ("slow", "stubborn", "clumsy")]
    handle = workflow.start(1, run_id="r")
    for gate in gates:
        await gate.reached.wait()
    assert await handle.cancel() is CANCELLED
    assert sorted(cleaned) == ["slow", "stubborn"]
    held.broken.add("again")
    held.let_go()
    ran.clear()
    result = await workflow.run(run_id="r")
    assert result.get_outputs() == ["quick", "slow", "stubborn", "clumsy"]
    assert sorted(ran) == ["clumsy", "slow"]


async def test_a_plain_function_cannot_be_stopped_but_its_run_can(storage: Any) -> None:
    began, go_on = threading.Event(), threading.Event()

    @executor(id="block")
    def block(n: int, ctx: WorkflowContext[None, int]) -> None:
        began.set()
        go_on.wait()
        ctx.yield_output(n)

    workflow = WorkflowBuilder(name="w", start_executor=block, checkpoint_storage=storage).build()
    handle = workflow.start(1, run_id="r")
    await asyncio.to_thread(began.wait)
    try:
        assert await handle.cancel() is CANCELLED
    finally:
        go_on.set()
    assert (await workflow.run(run_id="r")).get_outputs() == [1]


async def test_a_handler_may_stop_its_own_run(place: Any) -> None:
    @executor(id="end")
    async def end(n: int, ctx: WorkflowContext[None, int]) -> None:
        if n:
            await workflow.attach(ctx.run_id, drive=True).cancel()
        await ctx.yield_output(n)

    workflow = WorkflowBuilder(name="w", start_executor=end, checkpoint_storage=place).build()
    handle = workflow.start(1, run_id="r")
    assert (await handle.result()).get_final_state() is CANCELLED


async def test_a_run_inside_a_run_is_stopped_with_it_and_resumed_with_it(storage: Any) -> None:
    script = Script()
    inner = WorkflowExecutor(counting(None, script), "inner", allow_direct_output=True)
    workflow = WorkflowBuilder(name="outer", start_executor=inner, checkpoint_storage=storage).build()
    gate = script.hold(3)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    assert await handle.cancel() is CANCELLED
    script.let_go()
    assert (await workflow.run(run_id="r")).get_outputs() == [1, 2, 3, 4]
    assert script.ran == [1, 2, 3, 3, 4]


# ------------------------------------------------------------------------------------- letters that come late


async def test_the_wish_of_a_program_that_died_is_obeyed_by_the_next_who_opens_the_run(storage: Any) -> None:
    script = Script()
    workflow = counting(storage, script)
    async with workflow.run(1, run_id="r", stream=True) as stream:
        async for event in stream:
            if event.type == "superstep_completed":
                break
    await wish(storage, "r", 1)
    result = await workflow.attach("r", drive=True).result()
    assert (result.get_final_state(), script.ran) == (CANCELLED, [1])
    assert await letters(storage, "r") == []
    assert (await workflow.run(run_id="r")).get_outputs() == [1, 2, 3, 4]


async def test_a_wish_is_obeyed_once_and_never_stops_a_later_resume(storage: Any) -> None:
    """It was posted when the run had just been stopped by somebody else."""
    script = Script()
    workflow = counting(storage, script)
    gate = script.hold(2)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    await handle.cancel()
    await wish(storage, "r", 1)  # whoever wanted that saw the run at commit 1
    script.let_go()
    result = await workflow.run(run_id="r")
    assert (result.get_outputs(), result.get_final_state()) == ([1, 2, 3, 4], IDLE)
    assert await letters(storage, "r") == []


async def test_a_wish_that_arrives_while_a_resumed_run_is_driven_is_overtaken_too(storage: Any) -> None:
    script = Script()
    workflow = counting(storage, script)
    gate = script.hold(2)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    await handle.cancel()
    gate.reached.clear()
    later_gate = script.hold(3)
    async with in_background(workflow.run(run_id="r")) as running:
        await gate.reached.wait()
        await wish(storage, "r", 1)
        gate.open.set()
        await later_gate.reached.wait()
        await wish(storage, "r", 0)
        look = watching.local_drive(watching.key_of(workflow._archive_on(storage), "r"))
        await look._check_cancel()  # type: ignore[union-attr]  # as it does about once a second while there is mail
        script.let_go()
        assert (await running).get_outputs() == [1, 2, 3, 4]


async def test_a_wish_that_comes_when_the_run_is_done_changes_nothing(storage: Any) -> None:
    script = Script()
    workflow = counting(storage, script)
    handle = workflow.start(1, run_id="r")
    await handle.result()
    await wish(storage, "r", 2)
    assert (await handle.result()).get_final_state() is IDLE
    await handle.send(4)
    result = await handle.result()
    assert (result.get_outputs(), result.get_final_state()) == ([1, 2, 3, 4, 4], IDLE)
    assert await letters(storage, "r") == []


async def test_a_wish_that_was_meant_for_a_run_before_it_was_moved_back_counts_no_more(storage: Any) -> None:
    script = Script()
    workflow = counting(storage, script)
    handle = workflow.start(1, run_id="r")
    await handle.result()
    await handle.restore((await handle.checkpoints())[1])
    await wish(storage, "r", 5, epoch=0)
    result = await handle.result()
    assert (result.get_outputs(), result.get_final_state()) == ([1, 2, 3, 4], IDLE)


@pytest.mark.parametrize("seed", range(8))
async def test_however_many_stop_it_at_once_it_stands_still_afterwards(programs: Any, seed: int) -> None:
    dice = random.Random(seed)
    script = Script()
    workflows = [counting(storage, script) for storage in programs]
    gate = script.hold(2)
    handle = workflows[0].start(1, run_id="r")
    await gate.reached.wait()

    async def stop(n: int) -> WorkflowRunState:
        for _ in range(dice.randrange(30)):
            await asyncio.sleep(0)
        return await workflows[n % 2].attach("r", drive=True).cancel()

    assert await asyncio.gather(*(stop(n) for n in range(6))) == [CANCELLED] * 6
    assert await handle.status() is CANCELLED
    assert script.ran == [1, 2]
    script.let_go()
    assert (await workflows[1].run(run_id="r")).get_outputs() == [1, 2, 3, 4]
    assert script.ran == [1, 2, 2, 3, 4]


@pytest.mark.parametrize("seed", range(8))
async def test_stopped_while_it_is_sent_to_it_ends_cancelled_or_done_and_loses_nothing(storage: Any, seed: int) -> None:
    dice = random.Random(seed)
    script = Script()
    workflow = counting(storage, script, last=0)
    handle = workflow.start(1, run_id="r")
    await handle.status()
    accepted: list[int] = []

    async def send(number: int) -> None:
        for _ in range(dice.randrange(20)):
            await asyncio.sleep(0)
        try:
            await handle.send(number)
            accepted.append(number)
        except RunError:
            pass

    async def stop() -> None:
        for _ in range(dice.randrange(40)):
            await asyncio.sleep(0)
        assert await handle.cancel() in (CANCELLED, IDLE)

    await asyncio.gather(stop(), *(send(number) for number in range(100, 110)))
    result = await workflow.start(1, run_id="r").result()
    assert sorted(result.get_outputs()) == sorted([1, *accepted])
    assert result.get_final_state() is IDLE


async def test_whoever_drives_by_hand_is_told_that_somebody_else_does(storage: Any) -> None:
    script = Script()
    workflow = counting(storage, script)
    gate = script.hold(2)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    with pytest.raises(RunBusy):
        await workflow.run(run_id="r")
    await handle.cancel()
