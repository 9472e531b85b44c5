"""A reminder beside a request: `ctx.set_timer` and `@timer_handler`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import (
    DefinitionError,
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    LatestOnly,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    handler,
    response_handler,
    timer_handler,
    workflow,
)
from stepwell.admin import fork, respond, retry
from stepwell.functional import RunContext
from stepwell.testing import FakeClock, crash_everywhere
from tests.support.held import SixMethods

HOUR = timedelta(hours=1)
WAITING, IDLE = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS, WorkflowRunState.IDLE
IN_PROGRESS = WorkflowRunState.IN_PROGRESS


class Desk(Executor):
    """Asks, and reminds every hour until there is an answer; gives up after three reminders."""

    def __init__(self, id: str = "desk", reminders: int = 3) -> None:
        super().__init__(id)
        self.reminders = reminders

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(f"{text}?", bool, request_id=text)
        ctx.set_timer(text, HOUR)

    @timer_handler
    async def remind(self, name: str, ctx: WorkflowContext[None, str]) -> None:
        sent = ctx.get_state(name, 0) + 1
        ctx.set_state(name, sent)
        await ctx.yield_output(f"reminder {sent} of {name}")
        if sent < self.reminders:
            ctx.set_timer(name, HOUR)
        else:
            ctx.withdraw(name)

    @response_handler
    async def decide(self, question: str, granted: bool, ctx: WorkflowContext[None, str]) -> None:
        ctx.cancel_timer(ctx.request_id or "")
        await ctx.yield_output(f"{question} {granted}")


class Alarm(Executor):
    """Only sets a timer, and another by name."""

    @handler
    async def begin(self, seconds: float, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_timer("late", 2 * seconds)
        ctx.set_timer("late", 3 * seconds)  # replaces the first
        ctx.set_timer("never", seconds)
        ctx.cancel_timer("never")
        ctx.set_timer("early", seconds)

    @timer_handler("early", "late")
    async def ring(self, name: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{name} rings")

    @timer_handler("never")
    async def fail(self, name: str, ctx: WorkflowContext[None, str]) -> None:
        raise AssertionError("a cancelled timer has fired")


class Nudge(Desk):
    """Sets a timer, and asks when it is due."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_timer(text, HOUR)

    @timer_handler
    async def remind(self, name: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(f"{name}?", bool, request_id=name)
        ctx.set_timer(name, HOUR)


def build(start: Any, storage: Any = None, **options: Any) -> Workflow:
    return WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=storage, **options).build()


async def stands(storage: Any, run_id: str = "r") -> tuple[str, str | None]:
    run = await storage.get_run(run_id)
    assert run is not None
    return run.standing, run.until


async def ready(storage: Any, by: datetime | None = None) -> list[str]:
    return [run.run_id for run in await storage.ready_runs(by=by)]


async def test_a_reminder_is_called_beside_a_request_that_stays_answerable(everywhere: Any) -> None:
    storage, desk = everywhere(), Desk()
    with FakeClock() as clock:
        waiting = await build(desk, storage).run("tea", run_id="r")
        assert (waiting.get_final_state(), waiting.get_outputs()) == (WAITING, [])
        standing, until = await stands(storage)
        assert standing == "waiting"
        assert until is not None
        assert await ready(storage) == []
        assert await ready(storage, datetime.fromisoformat(until)) == ["r"]
        # Nothing is due yet: a resume changes nothing.
        again = await build(desk, storage).run(run_id="r")
        assert (again.get_final_state(), await stands(storage)) == (WAITING, ("waiting", until))
        clock(hours=1)
        assert (await stands(storage))[0] == "queued"
        assert await ready(storage) == ["r"]
        reminded = await build(desk, storage).run(run_id="r")
        assert (reminded.get_final_state(), reminded.get_outputs()) == (WAITING, ["reminder 1 of tea"])
        assert [(e.type, e.data, e.executor_id) for e in reminded if e.type == "timer_fired"] == [
            ("timer_fired", "tea", "desk")
        ]
        assert [request.request_id for request in await storage.pending_requests()] == ["tea"]
        await respond(storage, "r", "tea", True)
        done = await build(desk, storage).run(run_id="r")
        assert (done.get_final_state(), done.get_outputs()) == (IDLE, ["reminder 1 of tea", "tea? True"])
        # The response handler has cancelled the timer: nothing is left.
        assert await stands(storage) == ("completed", None)
        assert await ready(storage, datetime.now(UTC) + timedelta(days=9)) == []
    await storage.close()


async def test_a_run_whose_only_open_thing_is_a_timer_sleeps(everywhere: Any) -> None:
    storage, alarm = everywhere(), Alarm("alarm")
    with FakeClock() as clock:
        asleep = await build(alarm, storage).run(3600.0, run_id="r")
        assert (asleep.get_final_state(), asleep.get_outputs()) == (IN_PROGRESS, [])
        assert asleep.wakes_at is not None
        assert await stands(storage) == ("sleeping", asleep.wakes_at.isoformat())
        again = await build(alarm, storage).run(run_id="r")
        assert (again.get_final_state(), again.wakes_at) == (IN_PROGRESS, asleep.wakes_at)
        clock.until(asleep.wakes_at)
        first = await build(alarm, storage).run(run_id="r")
        assert first.get_outputs() == ["early rings"]
        assert first.wakes_at is not None
        assert abs(first.wakes_at - asleep.wakes_at - 2 * HOUR) < timedelta(seconds=1)
        clock(hours=2)
        last = await build(alarm, storage).run(run_id="r")
        assert (last.get_outputs(), last.get_final_state()) == (["early rings", "late rings"], IDLE)
        assert (last.wakes_at, await stands(storage)) == (None, ("completed", None))
    await storage.close()


async def test_a_timer_handler_may_end_what_it_reminds_of(everywhere: Any) -> None:
    storage, desk = everywhere(), Desk(reminders=1)
    with FakeClock() as clock:
        await build(desk, storage).run("tea", run_id="r")
        clock(hours=2)
        done = await build(desk, storage).run(run_id="r")
        assert (done.get_outputs(), done.get_final_state()) == (["reminder 1 of tea"], IDLE)
        assert await storage.pending_requests() == []
    await storage.close()


async def test_timers_of_a_cancelled_run_come_back_when_it_is_resumed(everywhere: Any) -> None:
    storage, desk = everywhere(), build(Desk(), everywhere())
    with FakeClock() as clock:
        await desk.run("tea", run_id="r", checkpoint_storage=storage)
        until = (await stands(storage))[1]
        await desk.cancel("r", checkpoint_storage=storage)
        clock(hours=2)
        assert (await stands(storage), await ready(storage)) == (("cancelled", None), [])
        back = await desk.run(run_id="r", checkpoint_storage=storage)
        assert (back.get_final_state(), back.get_outputs()) == (WAITING, ["reminder 1 of tea"])
        assert until is not None
    await storage.close()


async def test_a_cancelled_run_that_is_made_ready_again_sleeps_on(everywhere: Any) -> None:
    storage = everywhere()
    alarm = build(Alarm("alarm"), storage)
    with FakeClock():
        asleep = await alarm.run(3600.0, run_id="r")
        assert asleep.wakes_at is not None
        await alarm.cancel("r")
        await retry(storage, ["r"], by="ann")
        assert (await stands(storage))[0] == "queued"
        await alarm.run(run_id="r")
        assert await stands(storage) == ("sleeping", asleep.wakes_at.isoformat())
    await storage.close()


async def test_a_run_that_fails_suspends_its_timers(everywhere: Any) -> None:
    class Failing(Desk):
        broken = True

        @response_handler
        async def decide(self, question: str, granted: bool, ctx: WorkflowContext[None, str]) -> None:
            if Failing.broken:
                raise ValueError("not now")
            ctx.cancel_timer(ctx.request_id or "")
            await ctx.yield_output("decided")

    storage = everywhere()
    failing = build(Failing("desk"), storage)
    with FakeClock() as clock:
        await failing.run("tea", run_id="r")
        await respond(storage, "r", "tea", True)
        with pytest.raises(Exception, match="not now"):
            await failing.run(run_id="r")
        clock(hours=2)
        assert (await stands(storage), await ready(storage)) == (("failed", None), [])
        Failing.broken = False
        done = await failing.run(run_id="r")
        assert (done.get_outputs(), done.get_final_state()) == (["decided"], IDLE)
    await storage.close()


async def test_a_fork_and_a_restored_run_have_the_timers_of_their_checkpoint(everywhere: Any) -> None:
    storage = everywhere()
    desk = build(Desk(), storage)
    with FakeClock() as clock:
        await desk.run("tea", run_id="r")
        (checkpoint,) = [c for c in await storage.list_checkpoints(run_id="r") if c.status is WAITING]
        await desk.run(run_id="r", responses={"tea": True})
        assert await stands(storage) == ("completed", None)
        await fork(storage, checkpoint.checkpoint_id, run_id="f")
        clock(hours=1)
        told = await desk.run(run_id="f")
        assert (told.get_outputs(), told.get_final_state()) == (["reminder 1 of tea"], WAITING)
        handle = desk.attach("r", drive=True)
        await handle.restore(checkpoint.checkpoint_id)
        async for event in handle.events():
            if event.data == "reminder 1 of tea":
                break
    await storage.close()


async def test_timers_of_a_sub_workflow_wake_the_run_around_it(everywhere: Any) -> None:
    storage = everywhere()

    def outer() -> Workflow:
        return build(WorkflowExecutor(build(Desk()), id="inner", allow_direct_output=True), storage)

    with FakeClock() as clock:
        waiting = await outer().run("tea", run_id="r")
        assert waiting.get_final_state() is WAITING
        clock(hours=1)
        assert await ready(storage) == ["r"]
        reminded = await outer().run(run_id="r")
        assert (reminded.get_outputs(), reminded.get_final_state()) == (["reminder 1 of tea"], WAITING)
        assert (await stands(storage))[0] == "waiting"
        clock(hours=1)
        assert (await outer().run(run_id="r")).get_outputs()[-1] == "reminder 2 of tea"
        done = await outer().run(run_id="r", responses={"tea": True})
        assert (done.get_outputs()[-1], done.get_final_state()) == ("tea? True", IDLE)
        assert await stands(storage) == ("completed", None)
    await storage.close()


async def test_a_sub_workflow_that_only_has_a_timer_lets_the_run_around_it_sleep(everywhere: Any) -> None:
    storage = everywhere()
    inner = WorkflowExecutor(build(Alarm("alarm")), id="inner", allow_direct_output=True)
    with FakeClock() as clock:
        asleep = await build(inner, storage).run(3600.0, run_id="r")
        assert asleep.wakes_at is not None
        assert (await stands(storage))[0] == "sleeping"
        clock(hours=1)
        assert (await build(inner, storage).run(run_id="r")).get_outputs() == ["early rings"]
        clock(hours=2)
        done = await build(inner, storage).run(run_id="r")
        assert (done.get_outputs(), done.get_final_state()) == (["early rings", "late rings"], IDLE)
    await storage.close()


async def test_a_withdrawal_in_a_sub_workflow_ends_the_request_of_the_run_around_it(everywhere: Any) -> None:
    storage = everywhere()
    inner = WorkflowExecutor(build(Desk(reminders=1)), id="inner", allow_direct_output=True)
    with FakeClock() as clock:
        await build(inner, storage).run("tea", run_id="r")
        clock(hours=1)
        done = await build(inner, storage).run(run_id="r")
        assert (done.get_outputs(), done.get_final_state()) == (["reminder 1 of tea"], IDLE)
        assert await storage.pending_requests() == []
    await storage.close()


async def test_a_handle_wakes_its_run_for_a_timer(everywhere: Any) -> None:
    storage = everywhere()
    handle = build(Alarm("alarm"), storage).start(0.05, run_id="r")
    assert (await handle.result()).get_outputs() == ["early rings", "late rings"]
    await storage.close()


async def test_a_run_that_is_not_stored_waits_in_memory() -> None:
    done = await build(Alarm("alarm")).run(0.02)
    assert (done.get_outputs(), done.get_final_state()) == (["early rings", "late rings"], IDLE)


async def test_timers_of_a_storage_of_six_methods_survive_a_restart() -> None:
    storage, desk = SixMethods(), Desk()
    with FakeClock() as clock:
        waiting = await build(desk, storage).run("tea", run_id="r")
        assert (waiting.get_final_state(), waiting.get_outputs()) == (WAITING, [])
        again = SixMethods()
        again.kept = dict(storage.kept)  # as another process would find it
        early = await build(desk, again).run(run_id="r")
        assert (early.get_final_state(), early.get_outputs()) == (WAITING, [])
        clock(hours=1)
        reminded = await build(desk, again).run(run_id="r")
        assert (reminded.get_final_state(), reminded.get_outputs()) == (WAITING, ["reminder 1 of tea"])
        done = await build(desk, again).run(run_id="r", responses={"tea": True})
        assert (done.get_final_state(), done.get_outputs()) == (IDLE, ["reminder 1 of tea", "tea? True"])
        assert (await again.load(list(again.kept)[-1])).status is IDLE

        await build(Alarm("alarm"), storage).run(3600.0, run_id="s")
        clock(hours=1)
        first = await build(Alarm("alarm"), storage).run(run_id="s")
        assert (first.get_final_state(), first.get_outputs()) == (IN_PROGRESS, ["early rings"])


async def test_a_handle_wakes_a_run_of_a_storage_of_six_methods_for_its_timers() -> None:
    handle = build(Alarm("alarm"), SixMethods()).start(0.05, run_id="r")
    assert (await handle.result()).get_outputs() == ["early rings", "late rings"]


def function_with_a_timer() -> Any:
    @executor(id="brew")
    async def brew(text: str, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_timer("ready", HOUR)

    @brew.timer_handler("ready")
    async def serve(name: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{name} at last")

    return brew


async def test_a_function_has_timer_handlers_of_its_own(everywhere: Any) -> None:
    storage = everywhere()
    with FakeClock() as clock:
        await build(function_with_a_timer(), storage).run("tea", run_id="r")
        clock(hours=1)
        done = await build(function_with_a_timer(), storage).run(run_id="r")
        assert (done.get_outputs(), done.get_final_state()) == (["ready at last"], IDLE)
    await storage.close()


async def test_a_durable_function_waits_for_the_timers_of_a_workflow_it_runs(everywhere: Any) -> None:
    inner = build(Alarm("alarm"))

    @workflow(name="outer")
    async def outer(seconds: float, ctx: RunContext) -> str:
        return ", ".join(await ctx.run(inner, seconds))

    storage = everywhere()
    with FakeClock() as clock:
        asleep = await outer.run(3600.0, run_id="r", checkpoint_storage=storage)
        assert asleep.wakes_at is not None
        clock.until(asleep.wakes_at)
        await outer.run(run_id="r", checkpoint_storage=storage)
        clock(hours=2)
        done = await outer.run(run_id="r", checkpoint_storage=storage)
        assert done.get_outputs() == ["early rings, late rings"]
    assert await outer(0.02) == "early rings, late rings"
    await storage.close()


@pytest.mark.parametrize("retention", [None, LatestOnly])
async def test_timers_survive_a_crash_at_every_write(retention: Any) -> None:
    kept = {} if retention is None else {"retention": retention}
    for each in (Alarm("alarm"), Desk(), Nudge("nudge")):
        message: Any = 3600.0 if isinstance(each, Alarm) else "tea"
        inner = WorkflowExecutor(build(each), id="inner", allow_direct_output=True)
        for built in (build(each), build(inner)):
            report = await crash_everywhere(built, message, answer=lambda event: True, **kept)
            assert report.crashes > 4


async def test_what_cannot_be_a_timer_is_refused_at_the_line() -> None:
    for name, delay, error, text in (
        ("other", 1, DefinitionError, "'desk' has no timer handler for 'other': it handles 'ring'"),
        ("", 1, ValueError, "non-empty string"),
        (7, 1, ValueError, "not 7"),
        ("ring", -1, ValueError, "not below 0; not -1"),
        ("ring", "soon", ValueError, "not 'soon'"),
        ("ring", float("nan"), ValueError, "nan"),
    ):

        class Wrong(Executor):
            @handler
            async def begin(self, n: int, ctx: WorkflowContext) -> None:
                ctx.set_timer(name, delay)  # type: ignore[arg-type]  # noqa: B023

            @timer_handler("ring")
            async def ring(self, name: str, ctx: WorkflowContext) -> None:
                pass

        with pytest.raises((error, HandlerFailed), match=text) as refused:
            await build(Wrong("desk")).run(1)
        assert isinstance(refused.value.__cause__ or refused.value, error)


async def test_an_executor_without_timer_handlers_and_a_durable_function_say_what_to_do() -> None:
    @executor(id="bare")
    async def bare(n: int, ctx: WorkflowContext) -> None:
        ctx.set_timer("ring", 1)

    with pytest.raises(Exception, match=r"it handles no timers; add a @timer_handler\('ring'\)"):
        await build(bare).run(1)

    @workflow
    async def durable(n: int, ctx: RunContext) -> None:
        ctx._internal.set_timer("ring", 1)

    with pytest.raises(Exception, match=r"durable function, which has no timer handlers: wait with ctx.sleep"):
        await durable.run(1)


def test_two_handlers_for_one_timer_are_refused() -> None:
    class Twice(Executor):
        @handler
        async def begin(self, n: int, ctx: WorkflowContext) -> None: ...
        @timer_handler("ring")
        async def one(self, name: str, ctx: WorkflowContext) -> None: ...
        @timer_handler("ring")
        async def two(self, name: str, ctx: WorkflowContext) -> None: ...
        @timer_handler
        async def rest(self, name: str, ctx: WorkflowContext) -> None: ...
        @timer_handler
        async def all_others(self, name: str, ctx: WorkflowContext) -> None: ...

    with pytest.raises(DefinitionError) as refused:
        build(Twice("t"))
    assert "timer handlers 'one' and 'two' both handle the timer 'ring'" in str(refused.value)
    assert "timer handlers 'rest' and 'all_others' both handle the timers that no other handler names" in str(
        refused.value
    )
    brew = function_with_a_timer()
    with pytest.raises(DefinitionError, match="both handle the timer 'ready'"):
        brew.timer_handler("ready")(lambda name: None)


def test_a_timer_handler_of_another_form_is_refused_by_its_decorator() -> None:
    with pytest.raises(DefinitionError, match=r"must take \(self, name, ctx\), not \(self, ctx\)"):

        @timer_handler
        async def short(self: Any, ctx: WorkflowContext) -> None: ...

    with pytest.raises(DefinitionError, match="non-empty strings, not 3"):
        timer_handler(3)  # type: ignore[call-overload]


async def test_a_timer_whose_handler_is_gone_is_named_before_anything_runs() -> None:
    class Mute(Executor):
        @handler
        async def begin(self, seconds: float, ctx: WorkflowContext[None, str]) -> None: ...

    storage = InMemoryCheckpointStorage()
    with FakeClock():
        await build(Alarm("alarm"), storage).run(3600.0, run_id="r")
        with pytest.raises(Exception, match="'alarm' has no timer handler for 'late', but that timer is set to"):
            await build(Mute("alarm"), storage).run(run_id="r")


async def test_an_answer_that_has_arrived_comes_before_a_timer_that_is_due(everywhere: Any) -> None:
    storage = everywhere()
    desk = build(Desk(), storage)
    with FakeClock() as clock:
        await desk.run("tea", run_id="r")
        await respond(storage, "r", "tea", True)
        clock(hours=2)
        done = await desk.run(run_id="r")
        assert (done.get_outputs(), done.get_final_state()) == (["tea? True"], IDLE)
    await storage.close()
