"""What a handler does side by side: each branch has steps, keys and timers of its own, in every repetition."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pydantic
import pytest

from stepwell import (
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    RetryPolicy,
    StepChanged,
    StepOptions,
    StoreUnavailable,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
)
from stepwell.codec.codec import Codec
from stepwell.engine.handler.branches import UnidentifiedBranch
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.step_calls import describe_value
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import FakeClock
from stepwell.testing.faults.wrapped_store import WrappedStore

Body = Callable[[WorkflowContext], Any]


class Doer(Executor):
    """Does what a test gives it to do; fails at its first call, after everything was done."""

    def __init__(self, body: Body, calls: list[str]) -> None:
        super().__init__("doer")
        self.body, self.calls = body, calls

    @handler
    async def do(self, text: str, ctx: WorkflowContext[None, Any]) -> None:
        self.calls.append(text)
        result = await self.body(ctx)
        if len(self.calls) == 1:
            raise OSError("late")
        await ctx.yield_output(result)


def build(storage: Any, body: Body, calls: list[str] | None = None) -> Workflow:
    start = Doer(body, calls if calls is not None else [])
    return WorkflowBuilder(name="doing", start_executor=start, checkpoint_storage=storage).build()


async def twice(storage: Any, body: Body, **options: Any) -> Any:
    """What the body gives at its second call, after the first one failed and another program resumed the run."""
    calls: list[str] = []
    with pytest.raises(HandlerFailed, match="late"):
        await build(storage, body, calls).run("go", run_id="r")
    (result,) = (await build(storage, body, calls).run(run_id="r", **options)).get_outputs()
    return result


class Bank:
    """Gives a receipt for each order, and knows which key each order was charged with."""

    def __init__(self) -> None:
        self.keys: dict[str, list[str]] = {}

    def charging(self, order: str) -> Callable[..., Any]:
        async def charge(idempotency_key: str) -> str:
            self.keys.setdefault(order, []).append(idempotency_key)
            return f"receipt for {order}"

        return charge


async def pause(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


async def test_branches_that_wait_differently_get_their_own_receipts_and_keys(storage: Any) -> None:
    """Without arguments nothing but their place tells the two charges apart."""
    bank, trouble = Bank(), [5]

    async def order(ctx: WorkflowContext, name: str, turns: int) -> str:
        await pause(turns)
        return str(await ctx.step("charge", bank.charging(name)))

    async def body(ctx: WorkflowContext) -> Any:
        slow = trouble.pop() if trouble else 0  # the one that came last comes first when it runs again
        return list(await asyncio.gather(order(ctx, "a", slow), order(ctx, "b", 2)))

    assert await twice(storage, body) == ["receipt for a", "receipt for b"]
    assert [len(keys) for keys in bank.keys.values()] == [1, 1]
    assert bank.keys["a"] != bank.keys["b"]


async def test_a_step_that_was_not_done_is_done_with_its_own_key_when_the_order_changes(storage: Any) -> None:
    bank, calls = Bank(), list[int]()

    async def order(ctx: WorkflowContext, name: str, turns: int) -> str:
        await pause(turns)
        if name == "a" and len(calls) == 1:
            await ctx.step(StepOptions("charge", retry=None), bank.charging("a, and then its line broke"))
            raise OSError("late")
        return str(await ctx.step("charge", bank.charging(name)))

    async def body(ctx: WorkflowContext) -> Any:
        calls.append(1)
        first = len(calls) == 1
        return list(await asyncio.gather(order(ctx, "a", 3 if first else 0), order(ctx, "b", 0 if first else 3)))

    assert await twice(storage, body) == ["receipt for a, and then its line broke", "receipt for b"]
    assert bank.keys.keys() == {"a, and then its line broke", "b"}


async def test_what_a_step_does_inside_is_not_missed_when_it_is_recalled(storage: Any) -> None:
    bank = Bank()

    async def body(ctx: WorkflowContext) -> Any:
        async def outer() -> str:
            return "outer, " + str(await ctx.step("charge", bank.charging("inner")))

        return [await ctx.step("outer", outer), await ctx.step("charge", bank.charging("after"))]

    assert await twice(storage, body) == ["outer, receipt for inner", "receipt for after"]
    assert [len(keys) for keys in bank.keys.values()] == [1, 1]


async def test_threads_of_branches_get_their_own_results(storage: Any) -> None:
    bank, turns = Bank(), [(5, 0), (0, 5)]

    async def order(ctx: WorkflowContext, name: str, wait: int) -> Any:
        await pause(wait)
        return await asyncio.to_thread(lambda: [ctx.step_sync("charge", bank.charging(f"{name}{n}")) for n in range(2)])

    async def body(ctx: WorkflowContext) -> Any:
        a, b = turns.pop()
        return [*await order(ctx, "x", 0), await asyncio.gather(order(ctx, "a", a), order(ctx, "b", b))]

    receipts = await twice(storage, body)
    assert receipts == [
        "receipt for x0",
        "receipt for x1",
        [["receipt for a0", "receipt for a1"], ["receipt for b0", "receipt for b1"]],
    ]
    assert [len(keys) for keys in bank.keys.values()] == [1] * 6


async def test_tasks_with_a_context_of_their_own_are_branches_too(storage: Any) -> None:
    bank, turns = Bank(), [(4, 0), (0, 4)]

    async def order(ctx: WorkflowContext, name: str, wait: int) -> Any:
        await pause(wait)
        return await ctx.step("charge", bank.charging(name))

    async def body(ctx: WorkflowContext) -> Any:
        (a, b), shared = turns.pop(), contextvars.copy_context()
        tasks = [asyncio.create_task(order(ctx, *one), context=shared) for one in (("a", a), ("b", b))]
        return list(await asyncio.gather(*tasks))

    assert await twice(storage, body) == ["receipt for a", "receipt for b"]
    assert [len(keys) for keys in bank.keys.values()] == [1, 1]


async def test_a_task_factory_of_the_program_still_makes_the_tasks() -> None:
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any) -> Any:  # one that knows nothing of options
        made.append(coroutine.__qualname__)
        return asyncio.Task(coroutine, loop=loop)

    loop, bank, turns = asyncio.get_running_loop(), Bank(), [(4, 0), (0, 4)]

    async def order(ctx: WorkflowContext, name: str, wait: int) -> Any:
        await pause(wait)
        return await ctx.step("charge", bank.charging(name))

    async def body(ctx: WorkflowContext) -> Any:
        a, b = turns.pop()
        return list(await asyncio.gather(order(ctx, "a", a), order(ctx, "b", b)))

    before = loop.get_task_factory()
    loop.set_task_factory(factory)
    try:
        assert await twice(InMemoryCheckpointStorage(), body) == ["receipt for a", "receipt for b"]
    finally:
        loop.set_task_factory(before)
    assert sum(name.endswith("order") for name in made) == 4


async def test_sleeps_of_branches_are_their_own(storage: Any) -> None:
    """Whoever sleeps for five seconds must not wait for the one that sleeps for fifty."""
    waits = [(2, 0), (0, 2)]

    async def nap(ctx: WorkflowContext, name: str, seconds: float, wait: int) -> None:
        await pause(wait)
        await ctx.sleep(seconds)
        raise OSError(f"{name} is awake")

    async def fail(ctx: Any) -> None:
        async with asyncio.timeout(10):
            while len(ctx.steps._log.keys_under(f"{ctx.delivery.id}/timer/")) < 2:  # noqa: ASYNC110 - until both sleep
                await asyncio.sleep(0.001)
        raise OSError("late")

    async def body(ctx: WorkflowContext) -> Any:
        long, short = waits.pop()
        others = [fail(ctx)] if waits else []
        await asyncio.gather(nap(ctx, "long", 50, long), nap(ctx, "short", 5, short), *others)

    with FakeClock() as later:
        with pytest.raises(HandlerFailed, match="late"):
            await build(storage, body).run("go", run_id="r")
        later(seconds=10)
        with pytest.raises(HandlerFailed, match="short is awake"):
            await build(storage, body).run(run_id="r")


@pytest.mark.parametrize("how", ["thread", "pool", "task"])
async def test_where_nobody_can_say_which_branch_asks_a_step_needs_a_key(how: str) -> None:
    async def count() -> int:
        return 1

    def started(step: Callable[[], Any]) -> Any:
        if how == "pool":
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(step).result()
        found: list[Any] = []

        def run() -> None:
            try:
                found.append(step())
            except UnidentifiedBranch as error:
                found.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    async def body(ctx: WorkflowContext, **key: Any) -> Any:
        if how == "task":

            async def ask() -> Any:
                return await ctx.step(StepOptions("count", **key), count)

            return await asyncio.Task(ask(), loop=asyncio.get_running_loop())
        return await asyncio.to_thread(started, lambda: ctx.step_sync(StepOptions("count", **key), count))

    with pytest.raises(HandlerFailed) as raised:
        await build(None, body).run("go")
    assert isinstance(raised.value.__cause__, UnidentifiedBranch)
    assert "key=...)" in str(raised.value.__cause__)
    result = await build(None, lambda ctx: body(ctx, key="k"), ["not the first call"]).run("go")
    assert result.get_outputs() == [1]


async def test_two_threads_of_one_branch_cannot_ask_at_the_same_time() -> None:
    asked, over = threading.Event(), asyncio.Event()

    async def slow() -> None:
        asked.set()
        await over.wait()

    async def body(ctx: WorkflowContext) -> Any:
        def ask() -> None:
            ctx.step_sync("slow", slow)

        def ask_meanwhile() -> None:
            assert asked.wait(10)
            ctx.step_sync("slow", slow)

        loop = asyncio.get_running_loop()
        first, second = (
            loop.run_in_executor(None, contextvars.copy_context().run, function) for function in (ask, ask_meanwhile)
        )
        try:
            with pytest.raises(UnidentifiedBranch, match="two threads of one branch"):
                await second
        finally:
            over.set()
        await first

    assert (await build(None, body, ["not the first call"]).run("go")).get_outputs() == [None]


async def test_a_changed_argument_is_refused_with_both_calls_and_the_remedies(storage: Any) -> None:
    amounts = [31, 31, 30]

    async def charge(amount: int, secret: str) -> int:
        return amount

    async def body(ctx: WorkflowContext) -> Any:
        return await ctx.step("charge", charge, amounts.pop(), secret="sk-123")

    with pytest.raises(HandlerFailed, match="late"):
        await build(storage, body).run("go", run_id="r")
    calls = ["not the first call"]
    with pytest.raises(StepChanged) as raised:
        await build(storage, body, calls).run(run_id="r")
    error = raised.value
    assert error.executor_id == "doer"
    assert error.stored != error.asked
    for call in (error.stored, error.asked):
        assert call in str(error)
        assert "charge(int#" in call
        assert "secret=str#" in call
    assert "key=" in str(error)
    assert "on_changed_step='recall'" in str(error)
    assert "sk-123" not in str(error)
    result = await build(storage, body, calls).run(run_id="r", on_changed_step="recall")
    assert result.get_outputs() == [30]


async def test_another_function_is_refused_and_a_changed_body_is_not(storage: Any) -> None:
    async def charge() -> int:
        return 1

    async def refund() -> int:
        return 2

    functions = [charge, refund, charge]

    async def body(ctx: WorkflowContext) -> Any:
        return await ctx.step("charge", functions.pop())

    with pytest.raises(HandlerFailed, match="late"):
        await build(storage, body).run("go", run_id="r")
    with pytest.raises(StepChanged, match=r"charge\(\), and is now called as .*refund\(\)"):
        await build(storage, body, ["again"]).run(run_id="r")
    assert (await build(storage, body, ["again"]).run(run_id="r")).get_outputs() == [1]


async def test_equal_arguments_are_the_same_in_whatever_order_they_are_kept(storage: Any) -> None:
    given = [({"b": 1, "a": {3, 2, 1}}, {1: "x", (2, 3): "y"}), ({"a": {1, 2, 3}, "b": 1}, {(2, 3): "y", 1: "x"})]

    async def count(plain: Any, odd: Any, client: Any) -> int:
        return 1

    async def body(ctx: WorkflowContext) -> Any:
        return await ctx.step("count", count, *given.pop(), client=object())

    assert await twice(storage, body) == 1


async def test_a_key_says_which_step_it_is_whatever_its_arguments(storage: Any) -> None:
    done: list[int] = []

    async def charge(amount: int) -> int:
        done.append(amount)
        await asyncio.sleep(0)
        return amount

    amounts = [[7, 8, 9], [1, 2, 3]]

    async def body(ctx: WorkflowContext) -> Any:
        first, second, third = amounts.pop()
        shared = await asyncio.gather(*(ctx.step(StepOptions("charge", key="a"), charge, n) for n in (first, second)))
        return [*shared, await ctx.step(StepOptions("charge", key="b"), charge, third)]

    assert await twice(storage, body) == [1, 1, 3]
    assert done == [1, 3]


@pytest.mark.parametrize("key", ["", 3, "\ud800"])
async def test_a_key_is_a_text(key: Any) -> None:
    async def body(ctx: WorkflowContext) -> Any:
        await ctx.step(StepOptions("a", key=key), asyncio.sleep, 0)

    with pytest.raises(HandlerFailed, match="the key of the step 'a'"):
        await build(None, body).run("go")


async def test_what_to_do_with_a_changed_step_is_one_of_two() -> None:
    async def body(ctx: WorkflowContext) -> None: ...

    with pytest.raises(ValueError, match="on_changed_step must be 'refuse' or 'recall'"):
        await build(None, body).run("go", on_changed_step="ignore")  # type: ignore[call-overload]


async def test_a_run_inside_takes_stored_results_if_its_caller_is_told_to(storage: Any) -> None:
    amounts, calls = [31, 31, 30], list[str]()

    async def charge(amount: int) -> int:
        return amount

    async def body(ctx: WorkflowContext) -> Any:
        return await ctx.step("charge", charge, amounts.pop())

    def around() -> Workflow:
        inside = WorkflowExecutor(build(None, body, calls), "inside", allow_direct_output=True)
        return WorkflowBuilder(name="around", start_executor=inside, checkpoint_storage=storage).build()

    with pytest.raises(HandlerFailed, match="late"):
        await around().run("go", run_id="r")
    with pytest.raises(StepChanged):
        await around().run(run_id="r")
    assert (await around().run(run_id="r", on_changed_step="recall")).get_outputs() == [30]


@pytest.mark.long
async def test_a_task_that_outlives_its_handler_keeps_nothing_of_it_alive() -> None:
    left: list[asyncio.Task[Any]] = []
    seen: list[weakref.ref[Any]] = []

    async def idle() -> None:
        await asyncio.Event().wait()

    async def body(ctx: Any) -> None:
        left.append(asyncio.create_task(idle()))
        seen.append(weakref.ref(ctx.steps))

    await build(None, body, ["not the first call"]).run("go")
    gc.collect()
    assert [one() for one in seen] == [None]
    left[0].cancel()


async def test_what_a_step_with_a_key_does_inside_is_the_same_whichever_branch_asks(storage: Any) -> None:
    bank, waits = Bank(), [(4, 0), (0, 4)]

    async def body(ctx: WorkflowContext) -> Any:
        first, second = waits.pop()

        async def outer() -> str:
            receipt = str(await ctx.step("charge", bank.charging("x")))
            if waits:
                raise OSError("late")
            return receipt

        async def ask(wait: int) -> Any:
            await pause(wait)
            return await ctx.step(StepOptions("shared", key="k"), outer)

        return list(await asyncio.gather(ask(first), ask(second)))

    assert await twice(storage, body) == ["receipt for x"] * 2
    assert len(bank.keys["x"]) == 1


async def test_threads_of_tasks_with_a_context_of_their_own_belong_to_them(storage: Any) -> None:
    waits = [(4, 0), (0, 4)]

    async def body(ctx: WorkflowContext) -> Any:
        async def order(name: str, wait: int) -> Any:
            def charge() -> str:
                return f"receipt for {name}"

            await pause(wait)
            return await asyncio.to_thread(ctx.step_sync, "charge", charge)

        a, b = waits.pop()
        copies = [contextvars.copy_context() for _ in range(2)]
        tasks = [asyncio.create_task(order(*one), context=copies.pop()) for one in (("a", a), ("b", b))]
        return list(await asyncio.gather(*tasks))

    assert await twice(storage, body) == ["receipt for a", "receipt for b"]


async def test_tasks_that_share_a_context_do_not_end_up_in_each_others_steps(storage: Any) -> None:
    bank = Bank()

    async def body(ctx: WorkflowContext) -> Any:
        async def order(name: str, wait: int) -> Any:
            async def charge(number: int) -> Any:
                await pause(wait)
                return await bank.charging(f"{name}{number}")(idempotency_key="not asked for")

            return [await ctx.step("charge", charge, number) for number in range(3)]

        shared = contextvars.copy_context()
        tasks = [asyncio.create_task(order(*one), context=shared) for one in (("a", 1), ("b", 3))]
        return list(await asyncio.gather(*tasks))

    receipts = await twice(storage, body)
    assert receipts == [[f"receipt for {name}{number}" for number in range(3)] for name in "ab"]
    assert [len(keys) for keys in bank.keys.values()] == [1] * 6


async def test_a_step_under_way_when_its_attempt_fails_is_waited_for_and_recalled(storage: Any) -> None:
    attempts: list[int] = []
    late = asyncio.Event()
    got: list[str] = []

    class Payer(Executor):
        @handler(retry=RetryPolicy(max_attempts=4, initial_interval=0))
        async def do(self, text: str, ctx: WorkflowContext[None, str]) -> None:
            attempts.append(len(attempts) + 1)
            me = len(attempts)

            async def pay() -> str:
                if me == 1:
                    await late.wait()
                return f"receipt {me}"

            async def fail_first() -> None:
                await pause(3)
                if me == 1:
                    asyncio.get_running_loop().call_later(0.05, late.set)
                    raise OSError("first")

            receipt, _ = await asyncio.gather(self.branch(ctx, pay), fail_first())
            got.append(receipt)
            if me == 2:
                raise OSError("second")
            await ctx.yield_output(receipt)

        async def branch(self, ctx: WorkflowContext[None, str], pay: Any) -> str:
            return str(await ctx.step("pay", pay))

    workflow = WorkflowBuilder(name="paying", start_executor=Payer("payer"), checkpoint_storage=storage).build()
    assert (await workflow.run("go")).get_outputs() == ["receipt 1"]
    assert got == ["receipt 1", "receipt 1"]


async def test_a_result_that_could_not_be_stored_is_not_known_to_the_next_attempt() -> None:
    store, done = FailingNotes(MemoryStore()), list[str]()

    class Payer(Executor):
        @handler(retry=RetryPolicy(max_attempts=3, initial_interval=0, retry_on=StoreUnavailable))
        async def do(self, text: str, ctx: WorkflowContext[None, str]) -> None:
            async def pay() -> str:
                done.append(f"receipt {len(done) + 1}")
                return done[-1]

            await ctx.yield_output(await ctx.step("pay", pay))

    storage = BuiltInStorage(store)
    workflow = WorkflowBuilder(name="paying", start_executor=Payer("payer"), checkpoint_storage=storage).build()
    assert (await workflow.run("go")).get_outputs() == ["receipt 2"]
    assert done == ["receipt 1", "receipt 2"]


class FailingNotes(WrappedStore):
    """A store whose first note of a step fails."""

    _failed = False

    async def write(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
        if name == "write_log" and args[2].endswith("/pay") and not self._failed:
            self._failed = True
            raise StoreUnavailable("the disk is full")
        return await call()


async def test_tasks_may_create_tasks_to_any_depth() -> None:
    async def count() -> int:
        return 1

    async def body(ctx: WorkflowContext) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def follow(left: int) -> None:
            if left:
                tasks.append(asyncio.create_task(follow(left - 1)))
            else:
                answer.set_result(await ctx.step("count", count))

        tasks = [asyncio.create_task(follow(3000))]
        return await answer

    assert (await build(None, body, ["not the first call"]).run("go")).get_outputs() == [1]


async def test_what_a_model_computes_for_itself_is_not_compared_and_what_was_added_to_it_is(storage: Any) -> None:
    class Order(pydantic.BaseModel):
        model_config = {"extra": "allow"}
        amount: int = 1

        @functools.cached_property
        def total(self) -> int:
            return self.amount * 2

    async def total(order: Any) -> int:
        return int(order.total)

    async def body(ctx: WorkflowContext) -> Any:
        order = Order(amount=3)
        return [await ctx.step("a", total, order), await ctx.step("b", total, order)]

    assert await twice(storage, body) == [6, 6]
    codec = Codec()
    described = {describe_value(Order.model_validate({"note": note}), codec) for note in ("x", "y")}
    assert len(described) == 2
