"""Who decided what is part of the history: answers, cancels, forks, restores and resumes."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest

from stepwell import (
    InMemoryCheckpointStorage,
    ResponseRejected,
    RunError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunState,
    executor,
)
from stepwell.admin import cancel, export_run, fork, import_run, respond
from stepwell.engine.intake.responses import send_responses
from stepwell.storage import clock
from stepwell.storage.store_archive import StoreArchive
from stepwell.testing import FakeClock
from tests.support.operating_runs import Order, asking, counting


async def history(workflow: Workflow, run_id: str) -> list[WorkflowEvent]:
    return [event async for event in workflow.attach(run_id, drive=True).events()]


async def commits(storage: Any, workflow: Workflow, run_id: str) -> list[Any]:
    return await StoreArchive(storage._store, workflow._definition.codec).commits(run_id)


async def test_an_answer_is_on_record_with_who_when_and_why(everywhere: Any) -> None:
    storage = everywhere()
    workflow = asking(storage)
    await workflow.run(Order(7, ["tea"]), run_id="typed")
    await workflow.attach("typed", drive=True).respond({"refund-7": True}, by="ann", comment="as usual")
    await workflow.run(Order(8, ["tea"]), run_id="plain")
    await respond(storage, "plain", "refund-8", True, by="bo", comment="in JSON")
    await workflow.run(Order(9, ["tea"]), run_id="passed")
    await workflow.run(run_id="passed", responses={"refund-9": True}, by="cy")
    seen = {}
    for run_id in ("typed", "plain", "passed"):
        await workflow.run(run_id=run_id)
        (event,) = [event for event in await history(workflow, run_id) if event.type == "request_answered"]
        assert event.durable
        assert event.answered_at is not None
        seen[event.request_id] = (event.executor_id, event.data, event.by, event.comment)
    assert list(seen) == ["refund-7", "refund-8", "refund-9"]
    assert [value[1:] for value in seen.values()] == [
        (True, "ann", "as usual"),
        (True, "bo", "in JSON"),
        (True, "cy", None),
    ]
    await storage.close()


async def test_a_response_is_on_record_with_the_time_at_which_it_was_sent(everywhere: Any) -> None:
    storage = everywhere()
    with FakeClock() as pass_time:
        await asking(storage).run(Order(7, ["tea"]), run_id="refund")
        before = clock.stamp()
        await respond(storage, "refund", "refund-7", True, by="ann")
        after = clock.stamp()
        pass_time(hours=1)
        await asking(storage).run(run_id="refund")
        (event,) = [e for e in await history(asking(storage), "refund") if e.type == "request_answered"]
        assert event.answered_at is not None
        assert before <= event.answered_at <= after
    await storage.close()


async def test_the_same_response_by_the_same_person_may_be_sent_twice() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = asking(storage)
    await workflow.run(Order(7, ["tea"]), run_id="refund")
    archive, codec = StoreArchive(storage._store, workflow._definition.codec), workflow._definition.codec
    head = await archive.head("refund")
    assert head is not None
    answers = {"refund-7": codec.pack(True, "$")}
    await send_responses(archive, head, answers, requests=head.requests, pending={}, by="ann")
    pending = await archive.pending_signals("refund")
    await send_responses(archive, head, answers, requests=head.requests, pending=pending, by="ann")
    with pytest.raises(ResponseRejected):
        await send_responses(archive, head, answers, requests=head.requests, pending=pending, by="bo")


async def test_who_cancelled_and_why_is_on_record(everywhere: Any) -> None:
    storage = everywhere()
    workflow = asking(storage)
    for run_id in ("by admin", "by handle"):
        await workflow.run(Order(7, ["tea"]), run_id=run_id)
    await cancel(storage, "by admin", by="ann", reason="no tea")
    await workflow.attach("by handle", drive=True).cancel(by="ann", reason="no tea")
    for run_id in ("by admin", "by handle"):
        last = (await commits(storage, workflow, run_id))[-1]
        assert (last.status, last.by, last.reason) == (WorkflowRunState.CANCELLED, "ann", "no tea")
        events = [e for e in await history(workflow, run_id) if e.commit == last.number]
        assert [(e.type, e.data, e.by) for e in events] == [
            ("warning", "cancelled: no tea", "ann"),
            ("status", None, "ann"),
        ]
    await storage.close()


async def test_a_driver_that_is_cancelled_puts_on_record_who_asked_it_to_stop(everywhere: Any) -> None:
    storage, begun = everywhere(), asyncio.Event()

    @executor(id="stay")
    async def stay(text: str, ctx: WorkflowContext[None, str]) -> None:
        begun.set()
        await asyncio.sleep(3600)

    workflow = WorkflowBuilder(name="staying", start_executor=stay, checkpoint_storage=storage).build()
    handle = workflow.start("tea", run_id="here")
    async with asyncio.timeout(30):
        await begun.wait()
        await handle.cancel(by="ann", reason="closed")
    (last,) = (await commits(storage, workflow, "here"))[1:]
    assert (last.status, last.by, last.reason) == (WorkflowRunState.CANCELLED, "ann", "closed")
    await storage.close()


async def test_who_starts_retries_forks_and_moves_back_a_run_is_on_record(everywhere: Any) -> None:
    storage, broken = everywhere(), [True]

    @executor(id="work")
    async def work(n: int, ctx: WorkflowContext[None, int]) -> None:
        if broken[0]:
            raise ValueError("broken")
        await ctx.yield_output(n)

    workflow = WorkflowBuilder(name="work", start_executor=work, checkpoint_storage=storage).build()
    with pytest.raises(RunError):
        await workflow.run(1, run_id="a", by="ann")
    broken[0] = False
    await workflow.run(run_id="a", by="bo")
    stored = await commits(storage, workflow, "a")
    assert [(commit.kind.value, commit.by) for commit in stored] == [
        ("input", "ann"),
        ("failed", None),
        ("superstep", "bo"),
    ]
    await fork(storage, "a@0", run_id="b", by="cy")
    await workflow.run(checkpoint_id=stored[0].stamp.checkpoint_id, run_id="c", by="di")
    handle = workflow.attach("a", drive=True)
    await handle.restore(stored[0].stamp.checkpoint_id, by="ed")
    await handle.result()
    assert [(await commits(storage, workflow, run_id))[0].by for run_id in ("b", "c")] == ["cy", "di"]
    restored = (await commits(storage, workflow, "a"))[3]
    assert (restored.kind.value, restored.by) == ("restored", "ed")
    (event,) = [event for event in await history(workflow, "a") if event.type == "restored"]
    assert event.by == "ed"
    await storage.close()


@pytest.mark.parametrize("wrong", ["", "\ud800", 7])
async def test_a_name_that_cannot_be_stored_is_refused(wrong: Any) -> None:
    storage = InMemoryCheckpointStorage()
    await asking(storage).run(Order(7, ["tea"]), run_id="refund")
    handle = asking(storage).attach("refund", drive=True)
    calls: list[Any] = [
        lambda: handle.respond({"refund-7": True}, by=wrong),
        lambda: handle.respond({"refund-7": True}, comment=wrong),
        lambda: handle.cancel(by=wrong),
        lambda: handle.cancel(reason=wrong),
        lambda: handle.restore("x", by=wrong),
        lambda: respond(storage, "refund", "refund-7", True, by=wrong),
        lambda: cancel(storage, "refund", by=wrong),
        lambda: fork(storage, "refund", by=wrong),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="must be a non-empty string"):
            await call()
    with pytest.raises(ValueError, match="must be a non-empty string"):
        await counting(storage).run(1, by=wrong)


async def test_answers_and_comments_are_left_out_of_a_redacted_export() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = asking(storage)
    for run_id in ("applied", "pending"):
        await workflow.run(Order(7, ["tea"]), run_id=run_id)
        await respond(storage, run_id, "refund-7", True, by="ann", comment="a secret")
    await workflow.run(run_id="applied")
    await workflow.run(Order(8, ["tea"]), run_id="stopped")
    await cancel(storage, "stopped", reason="a secret")
    for run_id in ("applied", "pending", "stopped"):
        assert b"a secret" in gzip.decompress(await export_run(storage, run_id))
        exported = await export_run(storage, run_id, without=["*"])
        assert b"a secret" not in gzip.decompress(exported)
        other = InMemoryCheckpointStorage()
        await import_run(other, exported, inspect_only=True)
        assert [run.run_id for run in await other.list_runs()] == [run_id]
