"""Signals through handles: send, respond, cancel, two programs, and storages of six methods."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    HandlerFailed,
    InMemoryCheckpointStorage,
    InputMismatch,
    RequestError,
    ResponseRejected,
    RoutingFailed,
    RunError,
    UnknownRequest,
)
from stepwell.engine.events import watchers as watching
from tests.engine.handle_samples import IDLE, WAITING, everything
from tests.support.held import (
    PLACES,
    Script,
    SixMethods,
    asking,
    counting,
    durable,
    in_background,
    storage_at,
    until,
)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each kind of storage, one of six methods, and none at all."""
    return storage_at(request.param, tmp_path)


@pytest.fixture(params=["sqlite", "file"])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The storage as two programs have it: nothing but the disk is common to them."""
    return storage_at(request.param, tmp_path), storage_at(request.param, tmp_path)


async def test_a_run_may_be_held_on_two_event_loops_at_once(storage: Any) -> None:
    script = Script()
    workflow = counting(storage, script)
    gate = script.hold(2)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    joined, told = threading.Event(), list[Any]()

    def elsewhere() -> None:
        async def read() -> None:
            async for event in workflow.attach("r", drive=True).events():
                told.append(event)
                joined.set()

        asyncio.run(read())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(joined.wait)
    script.let_go()
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]
    await asyncio.to_thread(thread.join)
    assert durable(told) == durable(await everything(handle))
    assert ("executor_invoked", 4) in [(event.type, event.data) for event in told]
    assert script.ran == [1, 2, 3, 4]


def test_a_drive_whose_loop_was_closed_over_its_head_is_in_nobodys_way(storage: Any) -> None:
    script = Script()
    workflow = counting(storage, script)

    async def begin() -> None:
        await script.hold(2).reached.wait()

    loop = asyncio.new_event_loop()

    async def start() -> None:
        workflow.start(1, run_id="r")

    loop.run_until_complete(start())
    loop.run_until_complete(begin())
    left = asyncio.all_tasks(loop)
    loop.close()
    script.forget()

    async def look() -> list[Any]:
        handle = workflow.attach("r", drive=True)
        told = await everything(handle)
        return [event.data for event in told if event.type == "output"]

    assert asyncio.run(look()) == [1, 2, 3, 4]
    for task in left:  # nobody will ever end them
        task._log_destroy_pending = False  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------ send


async def test_a_run_that_is_done_takes_further_input(place: Any) -> None:
    script = Script()
    handle = counting(place, script).start(3, run_id="r")
    await handle.result()
    await handle.send(4)
    result = await handle.result()
    assert (result.get_outputs(), result.get_final_state()) == ([3, 4, 4], IDLE)
    assert script.ran == [3, 4, 4]


async def test_what_is_sent_is_taken_in_once_and_in_order(place: Any) -> None:
    script = Script()
    workflow = counting(place, script, last=0)
    handle = workflow.start(1, run_id="r")
    other = workflow.attach("r", drive=True)
    await handle.result()
    for number in range(10, 30):
        await (handle if number % 2 else other).send(number)
    assert (await handle.result()).get_outputs() == [1, *range(10, 30)]
    assert script.ran == [1, *range(10, 30)]


async def test_what_is_sent_to_a_run_in_progress_waits_until_it_is_done(place: Any) -> None:
    script = Script()
    gate = script.hold(3)
    handle = counting(place, script).start(1, run_id="r")
    await gate.reached.wait()
    await handle.send(30)
    await handle.send(31)
    assert script.ran == [1, 2, 3]
    script.let_go()
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4, 30, 31]
    assert script.ran == [1, 2, 3, 4, 30, 31]


@pytest.mark.parametrize("seed", range(10))
async def test_whenever_it_is_sent_it_is_taken_in_without_anybody_looking(seed: int) -> None:
    """The drive that ends just now may have looked before: then another one follows."""
    dice = random.Random(seed)
    script = Script()
    workflow = counting(InMemoryCheckpointStorage(), script, last=0)
    handles = [workflow.start(1, run_id="r"), workflow.attach("r", drive=True), workflow.attach("r", drive=True)]
    await handles[0].result()

    async def send(number: int) -> None:
        for _ in range(dice.randrange(40)):
            await asyncio.sleep(0)
        await dice.choice(handles).send(number)

    await asyncio.gather(*(send(number) for number in range(100, 130)))
    await until(lambda: len(script.ran) == 31)
    assert sorted(script.ran) == [1, *range(100, 130)]


async def test_what_is_sent_is_kept_also_if_the_program_ends_at_once(storage: Any) -> None:
    script = Script()
    await counting(storage, script).run(3, run_id="r")
    await asyncio.to_thread(
        asyncio.run, counting(storage, script).attach("r", drive=True).send(4)
    )  # its loop ends right after
    assert (await counting(storage, script).attach("r", drive=True).result()).get_outputs() == [3, 4, 4]


async def test_what_nobody_takes_is_refused_when_it_is_sent(place: Any) -> None:
    handle = counting(place, Script()).start(1, run_id="r")
    await handle.result()
    with pytest.raises(RoutingFailed, match="'count' does not accept a str"):
        await handle.send("text")
    assert len(await handle.checkpoints()) == 5


async def test_a_failed_run_takes_no_input_until_it_is_resumed_on_purpose(place: Any) -> None:
    script = Script()
    script.broken = {2}
    workflow = counting(place, script)
    handle = workflow.start(1, run_id="r")
    with pytest.raises(HandlerFailed):
        await handle.result()
    with pytest.raises(RunError, match=r"run 'r' is failed; resume it with run\(run_id=...\) before you send to it"):
        await handle.send(9)
    script.broken = set()
    resumed = workflow.start(1, run_id="r")
    assert (await resumed.result()).get_outputs() == [1, 2, 3, 4]
    await handle.send(9)
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4, 9]


async def test_a_run_that_fails_with_something_in_the_mail_is_not_resumed_by_that(place: Any) -> None:
    script = Script()
    script.broken = {3}
    gate = script.hold(2)
    workflow = counting(place, script)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    await handle.send(9)
    await workflow.attach("r", drive=True).send(10)
    script.let_go()
    for holder in (handle, workflow.attach("r", drive=True)):
        with pytest.raises(HandlerFailed, match="broken at 3"):
            await holder.result()
    assert script.ran == [1, 2, 3]
    script.broken = set()
    assert (await workflow.start(1, run_id="r").result()).get_outputs() == [1, 2, 3, 4, 9, 10]


# --------------------------------------------------------------------------------------------- respond


async def test_questions_are_answered_one_by_one_or_all_at_once(place: Any) -> None:
    script = Script()
    workflow = asking(place, script)
    handle = workflow.start("a b c", run_id="r")
    await handle.result()
    await handle.respond({"b": True})
    result = await handle.result()
    assert (result.get_outputs(), result.get_final_state()) == (["done b"], WAITING)
    await workflow.attach("r", drive=True).respond({"a": True, "c": True})
    assert (await handle.result()).get_outputs() == ["done b", "done a", "done c"]
    assert script.ran == ["a b c", "b True", "a True", "c True"]


async def test_an_answer_that_is_not_wanted_is_refused_and_changes_nothing(place: Any) -> None:
    handle = asking(place, Script()).start("a b", run_id="r")
    await handle.result()
    count = len(await handle.checkpoints())
    with pytest.raises(UnknownRequest, match="has no open request 'x'"):
        await handle.respond({"a": True, "x": True})
    with pytest.raises(ResponseRejected, match="is not accepted"):
        await handle.respond({"a": True, "b": "perhaps"})
    with pytest.raises(TypeError, match="responses must be a mapping"):
        await handle.respond(["a"])  # type: ignore[arg-type]
    assert len(await handle.checkpoints()) == count
    await handle.respond({"a": True, "b": True})
    assert (await handle.result()).get_outputs() == ["done a", "done b"]
    with pytest.raises(RequestError, match="answered already"):
        await handle.respond({"a": False})
    assert (await handle.result()).get_outputs() == ["done a", "done b"]


async def test_of_answers_that_race_one_is_taken_and_the_others_are_told(place: Any) -> None:
    script = Script()
    workflow = asking(place, script)
    await workflow.start("a", run_id="r").result()
    handles = [workflow.attach("r", drive=True) for _ in range(6)]
    answers = [bool(n % 2) for n in range(6)]
    given = await asyncio.gather(
        *(handle.respond({"a": answer}) for handle, answer in zip(handles, answers, strict=True)),
        return_exceptions=True,
    )
    await handles[0].result()
    assert all(error is None or isinstance(error, (ResponseRejected, UnknownRequest)) for error in given)
    taken = {answer for answer, error in zip(answers, given, strict=True) if error is None}
    assert len(taken) == 1  # the same answer may be given twice
    assert script.ran == ["a", f"a {taken.pop()}"]


async def test_an_answer_to_a_run_in_progress_is_taken_in_where_it_is_driven(place: Any) -> None:
    script = Script()
    workflow = asking(place, script)
    gate = script.hold(3)
    handle = workflow.start("and", run_id="r")
    await gate.reached.wait()
    await workflow.attach("r", drive=True).respond({"and": True})
    script.let_go()
    result = await handle.result()
    assert (result.get_outputs(), result.get_final_state()) == (["worked 3", "done and"], IDLE)
    assert script.ran == ["and", 3, "and True"]


# ---------------------------------------------------------------------------------------- two programs


async def test_one_program_drives_and_another_sees_every_commit(programs: Any) -> None:
    script = Script()
    one, other = (counting(storage, script) for storage in programs)
    gate = script.hold(3)
    handle = one.start(1, run_id="r")
    await gate.reached.wait()
    seen = []
    async with in_background(everything(other.attach("r", drive=True), after=0)) as watching_it:
        async for event in other.attach("r", drive=True).events():
            seen.append(event)
            if event.commit == 2 and event.type == "superstep_completed":
                script.let_go()
        told = await watching_it
    assert durable(seen) == durable(await everything(handle))
    assert durable(told) == [event for event in durable(seen) if event[0] > 0]
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]
    assert script.ran == [1, 2, 3, 4]


async def test_whoever_waits_takes_over_when_the_other_program_leaves(programs: Any) -> None:
    script = Script()
    one, other = (counting(storage, script) for storage in programs)
    gate = script.hold(3)

    async def drive() -> None:
        async with one.run(1, run_id="r", stream=True) as stream:
            async for _ in stream:
                pass

    async with in_background(drive()) as driving:
        await gate.reached.wait()
        async with in_background(other.attach("r", drive=True).result()) as waiting:
            await until(lambda: bool(watching.WATCHERS))
            driving.cancel()
            await asyncio.wait([driving])
            script.let_go()
            assert (await waiting).get_outputs() == [1, 2, 3, 4]
    assert script.ran == [1, 2, 3, 3, 4]


async def test_what_another_program_posts_is_taken_in_by_the_one_that_drives(programs: Any) -> None:
    script = Script()
    one, other = (asking(storage, script) for storage in programs)
    gate = script.hold(3)
    handle = one.start("and", run_id="r")
    await gate.reached.wait()
    await other.attach("r", drive=True).respond({"and": True})
    await other.attach("r", drive=True).send("b")
    script.let_go()
    result = await handle.result()
    assert result.get_outputs() == ["worked 3", "done and"]
    assert [event.request_id for event in result.get_request_info_events()] == ["b"]
    assert sorted(map(str, script.ran)) == ["3", "and", "and True", "b"]


async def test_what_is_posted_while_another_program_drives_is_not_lost_if_that_one_had_looked_before(
    programs: Any,
) -> None:
    """Whoever posts sees to it that it is taken in, also if nobody here or there waits for a result."""
    script = Script()
    one, other = (counting(storage, script, last=0) for storage in programs)
    await one.run(1, run_id="r")
    held = script.hold(2)
    await one.attach("r", drive=True).send(2)
    await held.reached.wait()
    for number in (3, 4, 5):
        await other.attach("r", drive=True).send(number)
    script.let_go()
    await until(lambda: len(script.ran) == 5)
    assert script.ran == [1, 2, 3, 4, 5]


async def test_a_program_that_lost_the_run_while_it_was_held_up_sees_it_through(programs: Any, later: Any) -> None:
    """Its claim was over, another one took the run over: what it comes to is not stored, and nothing is raised."""
    one, other = Script(), Script()
    gate = one.hold(2)
    handle = counting(programs[0], one).start(1, run_id="r")
    await gate.reached.wait()
    later(minutes=5)
    there = counting(programs[1], other).attach("r", drive=True)
    assert (await there.result()).get_outputs() == [1, 2, 3, 4]
    one.let_go()
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]
    assert (one.ran, other.ran) == ([1, 2], [2, 3, 4])


async def test_a_program_that_lost_the_run_after_it_moved_it_back_does_not_move_it_back_again(
    programs: Any, later: Any
) -> None:
    one, other = Script(), Script()
    handle = counting(programs[0], one).start(1, run_id="r")
    await handle.result()
    gate = one.hold(2)
    await handle.restore((await handle.checkpoints())[1])
    await gate.reached.wait()
    later(minutes=5)
    there = counting(programs[1], other).attach("r", drive=True)
    assert (await there.result()).get_outputs() == [1, 2, 3, 4]
    one.let_go()
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]
    assert [event.type for event in await everything(handle)].count("restored") == 1
    assert other.ran == [2, 3, 4]


async def test_started_by_two_programs_at_once_it_is_one_run(programs: Any) -> None:
    for n in range(5):
        script = Script()
        handles = [counting(storage, script).start(1, run_id=f"r{n}") for storage in programs]
        results = await asyncio.gather(*(handle.result() for handle in handles))
        assert [result.get_outputs() for result in results] == [[1, 2, 3, 4]] * 2
        assert script.ran == [1, 2, 3, 4]


async def test_started_with_another_message_by_another_program_it_says_so_while_the_first_drives(programs: Any) -> None:
    script = Script()
    one, other = (counting(storage, script) for storage in programs)
    gate = script.hold(1)
    handle = one.start(1, run_id="r")
    await gate.reached.wait()
    with pytest.raises(InputMismatch):
        await other.start(2, run_id="r").result()
    script.let_go()
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4]


# -------------------------------------------------------------------------- what six methods cannot do


async def test_of_a_storage_of_six_methods_another_object_knows_only_what_is_committed() -> None:
    """Mail lives in the process, beside the storage object, until a commit takes it in."""
    script, storage = Script(), SixMethods()
    workflow = counting(storage, script)
    gate = script.hold(3)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    await handle.send(9)
    copy = SixMethods()
    copy.kept = dict(storage.kept)  # as another process would find it
    script.let_go()
    assert (await counting(copy, script).attach("r", drive=True).result()).get_outputs() == [1, 2, 3, 4]
    assert (await handle.result()).get_outputs() == [1, 2, 3, 4, 9]


async def test_a_storage_of_six_methods_has_one_driver_in_a_process_and_says_what_it_cannot_promise() -> None:
    script, storage = Script(), SixMethods()
    workflow = counting(storage, script)
    gate = script.hold(2)
    handle = workflow.start(1, run_id="r")
    await gate.reached.wait()
    with pytest.raises(Exception, match="is being driven by process"):
        await workflow.run(run_id="r")
    script.let_go()
    warnings = [event.data for event in await everything(handle) if event.type == "warning"]
    assert script.ran == [1, 2, 3, 4]
    again = [event async for event in workflow.run(run_id="r", stream=True)]
    assert "whole checkpoints only" in next(event.data for event in again if event.type == "warning")
    assert warnings in ([], [event.data for event in again if event.type == "warning"])
