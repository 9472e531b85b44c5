"""Attempts: how often a handler is tried, what each attempt is given, and what is left of those that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    CodecError,
    Executor,
    FileCheckpointStorage,
    HandlerFailed,
    InMemoryCheckpointStorage,
    RetryPolicy,
    RunError,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    handler,
    persistent,
    response_handler,
)
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from tests.support.crashing import Crash, CrashingStore
from tests.support.streams import details_of

AT_ONCE = RetryPolicy(max_attempts=3, initial_interval=0)


def hourly(max_attempts: int) -> RetryPolicy:
    """So far apart that a run is put aside in between."""
    return RetryPolicy(max_attempts, initial_interval=3600, max_interval=3600, jitter=0)


class SixMethods:
    """A storage that can do no more than it must."""

    def __init__(self) -> None:
        self._kept: dict[str, WorkflowCheckpoint] = {}

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        self._kept[checkpoint.checkpoint_id] = checkpoint
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        return self._kept[checkpoint_id]

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        return [one for one in self._kept.values() if one.workflow_name == workflow_name]

    async def delete(self, checkpoint_id: str) -> bool:
        return self._kept.pop(checkpoint_id, None) is not None

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        return (await self.list_checkpoints(workflow_name=workflow_name))[-1]

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        return [one.checkpoint_id for one in await self.list_checkpoints(workflow_name=workflow_name)]


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


class Frozen:
    """A clock that stands still until it is told what time it is."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def seconds(self) -> float:
        return self.now.timestamp()


@pytest.fixture
def frozen() -> Iterator[Frozen]:
    stopped = Frozen()
    clock.set_source(stopped.seconds)
    yield stopped
    clock.set_source()


def build(start: Any, storage: Any = None, **options: Any) -> Workflow:
    return WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=storage, **options).build()


def attempts(events: Any, type: str = "executor_invoked") -> list[int | None]:
    return [event.attempt for event in events if event.type == type]


def failing(times: int, called: list[Any], *, plain: bool = False, **options: Any) -> Any:
    """An executor that raises so many times before it yields; it writes down what it is called with."""
    options.setdefault("retry", AT_ONCE)

    def work(n: int, ctx: WorkflowContext[None, int]) -> None:
        called.append(n)
        if len(called) <= times:
            raise ValueError(f"failure {len(called)}")
        ctx.yield_output(n)

    async def async_work(n: int, ctx: WorkflowContext[None, int]) -> None:
        work(n, ctx)

    return executor(id="flaky", **options)(work if plain else async_work)


# how often


@pytest.mark.parametrize("plain", [False, True])
async def test_a_handler_is_tried_until_it_returns_and_an_event_tells_each_attempt(anywhere: Any, plain: bool) -> None:
    called: list[int] = []
    result = await build(failing(2, called, plain=plain), anywhere).run(7)
    assert result.get_outputs() == [7]
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert called == [7, 7, 7]
    assert attempts(result) == [1, 2, 3]
    assert attempts(result, "executor_retrying") == [1, 2]
    assert attempts(result, "executor_completed") == [3]
    told = [event for event in result if event.type == "executor_retrying"]
    failures = [details_of(event) for event in told]
    assert [(event.executor_id, one.error_type, one.message) for event, one in zip(told, failures, strict=True)] == [
        ("flaky", "ValueError", "failure 1"),
        ("flaky", "ValueError", "failure 2"),
    ]
    assert all(event.data.tzinfo is not None and not event.durable for event in told)
    assert "raise ValueError" in (failures[0].traceback or "")


@pytest.mark.parametrize("plain", [False, True])
async def test_the_last_failure_fails_the_run_and_is_the_cause(anywhere: Any, plain: bool) -> None:
    called: list[int] = []
    events: list[Any] = []

    async def read() -> None:
        async for event in build(failing(9, called, plain=plain), anywhere).run(7, stream=True):
            events.append(event)

    with pytest.raises(HandlerFailed) as raised:
        await read()
    assert str(raised.value.__cause__) == "failure 3"
    assert attempts(events) == [1, 2, 3]
    assert attempts(events, "executor_retrying") == [1, 2]
    assert [event.details.message for event in events if event.type == "executor_failed"] == ["failure 3"]
    assert len(called) == 3


async def test_without_a_policy_a_handler_is_tried_once(anywhere: Any) -> None:
    called: list[int] = []
    with pytest.raises(HandlerFailed):
        await build(failing(1, called, retry=None), anywhere).run(7)
    assert called == [7]


async def test_one_attempt_is_one_attempt(anywhere: Any) -> None:
    called: list[int] = []
    with pytest.raises(HandlerFailed):
        await build(failing(1, called, retry=RetryPolicy(max_attempts=1)), anywhere).run(7)
    assert called == [7]


async def test_attempts_take_no_supersteps() -> None:
    assert (await build(failing(2, []), max_iterations=1).run(7)).get_outputs() == [7]


async def test_what_a_handler_says_beats_what_its_executor_says() -> None:
    called: list[str] = []

    class Both(Executor):
        @handler(retry=RetryPolicy(max_attempts=2, initial_interval=0))
        async def number(self, n: int, ctx: WorkflowContext) -> None:
            called.append("number")
            raise ValueError

        @handler
        async def text(self, s: str, ctx: WorkflowContext) -> None:
            called.append("text")
            raise ValueError

    workflow = build(Both("both", retry=RetryPolicy(max_attempts=4, initial_interval=0)))
    for message in (1, "a"):
        with pytest.raises(HandlerFailed):
            await workflow.run(message)
    assert called == ["number"] * 2 + ["text"] * 4


async def test_a_response_handler_is_tried_again_with_the_question_and_the_answer_as_they_were(storage: Any) -> None:
    got: list[Any] = []

    class Asker(Executor):
        @handler
        async def ask(self, n: int, ctx: WorkflowContext) -> None:
            await ctx.request_info({"n": [n]}, list[int], request_id="q")

        @response_handler(retry=AT_ONCE)
        async def take(
            self, original_request: dict[str, list[int]], response: list[int], ctx: WorkflowContext[None, str]
        ) -> None:
            got.append((ctx.request_id, original_request["n"].copy(), response.copy()))
            original_request["n"].clear()
            response.append(99)
            await ctx.request_info({"n": [99]}, list[int], request_id="q2")
            if len(got) < 3:
                raise ValueError
            await ctx.yield_output("taken")

    workflow = build(Asker("asker"), storage)
    await workflow.run(1, run_id="r")
    result = await workflow.run(run_id="r", responses={"q": [2]})
    assert result.get_outputs() == ["taken"]
    assert got == [("q", [1], [2])] * 3
    assert [event.request_id for event in result.get_request_info_events()] == ["q2"]
    assert [one.request_id for one in await storage.pending_requests()] == ["q2"]


# which errors


class Busy(Exception):
    def __init__(self, status: int) -> None:
        self.status = status


@pytest.mark.parametrize(
    ("retry_on", "error", "calls"),
    [
        (Busy, Busy(503), 3),
        (Busy, ValueError(), 1),
        ((OSError, Busy), Busy(503), 3),
        ((), Busy(503), 1),
        (lambda error: error.status == 503, Busy(503), 3),
        (lambda error: error.status == 503, Busy(404), 1),
        (BaseException, asyncio.CancelledError(), 1),  # that is no failure: somebody wants it to stop
    ],
)
async def test_only_the_errors_that_are_named_are_tried_again(retry_on: Any, error: BaseException, calls: int) -> None:
    called: list[int] = []

    @executor(retry=RetryPolicy(max_attempts=3, initial_interval=0, retry_on=retry_on))
    async def work(n: int) -> None:
        called.append(n)
        raise error

    with pytest.raises(HandlerFailed) as raised:
        await build(work, InMemoryCheckpointStorage()).run(1)
    assert raised.value.__cause__ is error
    assert len(called) == calls


async def test_what_cannot_be_stored_does_not_get_better_by_repetition() -> None:
    called: list[int] = []

    @executor(retry=AT_ONCE)
    async def work(n: int, ctx: WorkflowContext[Any]) -> None:
        called.append(n)
        await ctx.send_message(object())

    with pytest.raises(CodecError):
        await build(work, InMemoryCheckpointStorage()).run(1)
    assert called == [1]


async def test_if_the_function_that_decides_is_broken_the_run_fails_with_what_it_was_asked_about(storage: Any) -> None:
    called: list[int] = []
    broken: list[bool] = [True]

    def decide(error: Exception) -> bool:
        if broken:
            raise KeyError("status")
        return True

    flaky = failing(3, called, retry=RetryPolicy(max_attempts=3, initial_interval=0, retry_on=decide))
    with pytest.raises(HandlerFailed) as raised:
        await build(flaky, storage).run(1, run_id="r")
    cause = raised.value.__cause__
    assert cause is not None
    assert str(cause) == "failure 1"
    assert "retry_on raised KeyError: 'status'" in cause.__notes__[0]
    failed = [event for event in await storage.event_history("r") if event.type == "executor_failed"]
    assert "not retried: retry_on raised" in (failed[0].details.traceback or "")
    broken.clear()
    assert (await build(flaky, storage).run(run_id="r")).get_outputs() == [1]
    assert len(called) == 4


# how long it waits


async def test_every_wait_is_longer_than_the_one_before_and_is_told(storage: Any, frozen: Frozen) -> None:
    called: list[int] = []
    begun = frozen.now
    policy = RetryPolicy(max_attempts=9, initial_interval=3600, max_interval=timedelta(hours=5), jitter=0)
    flaky = failing(4, called, retry=policy)
    result = await build(flaky, storage).run(7, run_id="r")
    for hours in (1, 1 + 2, 1 + 2 + 4, 1 + 2 + 4 + 5):
        assert result.wakes_at == begun + timedelta(hours=hours)
        assert [event.data for event in result if event.type == "executor_retrying"] == [result.wakes_at]
        frozen.now = result.wakes_at
        result = await build(flaky, storage).run(run_id="r")
    assert result.get_outputs() == [7]
    assert attempts(result, "executor_completed") == [5]


async def test_chance_shortens_a_wait_by_no_more_than_its_share(storage: Any, frozen: Frozen) -> None:
    policy = RetryPolicy(initial_interval=7200, max_interval=7200, jitter=0.5)
    waits = []
    for number in range(20):
        result = await build(failing(9, [], retry=policy), storage).run(7, run_id=str(number))
        assert result.wakes_at is not None
        waits.append((result.wakes_at - frozen.now).total_seconds())
    assert min(waits) >= 3600
    assert max(waits) <= 7200
    assert len(set(waits)) == 20


async def test_a_wait_that_is_longer_than_all_dates_is_until_the_last_one(storage: Any) -> None:
    policy = RetryPolicy(initial_interval=1e300, max_interval=1e300)
    result = await build(failing(1, [], retry=policy), storage).run(7, run_id="r")
    assert result.wakes_at is not None
    assert result.wakes_at.year == 9999
    assert (await build(failing(1, [], retry=policy), storage).run(run_id="r")).wakes_at == result.wakes_at


# what an attempt is given


@pytest.mark.parametrize("plain", [False, True])
async def test_each_attempt_gets_the_message_as_it_was_sent(anywhere: Any, plain: bool) -> None:
    seen: list[Any] = []

    def spoil(message: dict[str, list[int]]) -> dict[str, list[int]]:
        seen.append(repr(message))
        message["a"].append(2)
        message["b"] = []
        if len(seen) < 3:
            raise ValueError
        return message

    async def async_spoil(message: dict[str, list[int]]) -> dict[str, list[int]]:
        return spoil(message)

    @executor(id="end")
    async def end(message: dict[str, list[int]], ctx: WorkflowContext[None, Any]) -> None:
        await ctx.yield_output(message)

    flaky = executor(id="flaky", retry=AT_ONCE)(spoil if plain else async_spoil)
    builder = WorkflowBuilder(name="w", start_executor=flaky, checkpoint_storage=anywhere).add_edge(flaky, end)
    given = {"a": [1]}
    result = await builder.build().run(given)
    assert seen == [repr({"a": [1]})] * 3
    assert given == {"a": [1]}
    assert result.get_outputs() == [{"a": [1, 2], "b": []}]
    assert [event.data for event in result if event.type == "executor_invoked"][:3] == [{"a": [1]}] * 3


async def test_a_fan_in_is_tried_again_with_all_that_was_joined(anywhere: Any) -> None:
    seen: list[list[int]] = []

    @executor(id="start")
    async def start(n: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(n)

    @executor(id="one")
    async def one(n: int) -> int:
        return n + 1

    @executor(id="two")
    async def two(n: int) -> int:
        return n + 2

    @executor(id="join", retry=AT_ONCE)
    async def join(found: list[int], ctx: WorkflowContext[None, int]) -> None:
        seen.append(found.copy())
        found.clear()
        if len(seen) < 3:
            raise ValueError
        await ctx.yield_output(sum(seen[-1]))

    builder = WorkflowBuilder(name="w", start_executor=start, checkpoint_storage=anywhere)
    workflow = builder.add_fan_out_edges(start, [one, two]).add_fan_in_edges([one, two], join).build()
    assert (await workflow.run(0)).get_outputs() == [3]
    assert seen == [[1, 2]] * 3


async def test_the_key_of_a_delivery_is_the_same_for_every_attempt(storage: Any, later: Any) -> None:
    keys: list[str] = []

    @executor(id="pay", retry=hourly(max_attempts=4))
    async def pay(n: int, ctx: WorkflowContext) -> None:
        keys.append(ctx.idempotency_key)
        if len(keys) < 3:
            raise ValueError

    result = await build(pay, storage).run(1, run_id="r")
    while result.wakes_at is not None:
        later(minutes=61)
        result = await build(pay, storage).run(run_id="r")
    assert len(keys) == 3
    assert len(set(keys)) == 1


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
    assert [due.run_id for due in await storage.due_runs(by=result.wakes_at)] == ["r"]
    assert await storage.due_runs() == []
    early = await build(flaky, storage).run(run_id="r")
    assert (early.wakes_at, attempts(early), called) == (result.wakes_at, [], [7])
    later(minutes=61)
    assert [due.run_id for due in await storage.due_runs()] == ["r"]
    second = await build(flaky, storage).run(run_id="r")
    assert (attempts(second), attempts(second, "executor_retrying")) == ([2], [2])
    later(minutes=61)
    third = await build(flaky, storage).run(run_id="r")
    assert (attempts(third), third.get_outputs(), third.wakes_at) == ([3], [7], None)
    assert await storage.due_runs() == []


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
