"""An answer to a request inside a sub-workflow that is closed there, or rejected: never lost silently."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    handler,
    response_handler,
)
from stepwell.admin import respond
from stepwell.model.checkpoint import FullHistory, LatestOnly, Retention
from stepwell.storage.filters import ALL_RUNS
from stepwell.testing import crash_everywhere
from tests.admin.test_early_requests import listed
from tests.admin.test_early_requests_inside import around, errors
from tests.conftest import Later

HOUR = timedelta(hours=1)


class Committee(Executor):
    """Asks two people; the answer of one withdraws the question of the other."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        for name in ("ann", "bo"):
            ctx.request_info(f"{name}?", bool, request_id=name)

    @response_handler
    async def decide(self, question: str, granted: bool, ctx: WorkflowContext[None, str]) -> None:
        ctx.withdraw("bo" if question == "ann?" else "ann")
        ctx.yield_output(f"{question} {granted}")


class Hesitant(Executor):
    """Asks, sleeps for an hour, and takes its question back."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[int, str]) -> None:
        ctx.request_info("tea?", bool, request_id="tea")
        ctx.send_message(1)

    @handler
    async def sleep(self, number: int, ctx: WorkflowContext[int | list[str], str]) -> None:
        await ctx.sleep(HOUR)
        ctx.send_message(["withdraw"])

    @handler
    async def withdraw(self, words: list[str], ctx: WorkflowContext[int, str]) -> None:
        ctx.withdraw("tea")
        ctx.yield_output("no tea")

    @response_handler
    async def decide(self, question: str, granted: bool, ctx: WorkflowContext[None, str]) -> None:
        ctx.yield_output(f"tea {granted}")


@dataclass
class Verdict:
    good: bool


class Judge(Executor):
    """Waits for a verdict."""

    asks = True

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        if Judge.asks:
            verdict = await ctx.ask("good?", Verdict, request_id="good")
            ctx.yield_output(f"good {verdict.good}")
        else:
            ctx.yield_output("decided without")


@pytest.fixture(autouse=True)
def asks() -> None:
    Judge.asks = True


def build(executor: Executor, storage: Any = None, depth: int = 1) -> Workflow:
    builder = WorkflowBuilder(name="inner", start_executor=executor)
    if isinstance(executor, Hesitant):
        builder.add_edge(executor, executor)
    inner = builder.build()
    for _ in range(depth - 1):
        inner = around(inner)
    return around(inner, storage)


async def warnings_of(storage: Any, run_id: str = "r") -> list[str]:
    return [str(event.data) async for event in storage.follow(run_id, until_rest=True) if event.type == "warning"]


def unused(request_id: str) -> str:
    return f"the response to {request_id!r} is not used: nobody waits for it any more"


async def check_ended(storage: Any) -> None:
    run = await storage.get_run("r")
    assert (run.standing, await listed(storage), await errors(storage)) == ("completed", [], [])
    assert [await storage._store.pending_signals("r"), await storage.ready_runs()] == [[], []]


@pytest.mark.parametrize("depth", [1, 2])
async def test_the_answer_to_a_request_that_another_answer_withdraws_leaves_a_warning(
    everywhere: Any, depth: int
) -> None:
    storage = everywhere()
    workflow = build(Committee("committee"), storage, depth)
    await workflow.run("go", run_id="r")
    await workflow.respond("r", "ann", True, by="ann")
    await workflow.respond("r", "bo", False, by="bo")
    assert (await workflow.run(run_id="r")).get_outputs() == ["ann? True"]
    await check_ended(storage)
    runs = [run.run_id for run in await storage._store.runs()] if depth == 1 else await all_runs(storage)
    assert [text for run_id in runs for text in await warnings_of(storage, run_id)] == [unused("bo")]
    await storage.close()


async def all_runs(storage: Any) -> list[str]:
    return [run.run_id for run in await storage._store.runs(ALL_RUNS)]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("is_held", [True, False])
async def test_the_answer_to_a_request_that_is_withdrawn_leaves_a_warning(
    everywhere: Any, later: Later, is_held: bool, depth: int
) -> None:
    storage = everywhere()
    workflow = build(Hesitant("hesitant"), storage, depth)
    await workflow.run("go", run_id="r")
    assert await listed(storage) == ["tea"]
    await workflow.respond("r", "tea", True, by="ann")
    if is_held:
        await workflow.run(run_id="r")
        assert ((await storage.get_run("r")).standing, await listed(storage)) == ("sleeping", [])
    later(minutes=61)
    assert (await workflow.run(run_id="r")).get_outputs() == ["no tea"]
    await check_ended(storage)
    (warning,) = await warnings_of(storage)
    assert warning in (unused("tea"), unused("tea").replace("response", "response of 'ann'"))
    await storage.close()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("wrong", [{"wrong": 1}, "fine", 7])
async def test_an_answer_that_the_handler_inside_rejects_frees_its_request(
    everywhere: Any, depth: int, wrong: Any
) -> None:
    storage = everywhere()
    workflow = build(Judge("judge"), storage, depth)
    await workflow.run("go", run_id="r")
    await respond(storage, "r", "good", wrong, by="ann")
    await workflow.run(run_id="r")
    (pending,) = await storage.pending_requests()
    assert (pending.request_id, pending.answered, (await storage.get_run("r")).standing) == ("good", None, "waiting")
    texts = [text for run_id in await all_runs(storage) for text in await warnings_of(storage, run_id)]
    assert len(texts) == 1
    assert "is not accepted" in texts[0]
    await respond(storage, "r", "good", {"good": True}, by="bo")
    assert (await workflow.run(run_id="r")).get_outputs() == ["good True"]
    await check_ended(storage)
    await storage.close()


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_handler_inside_that_asks_no_more_goes_on_without_the_answer(everywhere: Any, depth: int) -> None:
    storage = everywhere()
    workflow = build(Judge("judge"), storage, depth)
    await workflow.run("go", run_id="r")
    await workflow.respond("r", "good", Verdict(True), by="ann")
    Judge.asks = False
    assert (await workflow.run(run_id="r")).get_outputs() == ["decided without"]
    await check_ended(storage)
    texts = [text for run_id in await all_runs(storage) for text in await warnings_of(storage, run_id)]
    assert texts == [unused("good")]
    await storage.close()


@pytest.mark.parametrize("retention", [FullHistory, LatestOnly])
@pytest.mark.parametrize("kind", [Committee, Hesitant, Judge])
async def test_wherever_a_process_dies_it_comes_to_the_same(kind: type[Executor], retention: Retention) -> None:
    def answer(event: WorkflowEvent) -> Any:
        return Verdict(True) if kind is Judge else True

    report = await crash_everywhere(build(kind("asker")), "go", answer=answer, retention=retention)
    assert report.crashes > 5
