"""A run held by its name: started, watched, sent to and answered, by several at once and from several programs."""

from __future__ import annotations

import asyncio
import gc
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    CheckpointInfo,
    CheckpointMissing,
    CodecError,
    GraphChanged,
    HandlerFailed,
    InMemoryCheckpointStorage,
    InputMismatch,
    RequestExpired,
    RoutingFailed,
    RunError,
    StepwellError,
    StoreUnavailable,
    SuperstepLimit,
    WorkflowBuilder,
    WorkflowContext,
    executor,
)
from stepwell.engine.events import watchers as watching
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.workflows import RunHandle
from tests.engine.handle_samples import FAILED, IDLE, IN_PROGRESS, WAITING, everything
from tests.support.held import (
    PLACES,
    Script,
    asking,
    counting,
    durable,
    in_background,
    sleeping,
    storage_at,
)
from tests.support.hurried import hurried


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each kind of storage, one of six methods, and none at all."""
    return storage_at(request.param, tmp_path)


async def every_method(handle: RunHandle) -> list[type[BaseException]]:
    """What each method of a handle raises."""
    raised: list[type[BaseException]] = []
    info = CheckpointInfo(handle.run_id, "x", 0)
    for call in (
        handle.status(),
        handle.result(),
        everything(handle),
        handle.checkpoints(),
        handle.send(1),
        handle.respond({}),
        handle.cancel(),
        handle.restore(info),
    ):
        try:
            await call
        except (StepwellError, RuntimeError) as error:
            raised.append(type(error))
    return raised


# ------------------------------------------------------------------------------------ start and attach


async def test_a_run_is_started_and_held_by_its_name(place: Any) -> None:
    script = Script()
    workflow = counting(place, script)
    handle = workflow.start(1, run_id="r")
    assert (handle.run_id, repr(handle)) == ("r", "<RunHandle of 'r' in 'counting'>")
    result = await handle.result()
    assert (result.get_outputs(), result.get_final_state(), result.run_id) == ([1, 2, 3, 4], IDLE, "r")
    assert await handle.status() is IDLE
    assert [info.number for info in await handle.checkpoints()] == [0, 1, 2, 3, 4]
    again = workflow.attach("r", drive=True)
    assert (await again.result()).get_outputs() == [1, 2, 3, 4]
    assert script.ran == [1, 2, 3, 4]


async def test_a_run_without_a_name_gets_one() -> None:
    workflow = counting(None, Script())
    one, other = workflow.start(1), workflow.start(1)
    assert one.run_id != other.run_id
    await one.status()  # then it is stored
    assert (await workflow.attach(one.run_id, drive=True).result()).get_outputs() == [1, 2, 3, 4]


async def test_a_run_moves_on_in_the_background_though_nobody_looks() -> None:
    script = Script()
    gate = script.hold(4)
    counting(None, script).start(1, run_id="r")
    await gate.reached.wait()
    assert script.ran == [1, 2, 3, 4]
    script.let_go()


async def test_started_twice_with_the_same_message_it_is_one_run(place: Any) -> None:
    script = Script()
    workflow = counting(place, script)
    gate = script.hold(2)
    handles = [workflow.start(1, run_id="r") for _ in range(3)]
    await gate.reached.wait()
    script.let_go()
    results = await asyncio.gather(*(handle.result() for handle in handles), workflow.start(1, run_id="r").result())
    assert [result.get_outputs() for result in results] == [[1, 2, 3, 4]] * 4
    assert script.ran == [1, 2, 3, 4]


async def test_started_with_another_message_every_method_says_so_also_while_the_run_is_being_driven(place: Any) -> None:
    script = Script()
    workflow = counting(place, script)
    gate = script.hold(2)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    with pytest.raises(InputMismatch, match="started with another input"):
        await workflow.start(7, run_id="r").result()
    script.let_go()
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]
    assert await every_method(workflow.start(7, run_id="r")) == [InputMismatch] * 8
    assert script.ran == [1, 2, 3, 4]


async def test_a_message_that_nobody_takes_or_that_cannot_be_stored_starts_nothing(place: Any) -> None:
    workflow = counting(place, Script())
    assert await every_method(workflow.start("text", run_id="r")) == [RoutingFailed] * 8
    assert (await every_method(workflow.start(object(), run_id="o")))[0] in (RoutingFailed, CodecError)
    assert await every_method(workflow.attach("r", drive=True)) == [CheckpointMissing] * 8


def test_without_an_event_loop_start_says_so_and_starts_nothing() -> None:
    storage, script = InMemoryCheckpointStorage(), Script()
    workflow = counting(storage, script)
    with pytest.raises(RuntimeError, match="needs a running event loop"):
        workflow.start(1, run_id="r")
    handle = workflow.attach("r", drive=True)  # to hold a run needs none
    assert asyncio.run(every_method(handle)) == [CheckpointMissing] * 8
    assert script.ran == []


async def test_a_run_that_nobody_started_is_missing_whatever_is_asked(place: Any) -> None:
    handle = counting(place, Script()).attach("nobody", drive=True)
    assert await every_method(handle) == [CheckpointMissing] * 8
    with pytest.raises(CheckpointMissing, match=r"no run 'nobody' is stored; start it with workflow\.start"):
        await handle.result()


@pytest.mark.parametrize("id", ["", 5, None, "\ud800"])
def test_what_is_no_id_is_refused(id: Any) -> None:
    with pytest.raises(ValueError, match="run_id"):
        counting(None, Script()).attach(id, drive=True)


async def test_without_a_storage_a_run_is_known_to_the_workflow_object_that_started_it() -> None:
    script = Script()
    workflow = counting(None, script)
    await workflow.start(1, run_id="r").result()
    assert (await workflow.attach("r", drive=True).result()).get_outputs() == [1, 2, 3, 4]
    with pytest.raises(CheckpointMissing):
        await counting(None, script).attach("r", drive=True).result()


async def test_a_storage_may_be_given_to_the_call(storage: Any) -> None:
    script = Script()
    await counting(None, script).start(1, run_id="r", checkpoint_storage=storage).result()
    assert (await counting(storage, script).attach("r", drive=True).result()).get_outputs() == [1, 2, 3, 4]
    assert (await counting(None, script).attach("r", checkpoint_storage=storage, drive=True).status()) is IDLE


async def test_private_values_are_read_by_whoever_drives() -> None:
    @executor(id="tell")
    async def tell(n: int, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(ctx.private["who"])

    workflow = WorkflowBuilder(start_executor=tell).build()
    assert (await workflow.start(1, private={"who": "me"}).result()).get_outputs() == ["me"]


async def test_a_handle_belongs_to_one_event_loop_and_says_so_in_another() -> None:
    workflow = counting(None, Script())
    handle = workflow.start(1, run_id="r")
    await handle.result()
    raised: list[BaseException] = []

    def elsewhere() -> None:
        try:
            asyncio.run(handle.status())
        except RuntimeError as error:
            raised.append(error)

    await asyncio.to_thread(elsewhere)
    assert "belongs to another event loop; get one for this loop with workflow.attach('r')" in str(raised[0])


def test_a_handle_outlives_its_event_loop_and_the_run_goes_on_in_the_next(storage: Any) -> None:
    script = Script()
    workflow = counting(storage, script)

    async def begin() -> RunHandle:
        gate = script.hold(3)
        handle = workflow.start(1, run_id="r")
        await gate.reached.wait()
        return handle

    handle = asyncio.run(begin())  # what moves is ended with the loop, at the last commit
    assert script.cleaned == [3]
    script.let_go()

    async def go_on() -> list[Any]:
        assert await handle.status() is IN_PROGRESS
        return (await handle.result()).get_outputs()

    assert asyncio.run(go_on()) == [1, 2, 3, 4]
    assert script.ran == [1, 2, 3, 3, 4]


# ---------------------------------------------------------------------------------------------- result


async def test_many_wait_for_one_result(place: Any) -> None:
    script = Script()
    workflow = counting(place, script)
    gate = script.hold(3)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    holders = [handle, handle, workflow.attach("r", drive=True), workflow.attach("r", drive=True)]
    async with in_background(asyncio.gather(*(one.result() for one in holders for _ in range(3)))) as waiting:
        await asyncio.sleep(0)
        script.let_go()
        assert [result.get_outputs() for result in await waiting] == [[1, 2, 3, 4]] * 12
    assert script.ran == [1, 2, 3, 4]


async def test_whoever_stops_waiting_for_a_result_stops_nobody_else() -> None:
    script = Script()
    gate = script.hold(1)
    handle = counting(None, script).start(1, run_id="r")
    async with in_background(handle.result()):  # is cancelled before the run has even begun
        pass
    await gate.reached.wait()
    script.let_go()
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]


async def test_the_result_of_a_run_that_waits_holds_the_questions_that_are_open(place: Any) -> None:
    workflow = asking(place, Script())
    handle = workflow.start("a b", run_id="r")
    result = await handle.result()
    assert result.get_final_state() is WAITING
    assert [event.data for event in result.get_request_info_events()] == ["a", "b"]
    await handle.respond({"a": False})
    result = await workflow.attach("r", drive=True).result()
    assert [event.request_id for event in result.get_request_info_events()] == ["b", "a?"]
    await handle.respond({"b": True, "a?": True})
    result = await handle.result()
    assert (result.get_request_info_events(), result.get_outputs()) == ([], ["done b", "done a?"])


async def test_the_result_of_a_failed_run_is_its_error_also_where_it_did_not_fail(place: Any) -> None:
    script = Script()
    script.broken = {3}
    workflow = counting(place, script)
    handle = workflow.start(1, run_id="r")
    for _ in range(2):
        with pytest.raises(HandlerFailed, match="executor 'count' failed in run 'r': ValueError: broken at 3") as here:
            await handle.result()
    assert isinstance(here.value.__cause__, ValueError)
    assert await handle.status() is FAILED
    with pytest.raises(HandlerFailed, match="executor 'count' failed in run 'r': ValueError: broken at 3") as there:
        await workflow.attach("r", drive=True).result()
    assert (there.value.executor_id, there.value.run_id) == ("count", "r")
    assert "ValueError: broken at 3" in there.value.__notes__[0]  # with the traceback
    assert script.ran == [1, 2, 3]  # whoever looks does not resume it


async def test_a_run_that_failed_again_elsewhere_is_not_told_with_an_older_error(storage: Any) -> None:
    script = Script()
    script.broken = {2}
    handle = counting(storage, script).start(1, run_id="r")
    with pytest.raises(HandlerFailed, match="broken at 2"):
        await handle.result()
    script.broken = {3}
    with pytest.raises(HandlerFailed, match="broken at 3"):
        await counting(storage, script).run(run_id="r")
    with pytest.raises(HandlerFailed, match="broken at 3"):
        await handle.result()


async def test_errors_of_the_engine_keep_their_type_where_they_did_not_happen(storage: Any) -> None:
    handle = counting(storage, Script(), max_iterations=2).start(1, run_id="limit")
    with pytest.raises(SuperstepLimit) as here:
        await handle.result()
    with pytest.raises(SuperstepLimit) as there:
        await counting(storage, Script(), max_iterations=2).attach("limit", drive=True).result()
    assert str(there.value) == str(here.value)


async def test_a_question_that_ran_out_of_time_is_the_same_error_for_everybody(storage: Any, later: Any) -> None:
    workflow = asking(storage, Script(), deadline=timedelta(minutes=30))
    handle = workflow.start("a", run_id="r")
    assert (await handle.result()).get_final_state() is WAITING
    later(minutes=31)
    for holder in (handle, workflow.attach("r", drive=True)):
        with pytest.raises(RequestExpired) as raised:
            await holder.result()
        assert raised.value.request_id == "a"
    with pytest.raises(RunError, match="is failed; resume it"):
        await handle.respond({"a": True})


async def test_a_question_that_runs_out_of_time_is_answered_by_its_default(storage: Any, later: Any) -> None:
    handle = asking(storage, Script(), deadline=timedelta(minutes=30), default=True).start("a", run_id="r")
    assert (await handle.result()).get_final_state() is WAITING
    later(minutes=31)
    assert (await handle.result()).get_outputs() == ["done a"]


async def test_the_result_of_a_run_that_sleeps_a_little_is_waited_for(place: Any) -> None:
    handle = sleeping(place, Script(), timedelta(milliseconds=5)).start("morning", run_id="r")
    assert (await handle.result()).get_outputs() == ["morning"]


@pytest.mark.long
def test_a_run_that_is_put_aside_wakes_up_by_itself() -> None:
    async def work() -> tuple[Any, ...]:
        script = Script()
        handle = sleeping(InMemoryCheckpointStorage(), script, timedelta(days=3)).start("morning", run_id="r")
        async for event in handle.events():
            if event.type == "sleeping":
                break
        result = await handle.result()  # by then it is up without being looked at
        return result.get_outputs(), result.wakes_at, script.ran

    assert hurried(work()) == (["morning"], None, ["to bed", "to bed", "up"])


async def test_a_run_that_is_put_aside_is_woken_by_whoever_waits_for_it(storage: Any, later: Any) -> None:
    script = Script()
    workflow = sleeping(storage, script, timedelta(hours=1))
    assert (await workflow.run("morning", run_id="r")).wakes_at is not None
    handle = workflow.attach("r", drive=True)
    assert await handle.status() is IN_PROGRESS
    later(minutes=61)
    assert (await handle.result()).get_outputs() == ["morning"]
    assert script.ran == ["to bed", "to bed", "up"]


async def test_the_result_of_a_fork_holds_what_it_was_forked_from_had_yielded(place: Any) -> None:
    if place is None:
        pytest.skip("a run can be forked only from where it is stored")
    workflow = counting(place, Script())
    handle = workflow.start(1, run_id="r")
    await handle.result()
    second, last = (await handle.checkpoints())[2], (await handle.checkpoints())[-1]
    await workflow.run(checkpoint_id=second.checkpoint_id, run_id="fork")
    assert (await workflow.attach("fork", drive=True).result()).get_outputs() == [1, 2, 3, 4]
    await workflow.run(checkpoint_id=last.checkpoint_id, run_id="done fork")
    result = await workflow.attach("done fork", drive=True).result()
    assert (result.get_outputs(), result.get_final_state(), result.run_id) == ([1, 2, 3, 4], IDLE, "done fork")


async def test_a_run_that_stands_still_is_moved_on_by_whoever_waits_for_it(place: Any) -> None:
    if place is None:
        pytest.skip("a run that is kept nowhere cannot be left")
    script = Script()
    async with counting(place, script).run(1, run_id="r", stream=True) as stream:
        async for event in stream:
            if event.type == "superstep_completed":
                break
    handle = counting(place, script).attach("r", drive=True)
    assert await handle.status() is IN_PROGRESS
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]
    assert script.ran == [1, 2, 3, 4]


class Failing(MemoryStore):
    """Refuses to write while it is told to."""

    full = False

    async def append(self, *args: Any, **options: Any) -> None:
        if self.full:
            raise StoreUnavailable("the disk is full")
        await super().append(*args, **options)


async def test_what_keeps_a_run_from_moving_on_is_told_to_all_who_wait_and_they_may_try_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script, store = Script(), Failing()
    gate = script.hold(2)
    handle = counting(BuiltInStorage(store), script).start(1, run_id="r")
    await gate.reached.wait()
    async with in_background(asyncio.gather(handle.result(), handle.result(), return_exceptions=True)) as waiting:
        await asyncio.sleep(0)
        store.full = True
        script.let_go()
        assert [type(error) for error in await waiting] == [StoreUnavailable] * 2
    assert "run 'r' of 'counting' has stopped: the disk is full" in caplog.text  # for those who do not wait
    store.full = False
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]
    assert script.ran == [1, 2, 2, 3, 4]  # what could not be stored is done again


async def test_a_changed_graph_is_told_to_whoever_would_move_the_run_on(storage: Any) -> None:
    async with counting(storage, Script()).run(1, run_id="r", stream=True) as stream:
        await anext(aiter(stream))
    other = asking(storage, Script()).attach("r", drive=True)
    with pytest.raises(GraphChanged):
        await other.result()


# ---------------------------------------------------------------------------------------------- events


async def test_events_tell_the_history_and_then_what_happens(place: Any) -> None:
    script = Script()
    workflow = counting(place, script)
    handle = workflow.start(1, run_id="r")
    told = await everything(handle)
    assert [event.data for event in told if event.type == "output"] == [1, 2, 3, 4]
    again = await everything(handle)
    assert durable(again) == durable(told)
    assert all(event.replayed for event in again)
    if isinstance(place, BuiltInStorage):
        assert durable(again) == durable(await place.event_history("r"))


async def test_events_begin_after_any_commit_or_checkpoint(place: Any) -> None:
    workflow = counting(place, Script())
    handle = workflow.start(1, run_id="r")
    await handle.result()
    told = durable(await everything(handle))
    *before, last = await handle.checkpoints()
    for info in before:
        expected = [event for event in told if event[0] > info.number]
        assert durable(await everything(handle, after=info.number)) == expected
        assert durable(await everything(handle, after=info)) == expected
    # Nothing is newer: what the run has come to.
    expected = [event for event in told if event[1] == "output"] + told[-1:]
    for nothing_newer in (last.number, last, 99):
        assert durable(await everything(handle, after=nothing_newer)) == expected
    with pytest.raises(CheckpointMissing, match="belongs to run 'other', not to 'r'"):
        await everything(handle, after=CheckpointInfo("other", "x", 1))


async def test_whoever_joins_in_the_middle_of_a_superstep_misses_nothing_that_is_committed(place: Any) -> None:
    script = Script()
    workflow = counting(place, script)
    gate = script.hold(3)
    handle = workflow.start(1, run_id="r")
    async with in_background(everything(handle)) as from_the_start:
        await gate.reached.wait()
        late = workflow.attach("r", drive=True).events(after=1)
        second = [await anext(late)]  # now it has read the history, and misses nothing that is live
        script.let_go()
        second += [event async for event in late]
        first = await from_the_start
    assert durable(second) == [event for event in durable(first) if event[0] > 1]
    live = [(event.type, event.data) for event in second if not event.durable]
    assert ("executor_invoked", 4) in live
    assert ("executor_invoked", 2) not in live


async def test_what_happened_before_somebody_read_the_history_is_not_told_out_of_turn(place: Any) -> None:
    """Progress of a superstep whose commit was read from the history has been overtaken."""
    handle = counting(place, Script(), last=30).start(1, run_id="r")
    seen = 0
    async for event in handle.events():
        await asyncio.sleep(0)  # so slow that the run is always ahead
        if event.commit is not None:
            seen = event.commit
        if event.type == "executor_invoked":
            assert event.data > seen


async def test_readers_do_not_share_what_they_read() -> None:
    @executor(id="make")
    async def make(n: int, ctx: WorkflowContext[None, list[int]]) -> None:
        await ctx.yield_output([n])

    script = Script()
    handle = WorkflowBuilder(start_executor=make).build().start(1, run_id="r")

    async def read() -> list[int]:
        data = next(event.data for event in [e async for e in handle.events()] if event.type == "output")
        script.ran.append(list(data))
        data.append(99)
        return list(data)

    await asyncio.gather(read(), read(), read())
    assert script.ran == [[1], [1], [1]]


@pytest.mark.long
async def test_a_reader_that_is_slower_than_the_run_misses_nothing_and_holds_nobody_up() -> None:
    count = watching._AT_MOST  # each superstep tells several times
    workflow = counting(InMemoryCheckpointStorage(), Script(), last=count, max_iterations=count + 1)
    handle = workflow.start(1, run_id="r")
    slow = handle.events()
    told = [await anext(slow)]
    assert len((await handle.result()).get_outputs()) == count
    told += [event async for event in slow]
    assert [event.data for event in told if event.type == "output"] == list(range(1, count + 1))
    assert durable(told) == durable(await everything(handle))


async def test_a_reader_watches_what_somebody_else_in_this_process_runs(storage: Any) -> None:
    script = Script()
    workflow = counting(storage, script)
    gate = script.hold(1)

    async def run(streaming: bool) -> list[Any]:
        if not streaming:
            return [e async for e in _list(await workflow.run(1, run_id="awaited"))]
        return [event async for event in workflow.run(1, run_id="streamed", stream=True)]

    for streaming, id in ((True, "streamed"), (False, "awaited")):
        async with in_background(run(streaming)) as running:
            await gate.reached.wait()
            async with in_background(everything(workflow.attach(id, drive=True))) as watching_it:
                await asyncio.sleep(0)
                script.let_go()
                told, seen = await running, await watching_it
        expected = durable(told) if streaming else durable(await storage.event_history(id))
        assert durable(seen) == expected
        gate = script.hold(1)
        gate.reached.clear()
        gate.open.clear()


async def _list(items: Any) -> Any:
    for item in items:
        yield item


@pytest.mark.parametrize("seed", range(12))
async def test_every_durable_event_is_told_once_and_in_order_whenever_somebody_joins(place: Any, seed: int) -> None:
    dice = random.Random(seed)
    script = Script()
    workflow = counting(place, script, last=12)
    handle = workflow.start(1, run_id="r")
    await handle.status()

    async def join(turns: int, after: int, pauses: int) -> tuple[int, list[Any]]:
        for _ in range(turns):
            await asyncio.sleep(0)
        told = []
        holder = handle if dice.random() < 0.5 else workflow.attach("r", drive=True)
        async for event in holder.events(after=after):
            told.append(event)
            for _ in range(dice.randrange(pauses)):
                await asyncio.sleep(0)
        return after, durable(told)

    readers = [join(dice.randrange(200), dice.randrange(-1, 6), dice.randrange(1, 5)) for _ in range(8)]
    read = await asyncio.gather(*readers)
    whole = durable(await everything(handle))
    for after, told in read:
        assert told == [event for event in whole if event[0] > after]
    assert script.ran == list(range(1, 13))


@pytest.mark.long
async def test_leaving_events_early_stops_nothing_and_leaves_nobody_behind(place: Any) -> None:
    script = Script()
    gate = script.hold(3)
    handle = counting(place, script).start(1, run_id="r")
    async for event in handle.events():
        if event.type == "output":
            break
    del event
    await gate.reached.wait()
    script.let_go()
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]
    gc.collect()
    await asyncio.sleep(0)
    assert watching.WATCHERS == {}
    assert watching._DRIVES == {}
