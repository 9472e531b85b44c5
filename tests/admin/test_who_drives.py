"""What is said of a run depends on the workers that are alive: who takes it, and which command is needed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    HandlerFailed,
    SQLiteCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    admin,
    executor,
)
from stepwell.storage.filters import ALL_RUNS
from stepwell.storage.lease import this_process
from tests.support.live_workers import announce
from tests.support.operating_runs import Order, asking, counting


@pytest.fixture
def storage(tmp_path: Any) -> Any:
    return SQLiteCheckpointStorage(tmp_path / "runs.db")


async def last_words(storage: Any, run_id: str) -> tuple[str, list[str] | None]:
    """The last sentence about a run, and the command."""
    run = await admin.describe_run(storage, run_id)
    return run["sentence"].rpartition(". ")[2], run["command"]


RESUME = ["stepwell", "resume", "--"]


async def test_a_queued_run_is_left_to_a_worker_that_has_its_workflow(storage: Any) -> None:
    await counting(storage).submit(1, run_id="c")
    await announce(storage, "other", "refunds")
    assert await last_words(storage, "c") == (
        "No live worker drives runs of counting.",
        [*RESUME, "c", "MODULE:WORKFLOW"],
    )
    await announce(storage, "one", "refunds", "counting")
    assert await last_words(storage, "c") == ("Worker one takes it.", None)
    assert (await admin.describe_run(storage, "c"))["workers"] == ["one"]
    await announce(storage, "two", "counting")
    assert await last_words(storage, "c") == ("Worker one or two takes it.", None)
    for name in ("three", "four"):
        await announce(storage, name, "counting")
    assert await last_words(storage, "c") == ("One of 4 workers takes it.", None)


async def test_a_run_waits_for_a_worker_that_is_full(storage: Any) -> None:
    await counting(storage).submit(1, run_id="c")
    await announce(storage, "one", "counting", slots=1, runs=("another",))
    assert await last_words(storage, "c") == ("Worker one takes it as soon as one of its slots is free.", None)


async def test_a_stalled_run_is_taken_over(storage: Any) -> None:
    await counting(storage).submit(1, run_id="c")
    await storage._store.acquire("c", replace(this_process("drive"), started="never"), seconds=600)
    run = await admin.describe_run(storage, "c")
    assert run["status"] == "stalled"
    assert run["sentence"].endswith("; a resume calls count. No live worker drives runs of counting.")
    await announce(storage, "one", "counting")
    assert await last_words(storage, "c") == ("Worker one takes it over.", None)


async def test_a_failed_run_needs_only_a_retry_while_there_is_a_worker(storage: Any) -> None:
    @executor(id="bad")
    async def bad(text: str, ctx: WorkflowContext[None, str]) -> None:
        raise ValueError("no stamps")

    with pytest.raises(HandlerFailed):
        await (
            WorkflowBuilder(name="letters", start_executor=bad, checkpoint_storage=storage).build().run("x", run_id="l")
        )
    sentence, command = await last_words(storage, "l")
    assert sentence.endswith("no stamps; a resume calls bad.")
    assert command == [*RESUME, "l", "MODULE:WORKFLOW"]
    await announce(storage, "one", "letters")
    assert await last_words(storage, "l") == ("After a retry, worker one drives it.", ["stepwell", "retry", "--", "l"])


async def test_a_sleeping_run_needs_nothing_while_there_is_a_worker(storage: Any) -> None:
    @executor(id="nap")
    async def nap(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.sleep(timedelta(hours=3))

    await WorkflowBuilder(name="naps", start_executor=nap, checkpoint_storage=storage).build().run("x", run_id="n")
    assert await last_words(storage, "n") == ("No live worker drives runs of naps.", [*RESUME, "n", "MODULE:WORKFLOW"])
    await announce(storage, "one", "naps")
    assert await last_words(storage, "n") == ("Worker one wakes it.", None)


async def test_an_answer_is_applied_by_a_worker(storage: Any) -> None:
    await asking(storage).run(Order(7, ["tea"]), run_id="refund-7")
    await announce(storage, "one", "refunds")
    # While the answer is missing, a worker is no help.
    assert (await admin.describe_run(storage, "refund-7"))["command"] == [
        "stepwell",
        "respond",
        "--",
        "refund-7",
        "refund-7",
    ]
    await admin.respond(storage, "refund-7", "refund-7", True)
    assert await last_words(storage, "refund-7") == ("Worker one takes it.", None)


async def test_the_run_of_a_sub_workflow_is_moved_by_a_worker_that_has_the_outermost_workflow(storage: Any) -> None:
    @executor(id="bad")
    async def bad(text: str, ctx: WorkflowContext[None, str]) -> None:
        raise ValueError("no stamps")

    inner = WorkflowBuilder(name="inner", start_executor=bad).build()
    calls_inner = WorkflowExecutor(inner, id="inner", allow_direct_output=True)
    middle = WorkflowBuilder(name="middle", start_executor=calls_inner).build()
    calls_middle = WorkflowExecutor(middle, id="middle", allow_direct_output=True)
    with pytest.raises(HandlerFailed):
        await (
            WorkflowBuilder(name="outer", start_executor=calls_middle, checkpoint_storage=storage)
            .build()
            .run("x", run_id="o")
        )
    (innermost,) = [run for run in await storage._store.runs(ALL_RUNS) if run.workflow == "inner"]
    await announce(storage, "one", "inner")
    assert (await admin.describe_run(storage, innermost.run_id))["command"] == [*RESUME, "o", "MODULE:WORKFLOW"]
    await announce(storage, "two", "outer")
    command = (await admin.describe_run(storage, innermost.run_id))["command"]
    assert command == ["stepwell", "retry", "--", "o"]
