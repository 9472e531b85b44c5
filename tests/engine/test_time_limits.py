"""Time limits: in all and between signs of life, for coroutines and for threads, which cannot be stopped."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest

from stepwell import (
    Executor,
    HandlerFailed,
    HandlerTimeout,
    InMemoryCheckpointStorage,
    RetryPolicy,
    RunError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    handler,
    response_handler,
)
from tests.support.hurried import hurried
from tests.support.streams import details_of

SHORT = 0.01  # seconds that whoever waits for something that never comes need not wait longer
TWICE = RetryPolicy(max_attempts=2, initial_interval=0)


def build(start: Any, storage: Any = None, **options: Any) -> Workflow:
    return WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=storage, **options).build()


class Gate:
    """What threads wait at until the test is over."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.threads: list[threading.Thread] = []

    def wait(self) -> None:
        self.threads.append(threading.current_thread())
        self.opened.wait()

    def reached(self) -> threading.Thread:
        """The first thread that waits here; the loop stands still until there is one."""
        while not self.threads:
            time.sleep(0.001)
        return self.threads[0]

    def open(self) -> None:
        self.opened.set()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def gate() -> Iterator[Gate]:
    closed = Gate()
    yield closed
    closed.open()


# a coroutine


async def test_a_coroutine_is_cancelled_when_its_time_is_up_and_may_clean_up(storage: Any) -> None:
    told: list[str] = []

    @executor(id="slow", timeout=SHORT)
    async def slow(n: int, ctx: WorkflowContext[None, str]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            told.append("cleaned up")

    with pytest.raises(HandlerTimeout, match=r"executor 'slow' of run 'r' timed out after 0.01 s") as raised:
        await build(slow, storage).run(1, run_id="r")
    assert told == ["cleaned up"]
    assert (raised.value.run_id, raised.value.executor_id, raised.value.abandoned) == ("r", "slow", False)
    head = await storage.get_latest(run_id="r")
    assert head.status is WorkflowRunState.FAILED
    failed = [event for event in await storage.event_history("r") if event.type == "executor_failed"]
    assert [(event.details.error_type, event.details.extra) for event in failed] == [("HandlerTimeout", None)]


@pytest.mark.parametrize("kind", [TimeoutError, OSError, RunError])
async def test_a_timeout_can_be_caught_as_what_it_is(kind: type[Exception]) -> None:
    @executor(timeout=SHORT)
    async def slow(n: int) -> None:
        await asyncio.Event().wait()

    with pytest.raises(kind):
        await build(slow).run(1)


async def test_a_timeout_is_worth_another_attempt() -> None:
    called: list[int] = []

    @executor(timeout=SHORT, retry=RetryPolicy(max_attempts=3, initial_interval=0, retry_on=TimeoutError))
    async def slow(n: int, ctx: WorkflowContext[None, int]) -> None:
        called.append(n)
        if len(called) < 3:
            ctx.yield_output(-1)
            await asyncio.Event().wait()
        await ctx.yield_output(n)

    result = await build(slow).run(7)
    assert result.get_outputs() == [7]
    retried = [details_of(event) for event in result if event.type == "executor_retrying"]
    assert [(one.error_type, one.extra) for one in retried] == [("HandlerTimeout", None)] * 2


async def test_a_timeout_that_is_not_named_is_not_tried_again() -> None:
    called: list[int] = []

    @executor(timeout=SHORT, retry=RetryPolicy(max_attempts=3, initial_interval=0, retry_on=ValueError))
    async def slow(n: int) -> None:
        called.append(n)
        await asyncio.Event().wait()

    with pytest.raises(HandlerTimeout):
        await build(slow).run(7)
    assert called == [7]


def test_what_a_handler_says_beats_what_its_executor_says() -> None:
    class Both(Executor):
        @handler(timeout=100)
        async def number(self, n: int, ctx: WorkflowContext[None, str]) -> None:
            await asyncio.sleep(50)
            await ctx.yield_output("number")

        @handler
        async def text(self, s: str, ctx: WorkflowContext[None, str]) -> None:
            await asyncio.sleep(50)

    workflow = build(Both("both", timeout=10))
    assert hurried(workflow.run(1)).get_outputs() == ["number"]
    with pytest.raises(HandlerTimeout, match="after 10 s"):
        hurried(workflow.run("a"))


async def test_a_response_handler_has_a_limit_too(storage: Any) -> None:
    class Asker(Executor):
        @handler
        async def ask(self, n: int, ctx: WorkflowContext) -> None:
            await ctx.request_info("well?", bool, request_id="q")

        @response_handler(timeout=SHORT)
        async def take(self, original_request: str, response: bool, ctx: WorkflowContext) -> None:
            await asyncio.Event().wait()

    await build(Asker("asker"), storage).run(1, run_id="r")
    with pytest.raises(HandlerTimeout):
        await build(Asker("asker"), storage).run(run_id="r", responses={"q": True})


async def test_siblings_of_one_that_took_too_long_finish_and_are_not_run_again(storage: Any) -> None:
    ran: list[str] = []
    late = [True]

    @executor(id="start")
    async def start(n: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(n)

    @executor(id="slow", timeout=SHORT)
    async def slow(n: int, ctx: WorkflowContext[None, str]) -> None:
        ran.append("slow")
        if late:
            await asyncio.Event().wait()
        await ctx.yield_output("slow")

    @executor(id="steady")
    async def steady(n: int, ctx: WorkflowContext[None, str]) -> None:
        ran.append("steady")
        await ctx.yield_output("steady")

    builder = WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=storage)
    workflow = builder.add_fan_out_edges(start, [slow, steady]).build()
    with pytest.raises(HandlerTimeout):
        await workflow.run(1, run_id="r")
    late.clear()
    assert (await workflow.run(run_id="r")).get_outputs() == ["slow", "steady"]
    assert sorted(ran) == ["slow", "slow", "steady"]


async def test_a_handler_that_swallows_being_stopped_and_returns_was_too_late_all_the_same() -> None:
    @executor(timeout=SHORT)
    async def slow(n: int, ctx: WorkflowContext[None, str]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await ctx.yield_output("half of it")

    with pytest.raises(HandlerTimeout):
        await build(slow).run(1)


async def test_a_handler_that_makes_another_error_of_being_stopped_fails_with_that() -> None:
    @executor(timeout=SHORT)
    async def slow(n: int) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("the cleaning failed") from None

    with pytest.raises(HandlerFailed, match="the cleaning failed"):
        await build(slow).run(1)


async def test_a_timeout_of_the_handler_s_own_is_no_time_limit() -> None:
    @executor(timeout=3600)
    async def slow(n: int) -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    with pytest.raises(HandlerFailed) as raised:
        await build(slow).run(1)
    assert type(raised.value.__cause__) is TimeoutError


@pytest.mark.parametrize("stream", [False, True])
async def test_being_stopped_from_outside_is_not_running_out_of_time(storage: Any, stream: bool) -> None:
    called: list[int] = []
    begun = asyncio.Event()

    @executor(id="slow", timeout=3600, idle_timeout=3600, retry=TWICE)
    async def slow(n: int, ctx: WorkflowContext[None, int]) -> None:
        called.append(n)
        if len(called) == 1:
            begun.set()
            await asyncio.Event().wait()
        await ctx.yield_output(n)

    async def drive() -> None:
        await build(slow, storage).run(7, run_id="r", stream=stream)

    driving = asyncio.create_task(drive())
    await begun.wait()
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    result = await build(slow, storage).run(run_id="r")
    assert result.get_outputs() == [7]
    assert [event.attempt for event in result if event.type == "executor_invoked"] == [1]


# what counts


def timed(*steps: Callable[[WorkflowContext[None, str]], Any], **limits: Any) -> Workflow:
    """A handler that takes some steps, each of which may take time."""

    @executor(id="timed", **limits)
    async def work(n: int, ctx: WorkflowContext[None, str]) -> None:
        for step in steps:
            if (taken := step(ctx)) is not None:
                await taken
        await ctx.yield_output("done")

    return build(work, InMemoryCheckpointStorage())


def work_for(seconds: float) -> Callable[[Any], Any]:
    return lambda ctx: asyncio.sleep(seconds)


def sleep_for(seconds: float) -> Callable[[Any], Any]:
    return lambda ctx: ctx.sleep(seconds)


def in_thread(step: Callable[[Any], Any]) -> Callable[[Any], None]:
    def call(ctx: Any) -> None:
        thread = threading.Thread(target=step, args=(ctx,))
        thread.start()
        thread.join()

    return call


async def gathered(*waits: Any) -> None:
    await asyncio.gather(*waits)


SIGNS: dict[str, Callable[[Any], Any]] = {
    "add_event": lambda ctx: ctx.add_event(WorkflowEvent("data", "halfway")),
    "append_state": lambda ctx: ctx.append_state("list", 1),
    "get_state": lambda ctx: ctx.get_state("x") and None,
    "set_state": lambda ctx: ctx.set_state("x", 1),
    "yield_output": lambda ctx: ctx.yield_output("more"),
    "sleep": sleep_for(0),
}


@pytest.mark.parametrize(
    ("name", "from_thread"), [*((n, False) for n in SIGNS), *((n, True) for n in SIGNS if n != "sleep")]
)
def test_what_a_handler_does_through_its_context_is_a_sign_of_life(name: str, from_thread: bool) -> None:
    steps = [work_for(4), in_thread(SIGNS[name]) if from_thread else SIGNS[name]] * 5
    assert hurried(timed(*steps, idle_timeout=5).run(1)).get_outputs()[-1] == "done"
    with pytest.raises(HandlerTimeout, match="gave no sign of life for 5 s"):
        hurried(timed(*steps, work_for(6), idle_timeout=5).run(1))


def test_signs_of_life_do_not_make_the_whole_longer() -> None:
    steps = [work_for(4), SIGNS["set_state"]] * 5
    with pytest.raises(HandlerTimeout, match="timed out after 19 s"):
        hurried(timed(*steps, timeout=19, idle_timeout=5).run(1))
    assert hurried(timed(*steps, timeout=21, idle_timeout=5).run(1)).get_outputs() == ["done"]


@pytest.mark.parametrize("limits", [{"timeout": 10}, {"idle_timeout": 10}, {"timeout": 10, "idle_timeout": 10}])
def test_time_slept_on_purpose_is_not_counted(limits: dict[str, float]) -> None:
    steps = [work_for(4), sleep_for(50), sleep_for(30), work_for(4)]
    assert hurried(timed(*steps, **limits).run(1)).get_outputs() == ["done"]
    with pytest.raises(HandlerTimeout):
        hurried(timed(*steps, work_for(10), **limits).run(1))


def test_sleeps_side_by_side_are_not_counted_from_the_first_to_the_last() -> None:
    together = [lambda ctx: gathered(ctx.sleep(10), _later(5, ctx.sleep, 15), _later(8, ctx.sleep, 1))]
    assert hurried(timed(*together, work_for(9), timeout=10).run(1)).get_outputs() == ["done"]
    with pytest.raises(HandlerTimeout):
        hurried(timed(*together, work_for(11), timeout=10).run(1))


async def _later(seconds: float, wait: Callable[[float], Any], how_long: float) -> None:
    await asyncio.sleep(seconds)
    await wait(how_long)


def test_waiting_for_another_attempt_is_not_counted() -> None:
    called: list[int] = []

    @executor(id="flaky", timeout=10, retry=RetryPolicy(max_attempts=3, initial_interval=50, jitter=0))
    async def flaky(n: int, ctx: WorkflowContext[None, int]) -> None:
        called.append(n)
        await asyncio.sleep(9)
        if len(called) < 3:
            raise ValueError
        await ctx.yield_output(n)

    assert hurried(build(flaky).run(7)).get_outputs() == [7]


async def test_after_a_long_sleep_the_time_is_counted_anew(storage: Any, later: Any) -> None:
    called: list[int] = []

    @executor(id="slow", timeout=3600, idle_timeout=3600)
    async def slow(n: int, ctx: WorkflowContext[None, int]) -> None:
        called.append(n)
        await ctx.sleep(7200)
        await ctx.yield_output(n)

    result = await build(slow, storage).run(7, run_id="r")
    assert result.wakes_at is not None
    later(minutes=121)
    assert (await build(slow, storage).run(run_id="r")).get_outputs() == [7]
    assert called == [7, 7]


# a thread


async def test_a_plain_function_that_takes_too_long_is_abandoned_and_marked_so(storage: Any, gate: Gate) -> None:
    @executor(id="slow", timeout=SHORT)
    def slow(n: int) -> None:
        gate.wait()

    with pytest.raises(HandlerTimeout) as raised:
        await build(slow, storage).run(1, run_id="r")
    assert raised.value.abandoned
    assert "its thread cannot be stopped: it was abandoned, and may still be working" in raised.value.__notes__
    thread = gate.reached()
    assert thread.is_alive()
    assert thread.daemon
    assert thread.name == "stepwell slow (abandoned)"
    failed = [event for event in await storage.event_history("r") if event.type == "executor_failed"]
    assert [event.details.extra for event in failed] == [{"abandoned": True}]
    assert "it was abandoned" in (failed[0].details.traceback or "")


async def test_a_plain_function_in_time_gives_what_it_returns_and_keeps_its_context_variables() -> None:
    who: ContextVar[str] = ContextVar("who", default="nobody")
    who.set("somebody")

    @executor(id="quick", timeout=3600, idle_timeout=3600)
    def quick(n: int) -> str:
        return f"{who.get()} {threading.current_thread().name}"

    @executor(id="end")
    async def end(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(text)

    workflow = WorkflowBuilder(start_executor=quick).add_edge(quick, end).build()
    assert (await workflow.run(1)).get_outputs() == ["somebody stepwell quick"]


@pytest.mark.parametrize("error", [ValueError("v"), StopIteration("s"), GeneratorExit("g"), KeyError("k")])
async def test_what_a_plain_function_raises_in_time_is_raised(error: BaseException) -> None:
    @executor(timeout=3600)
    def broken(n: int) -> None:
        raise error

    with pytest.raises(HandlerFailed, match=type(error).__name__):
        await build(broken).run(1)


@pytest.mark.long
async def test_however_many_threads_were_abandoned_others_have_theirs(gate: Gate) -> None:
    """There are more of them than threads in the pool that plain functions without a limit share."""

    @executor(id="slow", timeout=SHORT)
    def slow(n: int) -> None:
        gate.wait()

    @executor(id="quick")
    def quick(n: int, ctx: WorkflowContext[None, int]) -> None:
        ctx.yield_output(n)

    workflow = build(slow)
    outcomes = await asyncio.gather(*(workflow.run(n) for n in range(70)), return_exceptions=True)
    assert all(isinstance(outcome, HandlerTimeout) and outcome.abandoned for outcome in outcomes)
    assert (await build(quick).run(7)).get_outputs() == [7]


async def test_a_thread_that_was_abandoned_can_do_nothing_any_more(storage: Any) -> None:
    told: list[str] = []
    over, done = threading.Event(), threading.Event()
    called: list[int] = []

    class Slow(Executor):
        @handler(timeout=SHORT, retry=RetryPolicy(max_attempts=1000, initial_interval=0))
        def work(self, n: int, ctx: WorkflowContext[int, str]) -> None:
            called.append(n)
            if len(called) > 1:  # one of these will be quick enough, also on a machine that is busy
                ctx.yield_output(f"{ctx.get_state('x')} {ctx.get_state('list')}")
                return
            with suppress(RuntimeError):  # it may be late already
                ctx.set_state("x", "before")
                ctx.append_state("list", "before")
                ctx.send_message(1)
            over.wait()
            acts: list[Callable[[], Any]] = [
                lambda: ctx.set_state("x", "late"),
                lambda: ctx.append_state("list", "late"),
                lambda: ctx.delete_state("x"),
                lambda: ctx.send_message(2),
                lambda: ctx.yield_output("late"),
                lambda: ctx.request_info("late?", bool),
                lambda: ctx.add_event(WorkflowEvent("data", "late")),
                lambda: ctx.sleep(1),
            ]
            for act in acts:
                try:
                    act()
                except RuntimeError as error:
                    told.append(str(error))
            done.set()

        @response_handler
        async def said(self, original_request: str, response: bool, ctx: WorkflowContext) -> None: ...

    result = await build(Slow("slow"), storage).run(1, run_id="r")
    over.set()
    assert await asyncio.to_thread(done.wait, 60)
    assert result.get_outputs() == ["None None"]
    assert result.get_request_info_events() == []
    assert dict((await storage.get_latest(run_id="r")).state) == {}
    assert [words.split()[0] for words in told] == [
        "set_state",
        "append_state",
        "delete_state",
        "send_message",
        "yield_output",
        "request_info",
        "add_event",
        "sleep",
    ]
    assert all("had failed or was given up; it has no effect any more" in words for words in told)
    retried = [details_of(event) for event in result if event.type == "executor_retrying"]
    assert {"abandoned": True} in [one.extra for one in retried]


def test_a_thread_that_was_abandoned_outlives_the_loop_without_noise(gate: Gate) -> None:
    told: list[str] = []

    @executor(id="slow", timeout=SHORT, idle_timeout=3600)
    def slow(n: int, ctx: WorkflowContext[int]) -> None:
        gate.wait()
        try:
            ctx.send_message(1)
        except RuntimeError as error:
            told.append(str(error))

    with pytest.raises(HandlerTimeout):
        build(slow).run_sync(1)
    gate.reached()
    gate.open()
    assert len(told) == 1


async def test_a_plain_function_that_returns_something_to_wait_for_is_not_abandoned_but_stopped() -> None:
    told: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append("stopped")

    def was_too_slow(error: Exception) -> bool:  # to come so far, on a machine that is busy
        return not told

    @executor(timeout=SHORT, retry=RetryPolicy(max_attempts=1000, initial_interval=0, retry_on=was_too_slow))
    def slow(n: int) -> Any:
        return wait()

    with pytest.raises(HandlerTimeout) as raised:
        await build(slow).run(1)
    assert not raised.value.abandoned
    assert told == ["stopped"]


async def test_what_an_abandoned_thread_returns_to_be_waited_for_is_never_begun(gate: Gate) -> None:
    begun: list[str] = []
    made: list[Any] = []

    async def wait() -> None:
        begun.append("begun")

    @executor(timeout=SHORT)
    def slow(n: int) -> Any:
        gate.wait()
        made.append(wait())
        return made[0]

    with pytest.raises(HandlerTimeout):
        await build(slow).run(1)
    gate.reached()
    gate.open()
    while made[0].cr_frame is not None:  # noqa: ASYNC110 - until it is closed
        await asyncio.sleep(0)
    assert begun == []


async def test_a_thread_that_is_stopped_from_outside_is_marked_and_the_run_can_be_gone_on_with(
    storage: Any, gate: Gate
) -> None:
    called: list[int] = []

    @executor(id="slow", timeout=3600)
    def slow(n: int, ctx: WorkflowContext[None, int]) -> None:
        called.append(n)
        if len(called) == 1:
            gate.wait()
        ctx.yield_output(n)

    stream = build(slow, storage).run(7, run_id="r", stream=True)
    async for event in stream:
        if event.type == "executor_invoked":
            gate.reached()
            await stream.cancel()
    assert gate.reached().name == "stepwell slow (abandoned)"
    assert (await storage.get_latest(run_id="r")).status is WorkflowRunState.CANCELLED
    assert (await build(slow, storage).run(run_id="r")).get_outputs() == [7]


# a workflow inside


def test_a_sub_workflow_that_takes_too_long_is_stopped_at_its_last_commit_and_tried_again() -> None:
    ran: list[str] = []

    @executor(id="first")
    async def first(n: int) -> str:
        ran.append("first")
        return str(n)

    @executor(id="second")
    async def second(text: str, ctx: WorkflowContext[None, str]) -> None:
        ran.append("second")
        if ran.count("second") == 1:
            await asyncio.Event().wait()
        await ctx.yield_output(f"{text}!")

    inner = WorkflowBuilder(name="inner", start_executor=first).add_edge(first, second).build()
    limited = WorkflowExecutor(inner, "inner", allow_direct_output=True, timeout=10, retry=TWICE)
    result = hurried(build(limited, InMemoryCheckpointStorage()).run(1))
    assert result.get_outputs() == ["1!"]
    assert ran == ["first", "second", "second"]


def test_what_a_sub_workflow_tells_is_a_sign_of_life_of_the_one_that_runs_it() -> None:
    @executor(id="count")
    async def count(n: int, ctx: WorkflowContext[int, str]) -> None:
        await asyncio.sleep(4)
        if n < 5:
            await ctx.send_message(n + 1)
        else:
            await asyncio.sleep(hang)
            await ctx.yield_output("counted")

    hang = 0
    inner = WorkflowBuilder(name="inner", start_executor=count).add_edge(count, count).build()
    workflow = build(WorkflowExecutor(inner, "inner", allow_direct_output=True, idle_timeout=5))
    assert hurried(workflow.run(0)).get_outputs() == ["counted"]
    hang = 3
    with pytest.raises(HandlerTimeout, match=r"executor 'inner' of run .* gave no sign of life for 5 s"):
        hurried(workflow.run(0))
