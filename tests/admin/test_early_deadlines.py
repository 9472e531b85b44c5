"""The deadline of a request is kept while handlers beside the one that has asked still work, sleep or wait."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    RequestExpired,
    ResponseRejected,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    response_handler,
)
from stepwell.model.checkpoint import FullHistory, LatestOnly, Retention
from stepwell.storage import clock
from stepwell.testing import crash_everywhere
from stepwell.webhooks import add_webhook, list_deliveries
from tests.conftest import Later

HOUR = timedelta(hours=1)


class Start(Executor):
    """Passes a message on to the executors that it names."""

    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str]) -> None:
        for name in text.split():
            await ctx.send_message(text, target_id=name)


class Desk(Executor):
    """Makes a request with a deadline of an hour, and returns."""

    def __init__(self, id: str, **options: Any) -> None:
        super().__init__(id)
        self.options = options

    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info("desk?", bool, request_id="desk", deadline=HOUR, **self.options)

    @response_handler
    async def decide(self, question: str, granted: bool, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"desk {granted}")


class Sleeper(Executor):
    @handler
    async def sleep(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.sleep(HOUR * 3)
        await ctx.yield_output("sleeper True")


class Asker(Executor):
    @handler
    async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"asker {await ctx.ask('asker?', bool, request_id='asker')}")


class Worker(Executor):
    """Works for two hours."""

    later: Any = None

    @handler
    async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        self.later(minutes=120)
        await ctx.yield_output("worker True")


def build(storage: Any = None, **options: Any) -> Workflow:
    others = [Desk("lax", default=False), Desk("strict"), Sleeper("sleeper"), Asker("asker"), Worker("worker")]
    builder = WorkflowBuilder(name="office", start_executor=Start("start"), checkpoint_storage=storage, **options)
    return builder.add_fan_out_edges("start", others).build()


def nested(storage: Any = None) -> Workflow:
    inside = WorkflowExecutor(build(), "inside", allow_direct_output=True)
    return WorkflowBuilder(name="house", start_executor=inside, checkpoint_storage=storage).build()


async def look(storage: Any) -> tuple[str, float | None, list[str]]:
    """Return how the run stands, in how many hours it can be driven, and which requests are open."""
    run = await storage.get_run("r")
    assert [run.run_id for run in await storage.ready_runs()] == (["r"] if run.standing == "queued" else [])
    left = round(clock.until(run.until) / HOUR, 1) if run.until and run.standing != "queued" else None
    return run.standing, left, sorted(pending.request_id for pending in await storage.pending_requests())


@pytest.mark.parametrize(("make", "sibling"), [(build, "sleeper"), (build, "asker"), (nested, "sleeper")])
async def test_the_default_is_applied_while_a_sibling_sleeps_or_waits(
    everywhere: Any, later: Later, make: Any, sibling: str
) -> None:
    storage = everywhere()
    workflow = make(storage)
    await workflow.run(f"lax {sibling}", run_id="r")
    asks = ["asker"] if sibling == "asker" else []
    rests = "waiting" if sibling == "asker" else "sleeping"
    assert await look(storage) == (rests, 1.0, [*asks, "desk"])

    later(minutes=61)
    assert await look(storage) == ("queued", None, [*asks, "desk"])
    await workflow.run(run_id="r")
    assert await look(storage) == (rests, None if asks else 2.0, asks)
    with pytest.raises(ResponseRejected, match="answered already"):
        await workflow.respond("r", "desk", True)

    if asks:
        await workflow.respond("r", "asker", True)
    else:
        later(minutes=121)
    done = await workflow.run(run_id="r")
    assert sorted(done.get_outputs()) == sorted(["desk False", f"{sibling} True"])
    assert (await look(storage))[0] == "completed"
    await storage.close()


@pytest.mark.parametrize("make", [build, nested])
async def test_without_a_default_the_run_fails_at_the_deadline(everywhere: Any, later: Later, make: Any) -> None:
    storage = everywhere()
    workflow = make(storage)
    await workflow.run("strict sleeper", run_id="r")
    later(minutes=61)
    assert await look(storage) == ("queued", None, ["desk"])
    with pytest.raises(RequestExpired, match="'desk'"):
        await workflow.run(run_id="r")
    assert await look(storage) == ("failed", None, [])
    with pytest.raises(RequestExpired, match="'desk'"):
        await workflow.attach("r").result()
    with pytest.raises(RequestExpired, match="'desk'"):
        await workflow.run(run_id="r")  # and again whenever it is resumed
    assert await look(storage) == ("failed", None, [])
    await storage.close()


async def test_an_answer_in_time_stands_and_a_late_one_is_refused(everywhere: Any, later: Later) -> None:
    storage = everywhere()
    workflow = build(storage)
    await workflow.run("lax sleeper", run_id="r")
    await workflow.respond("r", "desk", True)
    later(minutes=61)
    await workflow.run(run_id="r")
    assert await look(storage) == ("sleeping", 2.0, [])
    later(minutes=121)
    assert sorted((await workflow.run(run_id="r")).get_outputs()) == ["desk True", "sleeper True"]

    await workflow.run("strict sleeper", run_id="s")
    later(minutes=61)
    with pytest.raises(RequestExpired, match="too late"):
        await workflow.respond("s", "desk", True)
    await storage.close()


async def test_a_deadline_that_passes_while_a_sibling_works_is_kept_when_it_has_returned(
    everywhere: Any, later: Later
) -> None:
    Worker.later = staticmethod(later)
    storage = everywhere()
    workflow = build(storage)
    assert sorted((await workflow.run("lax worker", run_id="r")).get_outputs()) == ["desk False", "worker True"]
    with pytest.raises(RequestExpired, match="'desk'"):
        await workflow.run("strict worker", run_id="s")
    with pytest.raises(RequestExpired, match="'desk'"):
        await workflow.run("strict worker sleeper", run_id="t")  # and not when the sleeper wakes up
    assert [run.standing for run in await storage.list_runs()] == ["failed", "failed", "completed"]
    await storage.close()


@pytest.mark.parametrize("message", ["lax sleeper", "strict sleeper"])
async def test_a_webhook_hears_of_an_early_request_that_expires(everywhere: Any, later: Later, message: str) -> None:
    storage = everywhere()
    await add_webhook(storage, "http://127.0.0.1:9/", kinds=["request.expired"])
    workflow = build(storage)
    await workflow.run(message, run_id="r")
    later(minutes=61)
    with suppress(RequestExpired):
        await workflow.run(run_id="r")
    assert [waiting.kind for waiting in await list_deliveries(storage)] == ["request.expired"]
    await storage.close()


@pytest.mark.parametrize("retention", [FullHistory, LatestOnly])
@pytest.mark.parametrize("make", [build, nested])
async def test_wherever_a_process_dies_the_default_is_applied_once(make: Any, retention: Retention) -> None:
    report = await crash_everywhere(make(), "lax sleeper", retention=retention)
    assert report.crashes > 10


@pytest.mark.parametrize("retention", [FullHistory, LatestOnly])
async def test_wherever_a_process_dies_a_question_gets_its_default_once(retention: Retention) -> None:
    answers: list[bool] = []

    class Clerk(Executor):
        @handler
        async def work(self, text: str, ctx: WorkflowContext[None, str]) -> None:
            size = await ctx.step("size", len, text)
            granted = await ctx.ask(f"{text}?", bool, request_id="q", deadline=HOUR, default=False)
            answers.append(granted)
            await ctx.yield_output(f"{await ctx.step('text', str, size)} {granted}")

    # The clock goes on for a sleeper: without one, the run would wait for an answer.
    builder = WorkflowBuilder(name="clerk", start_executor=Start("start"))
    clerk = builder.add_fan_out_edges("start", [Clerk("clerk"), Sleeper("sleeper")]).build()
    inner = WorkflowExecutor(clerk, id="inner", allow_direct_output=True)
    for workflow in (clerk, WorkflowBuilder(name="outer", start_executor=inner).build()):
        report = await crash_everywhere(workflow, "clerk sleeper", retention=retention)
        assert report.crashes > 6
    assert set(answers) == {False}
