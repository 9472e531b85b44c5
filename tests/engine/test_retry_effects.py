"""What is left of a failed attempt, attempts beside other handlers, and attempts across a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    Executor,
    FileCheckpointStorage,
    HandlerFailed,
    InMemoryCheckpointStorage,
    RetryPolicy,
    RunError,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    handler,
    persistent,
    response_handler,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import Crash, CrashingStore
from tests.engine.retry_samples import AT_ONCE, SixMethods, attempts, build, failing, hourly
from tests.support.streams import details_of


@pytest.fixture(params=["memory", "sqlite", "file", "six methods", "nowhere"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Wherever a run may be kept, or not kept at all."""
    made: dict[str, Callable[[], Any]] = {
        "memory": lambda: InMemoryCheckpointStorage(),
        "sqlite": lambda: SQLiteCheckpointStorage(tmp_path / "runs.db"),
        "file": lambda: FileCheckpointStorage(tmp_path / "runs"),
        "six methods": lambda: SixMethods(),
        "nowhere": lambda: None,
    }
    return made[request.param]()


# what is left of an attempt that failed


async def test_nothing_that_a_failed_attempt_did_is_left(anywhere: Any) -> None:
    seen: list[Any] = []

    class Asker(Executor):
        @handler
        async def begin(self, n: int, ctx: WorkflowContext[str, str]) -> None:
            ctx.set_state("there", [0])
            ctx.set_state("gone", 1)
            await ctx.send_message("go")

        @handler(retry=AT_ONCE)
        async def work(self, text: str, ctx: WorkflowContext[float, str]) -> str | None:
            known = [ctx.get_state(key) for key in ("there", "gone", "new", "list")]
            seen.append((known, ctx.get_sent_messages(), ctx.get_yielded_outputs()))
            number = len(seen)
            ctx.append_state("there", number)
            ctx.set_state("new", number)
            ctx.append_state("list", number, number)
            ctx.delete_state("gone")
            ctx.set_state(f"attempt {number}", True)
            await ctx.send_message(float(number))
            await ctx.yield_output(f"output {number}")
            await ctx.request_info(f"question {number}", bool)
            if number < 3:
                raise ValueError
            return None

        @handler
        async def end(self, n: float, ctx: WorkflowContext[str, str]) -> None:
            state = {key: ctx.get_state(key) for key in ("there", "gone", "new", "list", "attempt 1", "attempt 3")}
            await ctx.yield_output(f"{n} {state}")

        @response_handler
        async def said(self, original_request: str, response: bool, ctx: WorkflowContext) -> None: ...

    asker = Asker("asker")
    builder = WorkflowBuilder(name="w", start_executor=asker, checkpoint_storage=anywhere)
    result = await builder.add_edge(asker, asker).build().run(1)
    assert seen == [([[0], 1, None, None], [], [])] * 3
    state = {"there": [0, 3], "gone": None, "new": 3, "list": [3, 3], "attempt 1": None, "attempt 3": True}
    assert result.get_outputs() == ["output 3", f"3.0 {state}"]
    assert [event.data for event in result.get_request_info_events()] == ["question 3"]


class Tally(Executor):
    """Counts its messages in two ways, and fails a few times at those that are odd."""

    counted = persistent(0)

    def __init__(self, seen: list[Any]) -> None:
        super().__init__("tally", retry=AT_ONCE)
        self.seen, self.by_hand, self.restored = seen, list[int](), 0

    def clone(self) -> Tally:
        return Tally(self.seen)

    @handler
    async def count(self, n: int, ctx: WorkflowContext[None, str]) -> None:
        self.seen.append((n, self.counted, self.by_hand.copy(), ctx.get_state("all", 0)))
        self.counted += n
        self.by_hand.append(n)
        ctx.set_state("all", ctx.get_state("all", 0) + n)
        if n % 2 and self.seen.count(self.seen[-1]) < 3:
            raise ValueError
        await ctx.yield_output(f"{self.counted} {sum(self.by_hand)} {ctx.get_state('all')}")

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"by_hand": self.by_hand}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.by_hand = state["by_hand"]
        self.restored += 1


async def test_an_executor_is_again_what_it_was_before_the_attempt(anywhere: Any) -> None:
    """Also if the attempt is at its second message, of which the checkpoint knows nothing yet."""
    seen: list[Any] = []

    @executor(id="start")
    async def start(n: int, ctx: WorkflowContext[int]) -> None:
        for number in range(1, n + 1):
            await ctx.send_message(number)

    tally = Tally(seen)
    builder = WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=anywhere)
    result = await builder.add_edge(start, tally).build().run(3)
    assert result.get_outputs() == ["1 1 1", "3 3 3", "6 6 6"]
    first, third = (1, 0, list[int](), 0), (3, 3, [1, 2], 3)
    assert seen == [first, first, first, (2, 1, [1], 1), third, third, third]


async def test_an_executor_that_cannot_be_brought_back_fails_the_run_in_words() -> None:
    class Stubborn(Executor):
        @handler(retry=AT_ONCE)
        async def work(self, n: int, ctx: WorkflowContext) -> None:
            raise ValueError

        async def on_checkpoint_save(self) -> dict[str, Any]:
            return {}

        async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
            raise OSError("the disk is full")

    with pytest.raises(RunError, match=r"'stubborn' could not restore its state .* the disk is full"):
        await build(Stubborn("stubborn")).run(1)


async def test_a_task_that_a_failed_attempt_left_behind_can_do_nothing_to_the_next(storage: Any) -> None:
    left: list[asyncio.Task[None]] = []
    told: list[str] = []
    over = asyncio.Event()

    @executor(id="flaky", retry=AT_ONCE)
    async def flaky(n: int, ctx: WorkflowContext[None, str]) -> None:
        async def late() -> None:
            await over.wait()
            for act in (lambda: ctx.set_state("x", "late"), lambda: ctx.yield_output("late"), lambda: ctx.sleep(1)):
                try:
                    act()
                except RuntimeError as error:
                    told.append(str(error))

        if not left:
            left.append(asyncio.create_task(late()))
            raise ValueError
        over.set()
        await left[0]
        await ctx.yield_output("in time")

    result = await build(flaky, storage).run(1, run_id="r")
    assert result.get_outputs() == ["in time"]
    latest = await storage.get_latest(run_id="r")
    assert dict(latest.state) == {}
    assert len(told) == 3
    assert all("had failed or was given up" in words for words in told)


# side by side


async def test_siblings_of_a_handler_that_is_tried_again_run_once(anywhere: Any) -> None:
    ran: list[str] = []
    third_attempt, sibling_done = asyncio.Event(), asyncio.Event()

    @executor(id="start")
    async def start(n: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(n)

    @executor(id="flaky", retry=AT_ONCE)
    async def flaky(n: int, ctx: WorkflowContext[None, str]) -> None:
        ran.append("flaky")
        if len(ran) < 3:
            raise ValueError
        third_attempt.set()
        await sibling_done.wait()  # they are side by side: this one does not hold the other up
        await ctx.yield_output("flaky")

    @executor(id="steady")
    async def steady(n: int, ctx: WorkflowContext[None, str]) -> None:
        await third_attempt.wait()
        ran.append("steady")
        await ctx.yield_output("steady")
        sibling_done.set()

    builder = WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=anywhere)
    result = await builder.add_fan_out_edges(start, [flaky, steady]).build().run(1)
    assert sorted(result.get_outputs()) == ["flaky", "steady"]
    assert ran == ["flaky", "flaky", "flaky", "steady"]


async def test_the_second_message_of_an_executor_waits_for_the_attempts_at_the_first(anywhere: Any) -> None:
    called: list[int] = []

    @executor(id="start")
    async def start(n: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(1)
        await ctx.send_message(2)

    @executor(id="flaky", retry=AT_ONCE)
    async def flaky(n: int, ctx: WorkflowContext[None, int]) -> None:
        called.append(n)
        if called.count(n) <= 2:
            raise ValueError
        await ctx.yield_output(n)

    builder = WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=anywhere)
    result = await builder.add_edge(start, flaky).build().run(1)
    assert result.get_outputs() == [1, 2]
    assert called == [1, 1, 1, 2, 2, 2]
    assert attempts([event for event in result if event.executor_id == "flaky"]) == [1, 2, 3, 1, 2, 3]


async def test_a_sub_workflow_is_tried_again_from_where_it_failed(storage: Any) -> None:
    ran: list[str] = []

    @executor(id="first")
    async def first(n: int) -> str:
        ran.append("first")
        return str(n)

    @executor(id="second")
    async def second(text: str, ctx: WorkflowContext[None, str]) -> None:
        ran.append("second")
        if ran.count("second") < 3:
            raise ValueError("inside")
        await ctx.yield_output(f"{text}!")

    inner = WorkflowBuilder(name="inner", start_executor=first).add_edge(first, second).build()
    outer = build(WorkflowExecutor(inner, "inner", allow_direct_output=True, retry=AT_ONCE), storage)
    result = await outer.run(1, run_id="r")
    assert result.get_outputs() == ["1!"]
    assert ran == ["first", "second", "second", "second"]
    retried = [event for event in result if event.type == "executor_retrying"]
    assert [(event.path, event.executor_id, details_of(event).message) for event in retried] == [
        ((), "inner", "inside"),
        ((), "inner", "inside"),
    ]


# stopped in between, and gone on with

SOON = RetryPolicy(max_attempts=3, initial_interval=50, jitter=0)  # seconds: waited for in memory


async def test_a_run_that_is_cancelled_while_it_backs_off_goes_on_counting(storage: Any, later: Any) -> None:
    called: list[int] = []
    stream = build(failing(1, called, retry=SOON), storage).run(7, run_id="r", stream=True)
    async for event in stream:
        if event.type == "executor_retrying":
            await stream.cancel()
    head = await storage.get_latest(run_id="r")
    assert head.status is WorkflowRunState.CANCELLED
    later(seconds=51)
    result = await build(failing(1, called, retry=SOON), storage).run(run_id="r")
    assert (attempts(result), result.get_outputs(), called) == ([2], [7], [7, 7])


async def test_a_run_that_is_left_while_it_backs_off_goes_on_counting(storage: Any, later: Any) -> None:
    called: list[int] = []
    for number in (1, 2):
        async with build(failing(2, called, retry=SOON), storage).run(7, run_id="r", stream=True) as stream:
            async for event in stream:
                if event.type == "executor_retrying":
                    break
        assert len(called) == number
        later(seconds=101)
    result = await build(failing(2, called, retry=SOON), storage).run(run_id="r")
    assert (attempts(result), result.get_outputs(), called) == ([3], [7], [7, 7, 7])


async def test_a_back_off_of_more_than_a_minute_puts_the_run_aside(storage: Any, later: Any) -> None:
    called: list[int] = []
    flaky = failing(2, called, retry=hourly(max_attempts=3))
    result = await build(flaky, storage).run(7, run_id="r")
    assert result.get_final_state() is WorkflowRunState.IN_PROGRESS
    assert [due.run_id for due in await storage.ready_runs(by=result.wakes_at)] == ["r"]
    assert await storage.ready_runs() == []
    early = await build(flaky, storage).run(run_id="r")
    assert (early.wakes_at, attempts(early), called) == (result.wakes_at, [], [7])
    later(minutes=61)
    assert [due.run_id for due in await storage.ready_runs()] == ["r"]
    second = await build(flaky, storage).run(run_id="r")
    assert (attempts(second), attempts(second, "executor_retrying")) == ([2], [2])
    later(minutes=61)
    third = await build(flaky, storage).run(run_id="r")
    assert (attempts(third), third.get_outputs(), third.wakes_at) == ([3], [7], None)
    assert await storage.ready_runs() == []


@pytest.mark.parametrize("unwanted", [False, True])
async def test_a_run_that_failed_and_is_resumed_on_purpose_has_all_its_attempts_again(
    storage: Any, unwanted: bool
) -> None:
    """Whether it had used them up, or failed in a way that was not worth another one."""
    called: list[int] = []
    errors: list[type[Exception]] = [KeyError] if unwanted else [ValueError] * 3

    @executor(id="flaky", retry=RetryPolicy(max_attempts=3, initial_interval=0, retry_on=ValueError))
    async def flaky(n: int, ctx: WorkflowContext[None, int]) -> None:
        called.append(n)
        if errors:
            raise errors.pop(0)
        await ctx.yield_output(n)

    with pytest.raises(HandlerFailed):
        await build(flaky, storage).run(7, run_id="r")
    first = len(called)
    errors += [ValueError] * 3
    with pytest.raises(HandlerFailed):
        await build(flaky, storage).run(run_id="r")
    assert len(called) == first + 3
    errors += [ValueError] * 2
    assert (await build(flaky, storage).run(run_id="r")).get_outputs() == [7]
    assert len(called) == first + 6


async def test_fewer_attempts_in_the_next_version_of_the_program_are_obeyed(storage: Any, later: Any) -> None:
    called: list[int] = []
    many, few = hourly(max_attempts=9), hourly(max_attempts=2)
    await build(failing(9, called, retry=many), storage).run(7, run_id="r")
    for _ in range(2):
        later(minutes=61)
        await build(failing(9, called, retry=many), storage).run(run_id="r")
    later(minutes=61)
    with pytest.raises(HandlerFailed):
        await build(failing(9, called, retry=few), storage).run(run_id="r")
    assert len(called) == 4


async def test_what_was_given_up_is_not_tried_again_because_the_process_died_before_it_could_say_so() -> None:
    inner, called = MemoryStore(), list[int]()
    dying = BuiltInStorage(CrashingStore(inner, 4, after=True))  # the input and three failures are its last writes
    with pytest.raises(Crash):
        await build(failing(9, called), dying).run(7, run_id="r")
    kept = BuiltInStorage(inner)
    assert [one.status for one in await kept.list_checkpoints(run_id="r")] == [WorkflowRunState.IN_PROGRESS]
    with pytest.raises(HandlerFailed, match="ValueError: failure 3") as raised:
        await build(failing(9, called), kept).run(run_id="r")
    assert raised.value.executor_id == "flaky"
    assert len(called) == 3
    failed = [event for event in await kept.event_history("r") if event.type == "executor_failed"]
    assert [details_of(event).message for event in failed] == ["failure 3"]
    assert (await build(failing(4, called), kept).run(run_id="r")).get_outputs() == [7]  # that was on purpose
    assert len(called) == 5


def sleeper(ran: list[str], trouble: list[str]) -> Workflow:
    @executor(id="sleeper", retry=RetryPolicy(max_attempts=2, initial_interval=0))
    async def sleeping(text: str, ctx: WorkflowContext[None, str]) -> None:
        ran.append("called")
        if trouble and trouble[0] == "before":
            raise ConnectionError(trouble.pop(0))
        await ctx.sleep(3600)
        if trouble and trouble[0] == "after":
            raise ConnectionError(trouble.pop(0))
        await ctx.yield_output(text)

    return WorkflowBuilder(name="w", start_executor=sleeping).build()


async def test_what_was_given_up_and_resumed_on_purpose_is_not_given_up_again_when_it_wakes(
    storage: Any, later: Any
) -> None:
    ran = list[str]()
    work = sleeper(ran, ["before", "before"])
    with pytest.raises(HandlerFailed):
        await work.run("up", run_id="r", checkpoint_storage=storage)
    asleep = await work.run(run_id="r", checkpoint_storage=storage)
    assert asleep.wakes_at is not None
    later(minutes=61)
    assert (await work.run(run_id="r", checkpoint_storage=storage)).get_outputs() == ["up"]
    assert len(ran) == 4


async def test_what_was_given_up_after_it_woke_stays_so_if_the_process_dies_before_it_is_said(later: Any) -> None:
    ran, store = list[str](), MemoryStore()
    work = sleeper(ran, ["after", "after"])
    await work.run("up", run_id="r", checkpoint_storage=BuiltInStorage(store))
    later(minutes=61)
    dying = CrashingStore(store, 3)  # two attempts that failed are noted; that the run failed is not
    with pytest.raises(Crash):
        await work.run(run_id="r", checkpoint_storage=BuiltInStorage(dying))
    assert len(ran) == 3
    with pytest.raises(HandlerFailed):
        await work.run(run_id="r", checkpoint_storage=BuiltInStorage(store))
    assert len(ran) == 3
