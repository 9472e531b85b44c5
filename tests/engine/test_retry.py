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
    SQLiteCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
    handler,
    response_handler,
)
from stepwell.storage import clock
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
