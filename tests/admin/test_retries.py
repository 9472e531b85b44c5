"""Runs that failed or were cancelled are made ready again, many at once, and driven by workers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from stepwell import HandlerFailed, RetryPolicy, Workflow, WorkflowBuilder, WorkflowContext, admin, executor
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import this_process
from stepwell.worker import Worker
from tests.worker.samples import all_are, asking, serving, standings


class Weather:
    """Whether handlers fail, and how often they were called."""

    def __init__(self) -> None:
        self.is_bad, self.calls = True, list[str]()


def failing(storage: BuiltInStorage, weather: Weather, name: str = "failing") -> Workflow:
    @executor(id="first")
    async def first(text: str, ctx: WorkflowContext[str, str]) -> None:
        weather.calls.append("first")
        await ctx.send_message(text)

    @executor(id="second", retry=RetryPolicy(max_attempts=2, initial_interval=0.001))
    async def second(text: str, ctx: WorkflowContext[None, str]) -> None:
        weather.calls.append("second")
        if weather.is_bad:
            raise ValueError("rain")
        await ctx.yield_output(text)

    builder = WorkflowBuilder(name=name, start_executor=first, checkpoint_storage=storage)
    return builder.add_edge(first, second).build()


async def fail(workflow: Workflow, run_id: str) -> None:
    with pytest.raises(HandlerFailed):
        await workflow.run("tea", run_id=run_id)


async def test_a_failed_run_is_ready_again_and_a_worker_ends_it(storage: BuiltInStorage) -> None:
    weather = Weather()
    workflow = failing(storage, weather)
    await fail(workflow, "r")
    assert (await admin.retry(storage, by="ada")).runs == ("r",)
    assert await standings(storage) == {"r": "queued"}
    weather.is_bad, weather.calls = False, []
    async with serving(Worker(storage, [workflow])):
        await all_are(storage, "completed")
    assert weather.calls == ["second"]  # what was committed is not executed again
    assert [event.by for event in await storage.event_history("r") if event.by] == ["ada"]


async def test_a_retried_handler_has_all_its_attempts_again(storage: BuiltInStorage) -> None:
    weather = Weather()
    workflow = failing(storage, weather)
    await fail(workflow, "r")
    await admin.retry(storage)
    weather.calls.clear()
    async with serving(Worker(storage, [workflow])):
        await all_are(storage, "failed")
    assert weather.calls == ["second", "second"]


async def test_a_run_is_retried_once_with_the_same_key_even_if_it_has_failed_again(storage: BuiltInStorage) -> None:
    weather = Weather()
    workflow = failing(storage, weather)
    await fail(workflow, "r")
    assert (await admin.retry(storage, ["r"], key="k")).runs == ("r",)
    assert (await admin.retry(storage, ["r"], key="k")).runs == ("r",)  # it is ready already
    with pytest.raises(HandlerFailed):
        await workflow.run(run_id="r")
    for runs in (["r"], []):
        assert (await admin.retry(storage, runs, key="k")).runs == ("r",)
        assert await standings(storage) == {"r": "failed"}
    assert (await admin.retry(storage, ["r"], key="another")).runs == ("r",)
    assert await standings(storage) == {"r": "queued"}


async def test_runs_are_selected_by_status_workflow_and_time(storage: BuiltInStorage) -> None:
    weather = Weather()
    one, other, waiting = failing(storage, weather), failing(storage, weather, "other"), asking(storage)
    await fail(one, "one")
    await fail(other, "other")
    await waiting.run("?", run_id="waits")
    await waiting.run("?", run_id="cancelled")
    await admin.cancel(storage, "cancelled")
    now = clock.now()
    assert (await admin.retry(storage, since=now, dry_run=True)).runs == ()
    hour = timedelta(hours=1)
    assert sorted((await admin.retry(storage, since=now - hour, dry_run=True)).runs) == ["one", "other"]
    assert (await admin.retry(storage, workflow_name="other", dry_run=True)).runs == ("other",)
    assert (await admin.retry(storage, workflow_name="\ud800", dry_run=True)).runs == ()
    assert (await standings(storage))["other"] == "failed"  # it was dry
    assert (await admin.retry(storage, status="cancelled")).runs == ("cancelled",)
    assert (await standings(storage))["cancelled"] == "waiting"
    with pytest.raises(ValueError, match="not those that are 'completed'"):
        await admin.retry(storage, status="completed")


@pytest.mark.parametrize("run", ["r", ""])
async def test_a_run_alone_is_refused_instead_of_the_list_of_its_letters(storage: BuiltInStorage, run: str) -> None:
    with pytest.raises(TypeError, match=r"runs must be a list of run ids, not .*; for one run, write"):
        await admin.retry(storage, run)


async def test_what_cannot_be_retried_is_skipped_with_the_reason(storage: BuiltInStorage) -> None:
    workflow = failing(storage, Weather())
    await fail(workflow, "driven")
    await fail(workflow, "left")
    await asking(storage).run("?", run_id="waits")
    await storage._store.acquire("driven", replace(this_process("somebody"), machine="another"), seconds=3600)
    report = await admin.retry(storage, ["driven", "waits", "left"])
    assert report.runs == ("left",)
    assert report.skipped["waits"] == "it is waiting"
    assert report.skipped["driven"].startswith("it is being driven by process ")
