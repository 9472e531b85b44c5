"""What arrives while the handlers of a superstep sleep or wait is applied when the run is driven, and not later."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    ResponseRejected,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
    response_handler,
    timer_handler,
)
from stepwell.model.checkpoint import FullHistory, LatestOnly, Retention
from stepwell.testing import crash_everywhere
from tests.conftest import Later

WAITING, IDLE = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS, WorkflowRunState.IDLE
CALLS: list[str] = []


class Start(Executor):
    """Passes each message on to the executor that it names."""

    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str]) -> None:
        CALLS.append(f"start {text}")
        for name in text.split():
            await ctx.send_message(text, target_id=name)


class Desk(Executor):
    """Makes a request and returns."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        CALLS.append("desk")
        await ctx.request_info("desk?", bool, request_id="desk")

    @response_handler
    async def decide(self, question: str, granted: bool, ctx: WorkflowContext[str, str]) -> None:
        CALLS.append(f"decided {granted}")
        await ctx.yield_output(f"desk {granted}")


class Asker(Executor):
    """Waits for an answer in the middle of its handler."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        CALLS.append("asker")
        await ctx.yield_output(f"asker {await ctx.ask('asker?', bool, request_id='asker')}")


class Sleeper(Executor):
    @handler
    async def sleep(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        CALLS.append("sleeper")
        await ctx.sleep(3600)
        await ctx.yield_output("slept")


class Reminder(Executor):
    """Asks with a deadline, and reminds before it."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        CALLS.append("reminder")
        deadline = timedelta(hours=2)
        await ctx.request_info("reminder?", bool, request_id="reminder", deadline=deadline, default=False)
        ctx.set_timer("remind", timedelta(hours=1))

    @timer_handler
    async def remind(self, name: str, ctx: WorkflowContext[str, str]) -> None:
        CALLS.append(name)
        await ctx.yield_output(name)

    @response_handler
    async def decide(self, question: str, granted: bool, ctx: WorkflowContext[str, str]) -> None:
        CALLS.append(f"decided {granted}")
        await ctx.yield_output(f"reminder {granted}")


def build(storage: Any = None) -> Workflow:
    CALLS.clear()
    others = [Desk("desk"), Asker("asker"), Sleeper("sleeper"), Reminder("reminder")]
    builder = WorkflowBuilder(name="late", start_executor=Start("start"), checkpoint_storage=storage)
    return builder.add_fan_out_edges("start", others).build()


async def look(storage: Any) -> tuple[str, list[str]]:
    """Return how the run stands and which requests are open; what `ready_runs` lists is what stands so."""
    standing = (await storage.get_run("r")).standing
    ready = [run.run_id for run in await storage.ready_runs()]
    assert ready == (["r"] if standing == "queued" else [])
    return standing, sorted(pending.request_id for pending in await storage.pending_requests() if not pending.answered)


async def test_an_answer_to_another_request_is_applied_while_a_handler_asks(everywhere: Any) -> None:
    storage = everywhere()
    workflow = build(storage)
    await workflow.run("desk", run_id="r")
    await workflow.attach("r").send("asker")
    await workflow.run(run_id="r")
    assert await look(storage) == ("waiting", ["asker", "desk"])
    CALLS.clear()

    await workflow.respond("r", "desk", True, by="ann")
    assert await look(storage) == ("queued", ["asker"])
    parked = await workflow.run(run_id="r")
    assert (parked.get_final_state(), parked.get_outputs(), CALLS) == (WAITING, [], ["decided True"])
    assert await look(storage) == ("waiting", ["asker"])
    with pytest.raises(ResponseRejected, match="ann"):
        await workflow.respond("r", "desk", False, by="bo")

    number = (await storage.get_run("r")).number
    await workflow.run(run_id="r")  # there is nothing to do
    assert ((await storage.get_run("r")).number, CALLS) == (number, ["decided True"])

    await workflow.respond("r", "asker", False)
    done = await workflow.run(run_id="r")
    assert (done.get_final_state(), done.get_outputs()) == (IDLE, ["asker False", "desk True"])
    assert CALLS == ["decided True", "asker"]
    assert await look(storage) == ("completed", [])
    answers = [(event.answer.request_id, event.by) for event in await events(storage, "request_answered")]
    assert answers == [("desk", "ann"), ("asker", None)]
    await storage.close()


async def events(storage: Any, type: str) -> list[Any]:
    return [event async for event in storage.follow("r", until_rest=True) if event.type == type]


async def test_an_answer_to_the_executor_that_asks_waits_for_its_turn(everywhere: Any) -> None:
    class Both(Desk):
        @handler
        async def ask(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            if text == "more":
                await ctx.yield_output(f"more {await ctx.ask('more?', bool, request_id='more')}")
            else:
                await ctx.request_info("desk?", bool, request_id="desk")

    storage = everywhere()
    CALLS.clear()
    workflow = WorkflowBuilder(name="late", start_executor=Both("both"), checkpoint_storage=storage).build()
    await workflow.run("desk", run_id="r")
    await workflow.attach("r").send("more")
    await workflow.run(run_id="r")
    await workflow.respond("r", "desk", True, by="ann")
    await workflow.run(run_id="r")
    assert (await look(storage), CALLS) == (("waiting", ["more"]), [])
    await workflow.respond("r", "more", False)
    assert (await workflow.run(run_id="r")).get_outputs() == ["more False", "desk True"]
    await storage.close()


@pytest.mark.parametrize("sibling", ["asker", "sleeper"])
async def test_an_early_answer_is_applied_when_its_superstep_has_ended(
    everywhere: Any, sibling: str, later: Later
) -> None:
    storage = everywhere()
    workflow = build(storage)
    await workflow.run(f"desk {sibling}", run_id="r")
    rests = ("waiting", ["asker", "desk"]) if sibling == "asker" else ("sleeping", ["desk"])
    assert await look(storage) == rests
    await workflow.respond("r", "desk", True, by="ann")
    assert (await look(storage))[0] == "queued"
    await workflow.run(run_id="r")
    assert await look(storage) == (rests[0], [id for id in rests[1] if id != "desk"])
    with pytest.raises(ResponseRejected, match="ann"):
        await workflow.respond("r", "desk", False, by="bo")
    assert CALLS.count("desk") == CALLS.count(sibling) == 1

    if sibling == "asker":
        await workflow.respond("r", "asker", False)
    else:
        later(minutes=61)
        assert (await look(storage))[0] == "queued"
    done = await workflow.run(run_id="r")
    assert done.get_outputs() == ["asker False" if sibling == "asker" else "slept", "desk True"]
    assert await look(storage) == ("completed", [])
    assert [event.request_id for event in await events(storage, "request_info")].count("desk") == 1
    await storage.close()


async def test_input_joins_a_superstep_whose_handler_sleeps(everywhere: Any, later: Later) -> None:
    storage = everywhere()
    workflow = build(storage)
    await workflow.run("sleeper", run_id="r")
    assert await look(storage) == ("sleeping", [])
    await workflow.attach("r").send("desk")
    assert await look(storage) == ("queued", [])
    await workflow.run(run_id="r")
    assert await look(storage) == ("sleeping", [])
    assert CALLS == ["start sleeper", "sleeper", "start desk"]
    later(minutes=61)
    done = await workflow.run(run_id="r")
    assert (done.get_outputs(), CALLS[3:]) == (["slept"], ["sleeper", "desk"])
    assert await look(storage) == ("waiting", ["desk"])
    await storage.close()


@pytest.mark.parametrize("sibling", ["asker", "sleeper"])
async def test_a_cancel_ends_a_run_whose_handlers_wait(everywhere: Any, sibling: str) -> None:
    storage = everywhere()
    workflow = build(storage)
    await workflow.run(sibling, run_id="r")
    await workflow.attach("r").cancel(reason="enough", by="ann")
    if (await look(storage))[0] != "cancelled":
        await workflow.run(run_id="r")
    assert await look(storage) == ("cancelled", [])
    await storage.close()


async def test_timers_and_deadlines_pass_while_a_handler_asks(everywhere: Any, later: Later) -> None:
    storage = everywhere()
    workflow = build(storage)
    await workflow.run("reminder", run_id="r")
    await workflow.attach("r").send("asker")
    await workflow.run(run_id="r")
    assert await look(storage) == ("waiting", ["asker", "reminder"])
    CALLS.clear()
    later(minutes=61)
    assert (await look(storage))[0] == "queued"
    await workflow.run(run_id="r")
    assert (await look(storage), CALLS) == (("waiting", ["asker", "reminder"]), ["remind"])
    later(minutes=61)
    assert (await look(storage))[0] == "queued"
    await workflow.run(run_id="r")
    assert (await look(storage), CALLS) == (("waiting", ["asker"]), ["remind", "decided False"])
    await workflow.respond("r", "asker", True)
    assert (await workflow.run(run_id="r")).get_outputs() == ["asker True", "remind", "reminder False"]
    await storage.close()


async def test_a_deadline_without_a_default_fails_a_run_whose_handler_asks(everywhere: Any, later: Later) -> None:
    class Strict(Desk):
        @handler
        async def ask(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            if text == "more":
                await ctx.ask("more?", bool, request_id="more")
            else:
                await ctx.request_info("desk?", bool, request_id="desk", deadline=timedelta(hours=1))

    storage = everywhere()
    workflow = WorkflowBuilder(name="late", start_executor=Strict("strict"), checkpoint_storage=storage).build()
    await workflow.run("desk", run_id="r")
    await workflow.attach("r").send("more")
    await workflow.run(run_id="r")
    later(minutes=61)
    assert (await look(storage))[0] == "queued"
    with pytest.raises(Exception, match="the deadline was"):
        await workflow.run(run_id="r")
    assert await look(storage) == ("failed", [])
    await storage.close()


async def test_a_fork_and_a_restore_ask_again_what_was_answered_early(everywhere: Any) -> None:
    storage = everywhere()
    workflow = build(storage)
    await workflow.run("desk asker", run_id="r")
    await workflow.respond("r", "desk", True)
    await workflow.run(run_id="r")
    held = (await storage.get_run("r")).checkpoint_id
    await workflow.respond("r", "asker", True)
    assert (await workflow.run(run_id="r")).get_outputs() == ["asker True", "desk True"]

    await workflow.run(checkpoint_id=held, run_id="fork")
    assert await listed(storage, "fork") == ["asker", "desk"]
    ended = await workflow.run(run_id="fork", responses={"asker": False, "desk": False})
    assert sorted(ended.get_outputs()) == ["asker False", "desk False"]

    await workflow.attach("r").restore(held)
    await workflow.run(run_id="r")
    assert await listed(storage, "r") == ["asker", "desk"]
    await storage.close()


async def listed(storage: Any, run_id: str) -> list[str]:
    return sorted(pending.request_id for pending in await storage.pending_requests() if pending.run_id == run_id)


@pytest.mark.parametrize("retention", [FullHistory, LatestOnly])
@pytest.mark.parametrize("order", [["desk", "asker"], ["asker", "desk"]])
@pytest.mark.parametrize("message", ["desk asker", "desk sleeper", "reminder asker", "desk asker sleeper"])
async def test_wherever_a_process_dies_every_answer_is_applied_once(
    message: str, order: list[str], retention: Retention
) -> None:
    turns = [name for name in order if name in message.split()]

    def answer(event: Any) -> Any:
        return bool(turns)

    report = await crash_everywhere(build(), message, answer=answer, retention=retention)
    assert report.crashes > 10
