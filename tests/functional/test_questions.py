"""A durable function asks people, and continues where it asked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    RunContext,
    StepChanged,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    WorkflowRunState,
    handler,
    response_handler,
    step,
    workflow,
)
from stepwell.admin import check
from stepwell.functional import DurableFunction
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import FakeClock, Ledger, crash_everywhere


@dataclass
class Decision:
    approved: bool
    reason: str = ""


LEDGER = Ledger()


@step
async def pay(total: int, idempotency_key: str = "") -> str:
    LEDGER.do(idempotency_key, "pay", total)
    return f"paid {total}"


@step
async def assess(total: int, kind: str) -> int:
    return total // 100


@workflow(name="refund")
async def refund(total: int, ctx: RunContext) -> str:
    risks = await asyncio.gather(*(assess(total, kind) for kind in ("amount", "history")))
    if sum(risks) > 1:
        decision = await ctx.ask(
            f"Refund {total}?", Decision, deadline=timedelta(days=2), default=Decision(False, "late")
        )
        if not decision.approved:
            return f"denied: {decision.reason}"
    await ctx.sleep(timedelta(minutes=5))
    return await pay(total)


@pytest.fixture
def storage() -> BuiltInStorage:
    return BuiltInStorage(MemoryStore())


async def ask_and_answer(function: DurableFunction[Any, Any], storage: BuiltInStorage, *answers: Any) -> list[Any]:
    """Run a function and give these answers one by one, each to the first open request."""
    async with asyncio.timeout(20):
        result = await function.run(None, run_id="r", checkpoint_storage=storage)
        for answer in answers:
            assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
            asked = str(result.get_request_info_events()[-1].request_id)
            result = await function.run(run_id="r", checkpoint_storage=storage, responses={asked: answer})
    return result.get_outputs()


async def test_an_answer_lets_it_continue_and_every_crash_leads_to_the_same(storage: BuiltInStorage) -> None:
    await crash_everywhere(refund, 500, answer=lambda event: Decision(True), ledger=LEDGER)
    assert LEDGER.effects == [("pay", 500)]
    await crash_everywhere(refund, 500, answer=lambda event: Decision(False, "no"), ledger=LEDGER)
    assert LEDGER.effects == []


async def test_the_default_counts_after_the_deadline(storage: BuiltInStorage) -> None:
    with FakeClock() as clock:
        waiting = await refund.run(500, run_id="r", checkpoint_storage=storage)
        assert waiting.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
        clock(days=3)
        assert (await refund.run(run_id="r", checkpoint_storage=storage)).get_outputs() == ["denied: late"]


async def test_the_name_of_agent_framework_asks_too(storage: BuiltInStorage) -> None:
    @workflow
    async def draft(ctx: RunContext) -> str:
        first = await ctx.request_info({"draft": 1}, str)
        return f"{first} {await ctx.request_info({'draft': 2}, str, request_id='second')}"

    assert await ask_and_answer(draft, storage, "a", "b") == ["a b"]


async def test_a_step_may_ask(storage: BuiltInStorage) -> None:
    @step
    async def review(text: str, ctx: RunContext) -> str:
        return f"{text} is {await ctx.ask(text, str)}"

    @workflow
    async def reviewed() -> str:
        return await review("this")  # type: ignore[call-arg]

    assert await ask_and_answer(reviewed, storage, "fine") == ["this is fine"]


async def test_a_plain_function_asks_and_blocks_its_thread(storage: BuiltInStorage) -> None:
    @workflow
    def plain(ctx: RunContext) -> str:
        return pay.sync(3) + ctx.ask_sync("ok?", str)

    assert await ask_and_answer(plain, storage, "!") == ["paid 3!"]


class Desk(Executor):
    """An executor of a graph that asks in the way of graphs."""

    @handler
    async def begin(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(text, str)
        await ctx.request_info(f"{text} again", str)

    @response_handler
    async def answered(self, original_request: str, response: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{original_request}: {response}")


@pytest.mark.parametrize("inner", ["graph", "function"])
async def test_what_a_run_inside_asks_is_asked_by_the_function(inner: str, storage: BuiltInStorage) -> None:
    graph = WorkflowBuilder[str](start_executor=Desk("desk"), name="desk").build()

    @workflow
    async def asks(text: str, ctx: RunContext) -> str:
        return f"{text}: {await ctx.ask(text, str)}"

    @workflow
    async def outer(ctx: RunContext) -> list[str]:
        outputs, receipt = await asyncio.gather(ctx.run(graph if inner == "graph" else asks, "q"), pay(7))
        return [*sorted(outputs), receipt]

    def answer(event: WorkflowEvent) -> str:
        return f"yes to {event.data}"

    await crash_everywhere(outer, answer=answer, ledger=LEDGER)
    assert LEDGER.effects == [("pay", 7)]
    answers = ["1", "2"] if inner == "graph" else ["1"]
    outputs = await ask_and_answer(outer, storage, *answers)
    assert sorted(outputs[0]) == (["paid 7", "q again: 1", "q: 2"] if inner == "graph" else ["paid 7", "q: 1"])


async def test_a_run_inside_that_sleeps_and_asks_wakes_and_is_answered(storage: BuiltInStorage) -> None:
    @workflow
    async def both(ctx: RunContext) -> str:
        answer, _ = await asyncio.gather(ctx.ask("ready?", str), ctx.sleep(3600))
        return answer

    @workflow
    async def outer() -> str:
        return await both()

    await crash_everywhere(outer, answer=lambda event: "yes")


async def test_a_function_in_a_graph_asks_through_it(storage: BuiltInStorage) -> None:
    graph = WorkflowBuilder(start_executor=WorkflowExecutor(refund, allow_direct_output=True), name="shop").build()
    report = await crash_everywhere(graph, 500, answer=lambda event: Decision(True), ledger=LEDGER)
    assert report.crashes > 10
    assert LEDGER.effects == [("pay", 500)]


async def test_a_run_inside_that_is_not_stored_cannot_wait() -> None:
    @workflow
    async def asks(ctx: RunContext) -> str:
        return await ctx.ask("?", str)

    @workflow
    async def outer() -> str:
        return await asks()

    with pytest.raises(Exception, match="pass checkpoint_storage"):
        await outer.run()
    with pytest.raises(RuntimeError, match="has no result yet"):
        await asks()


async def test_an_answer_is_not_used_for_another_question(storage: BuiltInStorage) -> None:
    def version(*questions: str) -> DurableFunction[None, list[str]]:
        @workflow(name="changing", checkpoint_storage=storage)
        async def changing(ctx: RunContext) -> list[str]:
            return [await ctx.ask(question, str) for question in questions]

        return changing

    waiting = await version("pay?", "ship?").run(None, run_id="r")
    (event,) = waiting.get_request_info_events()
    waiting = await version("pay?", "ship?").run(run_id="r", responses={str(event.request_id): "yes"})
    later = {str(waiting.get_request_info_events()[-1].request_id): "no"}
    with pytest.raises(StepChanged, match=r"asks str#.* where it has asked str#"):
        await version("really?", "pay?", "ship?").run(run_id="r", responses=later)
    (checked,) = (await check(storage, version("really?", "pay?", "ship?"))).runs
    assert checked.verdict == "incompatible"
    (checked,) = (await check(storage, version("pay?", "ship?", "more?"))).runs
    assert checked.verdict == "compatible"
