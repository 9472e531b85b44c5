"""A durable function is a workflow: it runs, is resumed, watched, nested and refused like any other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest

from stepwell import (
    DefinitionError,
    HandlerFailed,
    HandlerTimeout,
    RetryPolicy,
    RunContext,
    SQLiteCheckpointStorage,
    StepOptions,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    WorkflowRunState,
    executor,
    get_run_context,
    step,
    workflow,
)
from stepwell.admin import fork
from stepwell.functional import DurableFunction, StepFunction
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import FakeClock


@dataclass
class Order:
    customer: str
    total: int = 5


@dataclass
class Receipt:
    text: str


CALLS: list[str] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


@step
async def lookup(customer: str) -> str:
    CALLS.append(f"lookup {customer}")
    return customer.upper()


@step(name="pay")
def pay(order: Order, idempotency_key: str = "none") -> str:
    CALLS.append(f"pay {idempotency_key}")
    return threading.current_thread().name


@workflow(name="refund", description="Refunds an order.")
async def refund(order: Order, ctx: RunContext) -> Receipt:
    return Receipt(f"{await lookup(order.customer)} {order.total} {ctx.run_id}")


async def test_what_it_returns_is_the_output_of_the_run() -> None:
    result = await refund.run(Order("ann"), run_id="r1")
    assert result.get_outputs() == [Receipt("ANN 5 r1")]
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert [event.executor_id for event in result if event.type == "output"] == ["refund"]


async def test_it_is_a_workflow_with_one_executor_named_after_it() -> None:
    assert isinstance(refund, Workflow)
    assert isinstance(refund, DurableFunction)
    assert (refund.name, refund.description, list(refund.executors)) == ("refund", "Refunds an order.", ["refund"])
    assert (refund.input_types, refund.output_types) == ([Order], [Receipt])
    assert isinstance(lookup, StepFunction)
    assert (lookup.name, vars(lookup)["__name__"]) == ("lookup", "lookup")
    assert repr(refund) == "<durable function 'refund'>"
    assert repr(pay) == "<step 'pay'>"


async def test_a_call_returns_the_result_itself() -> None:
    assert (await refund(Order("bo"))).text.startswith("BO 5 ")


async def test_nothing_is_returned_as_no_output() -> None:
    @workflow
    async def silent() -> None:
        await lookup("x")

    assert (await silent.run()).get_outputs() == []
    results: list[object] = [await cast(Any, silent)()]
    assert results == [None]


async def test_both_parameters_may_be_missing_and_stand_in_any_order() -> None:
    @workflow
    async def neither() -> str:
        return "neither"

    @workflow
    async def only_context(ctx) -> str:  # type: ignore[no-untyped-def]
        return type(ctx).__name__

    @workflow
    async def turned(context: RunContext, order: Order) -> str:
        return f"{type(context).__name__} {order.customer}"

    assert (await neither.run()).get_outputs() == ["neither"]
    assert (await only_context.run()).get_outputs() == ["RunContext"]
    assert (await turned.run(Order("cy"))).get_outputs() == ["RunContext cy"]


async def test_build_gives_the_same_function_on_a_storage(storage: BuiltInStorage) -> None:
    @dataclass
    class Local:  # named by the annotation, and out of reach when `build` is called
        text: str

    @workflow
    async def local(order: Local) -> str:
        return await lookup(order.text)

    assert refund.build(checkpoint_storage=storage).description == refund.description
    built = local.build(checkpoint_storage=storage)
    assert (await built.run(Local("d"), run_id="b")).get_outputs() == ["D"]
    assert (await built.run(Local("d"), run_id="b")).get_outputs() == ["D"]
    assert CALLS == ["lookup d"]


async def test_a_step_outside_of_a_run_calls_the_function_and_nothing_else() -> None:
    assert await lookup("e") == "E"
    assert await pay(Order("e")) != threading.main_thread().name
    assert CALLS == ["lookup e", "pay none"]
    assert await asyncio.to_thread(lookup.sync, "f") == "F"
    assert get_run_context() is None


async def test_a_plain_step_runs_in_a_thread_and_gets_a_key_of_its_own() -> None:
    @workflow
    async def twice(order: Order) -> list[str]:
        return [await pay(order), await pay(order)]

    (names,) = (await twice.run(Order("g"), run_id="keys")).get_outputs()
    assert threading.main_thread().name not in names
    assert len(set(CALLS)) == 2
    assert "pay none" not in CALLS


async def test_a_plain_function_runs_in_a_thread_and_makes_steps_there() -> None:
    @workflow
    def plain(order: Order, ctx: RunContext) -> str:
        assert threading.current_thread() is not threading.main_thread()
        ctx.sleep(0.001)
        assert get_run_context() is not None
        return lookup.sync(order.customer) + ctx.step_sync("tail", str, 7)

    assert (await plain.run(Order("h"))).get_outputs() == ["H7"]


async def test_a_plain_function_runs_other_workflows_and_says_how(storage: BuiltInStorage) -> None:
    @workflow
    async def inner(customer: str) -> str:
        return await lookup(customer)

    fails = [True]

    @workflow(checkpoint_storage=storage)
    def plain(ctx: RunContext) -> list[str]:
        names = [inner.sync("a"), *ctx.run_sync(inner, "b")]
        if fails.pop() if fails else False:
            raise RuntimeError("once")
        return names

    @workflow
    def wrong(ctx: RunContext) -> None:
        inner("a")  # type: ignore[unused-coroutine]

    @workflow
    async def blocking() -> None:
        inner.sync("a")

    with pytest.raises(HandlerFailed, match="once"):
        await plain.run(None, run_id="r")
    assert (await plain.run(run_id="r")).get_outputs() == [["A", "B"]]
    assert CALLS == ["lookup a", "lookup b"]
    with pytest.raises(HandlerFailed, match=r"'inner'> was called in a thread.*use ctx\.run_sync there, or `\.sync"):
        await wrong.run()
    with pytest.raises(HandlerFailed, match=r"on the event loop, which it would block: write `await ctx\.run"):
        await blocking.run()
    assert await asyncio.to_thread(inner.sync, "c") == "C"


async def test_a_method_can_be_a_step() -> None:
    class Shop:
        def __init__(self) -> None:
            self.sold: list[str] = []

        @step
        async def sell(self, what: str) -> str:
            self.sold.append(what)
            return f"sold {what}"

    shop = Shop()

    @workflow
    async def selling(what: str) -> str:
        sold: str = await shop.sell(what)
        return sold

    assert (await selling.run("tea")).get_outputs() == ["sold tea"]
    assert shop.sold == ["tea"]


async def test_a_step_with_a_context_parameter_gets_it_unless_it_is_passed() -> None:
    @step
    async def where(ctx: RunContext) -> str:
        return ctx.run_id

    @workflow
    async def asks(ctx: RunContext) -> list[str]:
        return [await where(), await where(ctx)]  # type: ignore[call-arg]

    assert (await asks.run(None, run_id="here")).get_outputs() == [["here", "here"]]


async def test_the_context_is_found_in_tasks_and_threads_and_not_after_the_end() -> None:
    left: list[asyncio.Task[Any]] = []

    async def outlive() -> None:
        await asyncio.sleep(0.05)
        get_run_context()

    def here() -> str:
        context = get_run_context()
        assert context is not None
        return context.run_id

    @workflow
    async def spread() -> list[str]:
        left.append(asyncio.create_task(outlive()))
        return [here(), await asyncio.to_thread(here)]

    assert (await spread.run(None, run_id="s")).get_outputs() == [["s", "s"]]
    with pytest.raises(RuntimeError, match="await what it starts"):
        await left[0]


async def test_steps_are_steps_in_the_handlers_of_a_graph_too(storage: BuiltInStorage) -> None:
    @executor
    async def node(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(await lookup(text))
        if len(CALLS) == 1:
            CALLS.append("failed")
            raise RuntimeError("once")

    graph = WorkflowBuilder(start_executor=node, checkpoint_storage=storage).build()
    with pytest.raises(HandlerFailed):
        await graph.run("i", run_id="g")
    assert (await graph.run(run_id="g")).get_outputs() == ["I"]
    assert CALLS == ["lookup i", "failed"]


async def test_events_are_live() -> None:
    release = asyncio.Event()

    @step
    async def slow() -> str:
        await release.wait()
        return "slow"

    @workflow
    async def shown(ctx: RunContext) -> str:
        await ctx.add_event(WorkflowEvent("data", "begun"))
        await lookup("j")
        return await slow()

    seen: list[Any] = []
    async for event in shown.run(stream=True):
        if event.type == "data":
            seen.append(event.data)
        elif event.type == "step_completed":
            assert event.data is not None
            seen.append(event.data.name)
            release.set()  # the run could not continue if this came at its end
    assert seen == ["begun", "lookup", "slow"]


async def test_errors_are_results_on_request(storage: BuiltInStorage) -> None:
    @step(remember=LookupError)
    async def find(what: str) -> str:
        CALLS.append(what)
        raise KeyError(what)

    fails = [True]

    @workflow(checkpoint_storage=storage)
    async def caught(what: str) -> str:
        try:
            found = await find(what)
        except KeyError as error:
            found = f"no {error.args[0]}"
        if fails.pop() if fails else False:
            raise RuntimeError("once")
        return found

    with pytest.raises(HandlerFailed):
        await caught.run("k", run_id="c")
    assert (await caught.run(run_id="c")).get_outputs() == ["no k"]
    assert CALLS == ["k"]


async def test_steps_and_functions_have_retries_and_time_limits() -> None:
    @step(retry=RetryPolicy(max_attempts=3, initial_interval=0))
    async def flaky() -> int:
        CALLS.append("flaky")
        if len(CALLS) < 3:
            raise ConnectionError
        return len(CALLS)

    @step(timeout=0.01)
    async def stuck() -> None:
        await asyncio.sleep(60)

    @workflow(retry=RetryPolicy(max_attempts=2, initial_interval=0))
    async def again() -> int:
        number = await flaky()
        CALLS.append("function")
        if CALLS.count("function") == 1:
            raise ConnectionError
        return number

    @workflow
    async def waits() -> None:
        await stuck()

    @workflow(timeout=0.01)
    async def lingers() -> None:
        await asyncio.sleep(60)

    assert (await again.run()).get_outputs() == [3]
    assert CALLS == ["flaky", "flaky", "flaky", "function", "function"]
    for limited in (waits, lingers):
        with pytest.raises(HandlerTimeout):
            await limited.run()


async def test_a_replay_key_identifies_a_call_wherever_it_is_made() -> None:
    @step(replay_key=lambda connection, number: f"n{number}")
    async def load(connection: object, number: int) -> int:
        CALLS.append(f"load {number}")
        return number

    @workflow
    async def loads() -> list[int]:
        return [await load(object(), 1), await load(object(), 1), await load(object(), 2)]

    assert (await loads.run()).get_outputs() == [[1, 1, 2]]
    assert CALLS == ["load 1", "load 2"]


async def test_a_wait_of_days_parks_the_run(storage: BuiltInStorage) -> None:
    @workflow(checkpoint_storage=storage)
    async def patient(order: Order, ctx: RunContext) -> str:
        name = await lookup(order.customer)
        await ctx.sleep(86_400)
        return f"{name} {await lookup('later')}"

    with FakeClock() as clock:
        parked = await patient.run(Order("l"), run_id="p")
        assert parked.get_outputs() == []
        assert parked.wakes_at is not None
        clock(days=1, seconds=1)
        assert (await patient.run(run_id="p")).get_outputs() == ["L LATER"]
    assert CALLS == ["lookup l", "lookup later"]
    with pytest.raises(RuntimeError, match="has no result yet"):
        await patient(Order("l"))


async def test_a_handle_cancels_it_and_a_resume_continues(storage: BuiltInStorage) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    @step
    async def long() -> str:
        started.set()
        await release.wait()
        return "long"

    @workflow(checkpoint_storage=storage)
    async def cancelled(order: Order) -> str:
        return await lookup(order.customer) + await long()

    handle = cancelled.start(Order("m"), run_id="x")
    await started.wait()
    await handle.cancel()
    assert (await handle.result()).get_final_state() is WorkflowRunState.CANCELLED
    release.set()
    assert (await cancelled.run(run_id="x")).get_outputs() == ["Mlong"]
    assert CALLS == ["lookup m"]


async def test_it_is_an_executor_of_a_graph(storage: BuiltInStorage) -> None:
    @executor
    async def show(receipt: Receipt, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(receipt.text[:3])

    graph = WorkflowBuilder(start_executor=refund, checkpoint_storage=storage).add_edge(refund, show).build()
    assert (await graph.run(Order("nan"))).get_outputs() == ["NAN"]
    last = WorkflowBuilder(start_executor=WorkflowExecutor(refund, allow_direct_output=True)).build()
    assert (await last.run(Order("o"), run_id="q")).get_outputs()[0].text.startswith("O 5 ")


async def test_a_graph_and_another_function_run_inside_it_as_runs_of_their_own(storage: BuiltInStorage) -> None:
    @executor
    async def double(number: int, ctx: WorkflowContext[None, int]) -> None:
        CALLS.append(f"double {number}")
        await ctx.yield_output(2 * number)

    graph = WorkflowBuilder[int](start_executor=double, name="doubler").build()
    fails = [True]

    @workflow(checkpoint_storage=storage)
    async def outer(number: int, ctx: RunContext) -> str:
        (doubled,) = await ctx.run(graph, number)
        receipt = await refund(Order("p", doubled))
        if fails.pop() if fails else False:
            raise RuntimeError("once")
        return f"{doubled} {receipt.text[:3]}"

    with pytest.raises(HandlerFailed):
        await outer.run(4, run_id="o")
    assert (await outer.run(run_id="o")).get_outputs() == ["8 P 8"]
    assert CALLS == ["double 4", "lookup p"]
    with pytest.raises(HandlerFailed, match=r"ctx\.run runs a workflow"):
        await workflow(_run_anything).run()


async def _run_anything(ctx: RunContext) -> None:
    await ctx.run("refund")  # type: ignore[arg-type]


async def test_it_is_an_agent() -> None:
    @workflow
    async def talker(text: str) -> str:
        return f"You said {await lookup(text)}."

    response = await talker.as_agent().run("hi")
    assert response.text == "You said HI."


async def test_it_keeps_state_and_private_values_like_any_handler(storage: BuiltInStorage) -> None:
    @workflow(checkpoint_storage=storage)
    async def keeper(ctx: RunContext) -> str:
        ctx.set_state("seen", [*ctx.get_state("seen", []), 1])
        return f"{ctx.private['token']} {ctx.get_state('seen')} {ctx.is_streaming()} {bool(ctx.idempotency_key)}"

    assert (await keeper.run(private={"token": "t"})).get_outputs() == ["t [1] False True"]


def test_what_cannot_be_a_durable_function_is_refused_at_its_line() -> None:
    async def many(a: int, b: int) -> None: ...
    async def untyped(order) -> None: ...  # type: ignore[no-untyped-def]
    async def spread(*orders: int) -> None: ...
    def generator(order: Order) -> Iterator[int]:
        yield 1

    async def async_generator(order: Order) -> AsyncIterator[int]:
        yield 1

    for function, problem in (
        (many, "at most one input and a RunContext"),
        (untyped, "annotate 'order'"),
        (spread, "at most one input"),
        (generator, "is a generator"),
        (async_generator, "is a generator"),
        (Order, "marks a function"),
    ):
        with pytest.raises(DefinitionError, match=problem):
            workflow(function)
    for function in (generator, async_generator):
        with pytest.raises(DefinitionError, match=r"@step .* is a generator: return a list"):
            step(function)
    with pytest.raises(TypeError, match="retry must be a RetryPolicy"):
        workflow(retry=3)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="timeout"):
        step(timeout=-1)(many)
    with pytest.raises(DefinitionError, match="there is no storage called"):
        workflow(checkpoint_storage="nowhere")(_run_anything)


async def test_600_steps_of_500_bytes_stay_under_a_megabyte_and_a_half(tmp_path: Any) -> None:
    @step
    async def page(number: int) -> str:
        return f"{number:04}" * 125

    fails = [True]

    @workflow
    async def reads() -> int:
        pages = [await page(number) for number in range(600)]
        if fails.pop() if fails else False:
            raise RuntimeError("with everything in the log")
        return sum(map(len, pages))

    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    with pytest.raises(HandlerFailed):
        await reads.build(checkpoint_storage=storage).run(None, run_id="big")
    await storage.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 1_500_000
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    assert (await reads.build(checkpoint_storage=storage).run(None, run_id="big")).get_outputs() == [300_000]
    await storage.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 1_500_000


@pytest.fixture
def storage() -> BuiltInStorage:
    return BuiltInStorage(MemoryStore())


def test_step_options_with_a_key_are_a_copy() -> None:
    options = StepOptions("charge", timeout=3)
    assert (options.with_key("k").key, options.with_key("k").limits, options.key) == ("k", options.limits, None)
    with pytest.raises(ValueError, match="non-empty string"):
        options.with_key("")


async def test_a_run_of_a_function_is_forked(storage: BuiltInStorage) -> None:
    @workflow(checkpoint_storage=storage)
    async def patient(order: Order, ctx: RunContext) -> str:
        name = await lookup(order.customer)
        await ctx.sleep(3600)
        return name

    with FakeClock() as clock:
        await patient.run(Order("q"), run_id="p")
        head = await storage.get_latest(run_id="p")
        assert head is not None
        forked = await fork(storage, head.checkpoint_id, run_id="f")
        clock(hours=2)
        # A fork begins the function anew, with its steps and waits.
        assert (await patient.run(run_id="f")).wakes_at is not None
        clock(hours=2)
        assert (await patient.run(run_id="f")).get_outputs() == ["Q"]
        assert (await patient.run(run_id="p")).get_outputs() == ["Q"]
        assert forked.run_id == "f"
        first = await storage.get_latest(run_id="f")
        second = await storage.get_latest(run_id="p")
        assert first is not None
        assert second is not None
        assert (first.status, dict(first.state)) == (second.status, dict(second.state))
