"""A worker drives what is ready, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from stepwell import (
    DefinitionError,
    Executor,
    InMemoryCheckpointStorage,
    SQLiteCheckpointStorage,
    StoreUnavailable,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    admin,
    executor,
    handler,
    timer_handler,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import ALL_RUNS
from stepwell.storage.lease import this_process
from stepwell.worker import Worker
from stepwell.worker import worker as worker_module
from tests.conftest import Later
from tests.worker.samples import Asker, all_are, asking, counting, eventually, serving, standings, submit


async def test_new_runs_are_driven_to_their_end(storage: BuiltInStorage) -> None:
    workflow = counting(storage)
    for n in range(5):
        await submit(workflow, storage, 0, f"r{n}")
    async with serving(Worker(storage, [workflow], slots=2)):
        await all_are(storage, "completed")
    assert (await workflow.run(run_id="r0")).get_outputs() == [3]


async def test_a_run_that_rejects_an_answer_has_not_failed(
    storage: BuiltInStorage, caplog: pytest.LogCaptureFixture
) -> None:
    workflow = asking(storage)
    await workflow.run("tea?", run_id="r")
    worker = Worker(storage, [workflow])

    async def is_rejected() -> bool:
        return "run 'r' of 'asking' waits for another response: the response to 'q'" in caplog.text

    async with serving(worker):
        await admin.respond(storage, "r", "q", 7, by="ann")
        await eventually(is_rejected)
        assert await standings(storage) == {"r": "waiting"}
        assert worker._counters.failed_runs == 0
        await workflow.respond("r", "q", "yes")
        await all_are(storage, "completed")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_an_answer_to_another_request_does_not_keep_a_worker_busy_while_a_handler_asks(
    storage: BuiltInStorage,
) -> None:
    calls: list[str] = []

    class Both(Asker):
        @handler
        async def ask(self, question: str, ctx: WorkflowContext[None, str]) -> None:
            calls.append(question)
            if question == "tea?":
                await ctx.request_info(question, str, request_id="tea")
            else:
                await ctx.yield_output(await ctx.ask(question, str, request_id="milk"))

    workflow = WorkflowBuilder(name="both", start_executor=Both("both"), checkpoint_storage=storage).build()
    await workflow.run("tea?", run_id="r")
    await workflow.attach("r").send("milk?")
    async with serving(Worker(storage, [workflow])):
        await eventually(lambda: has_open(storage, 2))
        await workflow.respond("r", "tea", "green")
        await eventually(lambda: has_open(storage, 1))
        await all_are(storage, "waiting")
        assert calls == ["tea?", "milk?"]
        await workflow.respond("r", "milk", "none")
        await all_are(storage, "completed")
    assert (await workflow.result("r")).get_outputs() == ["none", "green"]


class Alarm(Executor):
    """Sets a timer for the next day, and yields each further message."""

    @handler
    async def set(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        if text == "set":
            ctx.set_timer("tomorrow", timedelta(days=1))
        else:
            await ctx.yield_output(text)

    @timer_handler
    async def ring(self, name: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(name)


async def test_input_to_a_run_that_only_has_a_timer_is_applied_when_it_arrives(storage: BuiltInStorage) -> None:
    workflow = WorkflowBuilder(name="alarm", start_executor=Alarm("alarm"), checkpoint_storage=storage).build()
    await workflow.run("set", run_id="r")
    assert await standings(storage) == {"r": "sleeping"}
    await workflow.attach("r").send("hello")
    assert await standings(storage) == {"r": "queued"}
    async with serving(Worker(storage, [workflow])):
        await all_are(storage, "sleeping")
    assert (await workflow.result("r")).get_outputs() == ["hello"]


async def has_open(storage: BuiltInStorage, count: int) -> bool:
    return len(await storage.pending_requests()) == count


async def test_a_run_that_was_answered_continues(storage: BuiltInStorage) -> None:
    workflow = asking(storage)
    await submit(workflow, storage, "tea or coffee?", "r")
    async with serving(Worker(storage, [workflow])):
        await all_are(storage, "waiting")
        await admin.respond(storage, "r", "q", "tea")
        await all_are(storage, "completed")
    assert (await workflow.run(run_id="r")).get_outputs() == ["tea"]


async def test_an_answer_that_came_before_the_worker_is_applied(storage: BuiltInStorage) -> None:
    workflow = asking(storage)
    await workflow.run("tea or coffee?", run_id="r")
    await admin.respond(storage, "r", "q", "tea")
    async with serving(Worker(storage, [workflow])):
        await all_are(storage, "completed")


async def test_a_sleeping_run_is_woken_when_its_time_has_come(storage: BuiltInStorage, later: Later) -> None:
    @executor(id="sleeper")
    async def sleep(text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.sleep(timedelta(hours=1))
        await ctx.yield_output(text)

    workflow = WorkflowBuilder(name="sleeping", start_executor=sleep, checkpoint_storage=storage).build()
    await submit(workflow, storage, "rested", "r")
    async with serving(Worker(storage, [workflow])):
        await all_are(storage, "sleeping")
        await asyncio.sleep(0.1)
        assert await standings(storage) == {"r": "sleeping"}
        later(minutes=60)
        await all_are(storage, "completed")


async def test_a_deadline_that_passed_is_noticed(storage: BuiltInStorage, later: Later) -> None:
    class Deadline(Asker):
        @handler
        async def ask(self, question: str, ctx: WorkflowContext[None, str]) -> None:
            await ctx.request_info(question, str, request_id="q", deadline=timedelta(hours=1), default="nothing")

    workflow = WorkflowBuilder(name="asking", start_executor=Deadline("asker"), checkpoint_storage=storage).build()
    await submit(workflow, storage, "tea or coffee?", "r")
    async with serving(Worker(storage, [workflow])):
        await all_are(storage, "waiting")
        later(minutes=61)
        await all_are(storage, "completed")
    assert (await workflow.run(run_id="r")).get_outputs() == ["nothing"]


async def test_the_run_of_a_dead_process_is_taken_over_within_two_seconds(storage: BuiltInStorage) -> None:
    workflow = counting(storage)
    await submit(workflow, storage, 0, "r")
    dead = replace(this_process("of the dead"), pid=2**22 + 1, started="0")
    async with serving(Worker(storage, [workflow], slots=1)):
        await all_are(storage, "completed")
        await submit(workflow, storage, 0, "s")
        await all_are(storage, "completed")
    await submit(workflow, storage, 0, "orphan")
    await storage._store.acquire("orphan", dead, seconds=3600)
    async with serving(Worker(storage, [workflow])):
        started = time.monotonic()
        await all_are(storage, "completed")
    assert time.monotonic() - started < 2


async def test_the_run_of_a_process_elsewhere_is_taken_over_when_its_lease_is_over(storage: BuiltInStorage) -> None:
    workflow, lease = counting(storage), 0.7
    await submit(workflow, storage, 0, "r")
    silent = replace(this_process("elsewhere"), host="elsewhere", machine="another")
    acquired = time.monotonic()
    await storage._store.acquire("r", silent, seconds=lease)
    async with serving(Worker(storage, [workflow])):
        await asyncio.sleep(lease / 2)
        assert await standings(storage) == {"r": "running"}
        await all_are(storage, "completed")
    assert lease <= time.monotonic() - acquired < lease + worker_module.LOOK_EVERY + 2


async def test_the_run_of_a_live_process_is_left_alone(storage: BuiltInStorage) -> None:
    workflow = counting(storage)
    await submit(workflow, storage, 0, "r")
    await storage._store.acquire("r", this_process("somebody"), seconds=3600)
    async with serving(Worker(storage, [workflow])):
        await asyncio.sleep(0.3)
        assert await standings(storage) == {"r": "running"}
    assert (await storage._store.read("r"))[-1].entry.number == 0


async def test_a_run_that_failed_or_was_cancelled_is_never_resumed(storage: BuiltInStorage) -> None:
    @executor(id="fails")
    async def fail(text: str, ctx: WorkflowContext[None, str]) -> None:
        raise ValueError("no")

    failing = WorkflowBuilder(name="failing", start_executor=fail, checkpoint_storage=storage).build()
    workflow = asking(storage)
    await submit(failing, storage, "x", "failed")
    await workflow.run("?", run_id="cancelled")
    await workflow.attach("cancelled").cancel()
    async with serving(Worker(storage, [failing, workflow])):
        await eventually(lambda: _is(storage, "failed", "failed"))
        before = [(run.run_id, run.number) for run in await storage.list_runs()]
        await asyncio.sleep(0.3)
    assert [(run.run_id, run.number) for run in await storage.list_runs()] == before


async def _is(storage: BuiltInStorage, run_id: str, standing: str) -> bool:
    return (await standings(storage))[run_id] == standing


async def test_a_run_that_fails_is_logged_once_and_the_others_continue(
    storage: BuiltInStorage, caplog: pytest.LogCaptureFixture
) -> None:
    @executor(id="fails")
    async def fail(text: str, ctx: WorkflowContext[None, str]) -> None:
        raise ValueError("no tea")

    failing = WorkflowBuilder(name="failing", start_executor=fail, checkpoint_storage=storage).build()
    workflow = counting(storage)
    await submit(failing, storage, "x", "bad")
    await submit(workflow, storage, 0, "good")
    async with serving(Worker(storage, [failing, workflow], slots=1)):
        await eventually(lambda: _is(storage, "good", "completed"))
        await asyncio.sleep(0.1)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "'bad'" in errors[0]
    assert "no tea" in errors[0]


async def test_no_more_runs_than_slots_are_driven_at_the_same_time() -> None:
    storage, now, most = InMemoryCheckpointStorage(), 0, 0

    @executor(id="busy")
    async def busy(text: str, ctx: WorkflowContext[None, str]) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1

    workflow = WorkflowBuilder(name="busy", start_executor=busy, checkpoint_storage=storage).build()
    for n in range(10):
        await submit(workflow, storage, "x", f"r{n}")
    async with serving(Worker(storage, [workflow], slots=3)):
        await all_are(storage, "completed")
    assert most == 3


async def test_a_long_run_lets_others_have_its_slot() -> None:
    storage = InMemoryCheckpointStorage()
    long, short = counting(storage, 10**9, name="long", pause=0.005), counting(storage, name="short")
    await submit(long, storage, 0, "long")
    async with serving(Worker(storage, [long, short], slots=1, slice=0.05, grace=0.1)):
        await eventually(lambda: _is(storage, "long", "running"))
        for n in range(3):
            await submit(short, storage, 0, f"short-{n}")
        await eventually(lambda: _is(storage, "short-2", "completed"))
        before = await storage.get_run("long")
        assert before is not None

        async def has_moved() -> bool:
            run = await storage.get_run("long")
            return run is not None and run.number > before.number + 1

        await eventually(has_moved)


async def test_what_is_submitted_and_sent_in_the_same_process_is_driven_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "LOOK_EVERY", 60.0)
    storage = InMemoryCheckpointStorage()
    workflow = asking(storage)
    async with serving(Worker(storage, [workflow])):
        await asyncio.sleep(0.05)
        await workflow.submit("?", run_id="r")
        await eventually(lambda: _is(storage, "r", "waiting"), 1.0)
        await admin.respond(storage, "r", "q", "tea")
        await eventually(lambda: _is(storage, "r", "completed"), 1.0)


async def test_the_run_of_a_sub_workflow_is_left_to_its_caller() -> None:
    storage = InMemoryCheckpointStorage()
    inner = asking(storage)
    outer = WorkflowBuilder(
        name="outer",
        start_executor=WorkflowExecutor(inner, id="inner", allow_direct_output=True),
        checkpoint_storage=storage,
    ).build()
    await outer.run("?", run_id="r")
    (child,) = [run for run in await storage._store.runs(ALL_RUNS) if run.metadata.caller == "r"]
    await storage._store.send(child.run_id, "k", b"{}")
    seen = child.number
    async with serving(Worker(storage, [inner])):
        await asyncio.sleep(0.2)
    after = await storage.get_run(child.run_id)
    assert after is not None
    assert after.number == seen


# -------------------------------------------------------------------- bad input


def test_what_cannot_work_is_refused_all_at_once(tmp_path: Path) -> None:
    storage = InMemoryCheckpointStorage()
    workflow = counting(storage)
    with pytest.raises(DefinitionError) as refused:
        Worker(storage, [workflow, counting(storage)], slots=0, grace=-1, most_takeovers=0, name="")
    assert [problem.partition(" ")[0] for problem in refused.value.problems] == [
        "two",
        "slots",
        "most_takeovers",
        "grace",
        "the",
    ]
    with pytest.raises(DefinitionError, match="at least one workflow"):
        Worker(storage, [])
    with pytest.raises(DefinitionError, match="drives workflows, not an instance of str"):
        Worker(storage, ["counting"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="lease must be a number of seconds"):
        Worker(storage, [workflow], lease=0)


def test_a_storage_without_leases_is_refused() -> None:
    class Own(InMemoryCheckpointStorage):
        async def save(self, checkpoint: object) -> str:
            return ""

    storage = Own()
    with pytest.raises(DefinitionError, match="Own overrides methods of the storage, so its runs have no leases"):
        Worker(storage, [counting(storage)])


async def test_runs_of_unknown_workflows_are_named_once_and_left(caplog: pytest.LogCaptureFixture) -> None:
    storage = InMemoryCheckpointStorage()
    for n in range(3):
        await submit(counting(storage, name="unknown"), storage, 0, f"r{n}")
    known = counting(storage)
    with caplog.at_level(logging.WARNING):
        async with serving(Worker(storage, [known])):
            await asyncio.sleep(0.1)
    assert await standings(storage) == {f"r{n}": "queued" for n in range(3)}
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "'r0'" in warning
    assert "does not have its workflow 'unknown'" in warning


async def test_a_run_that_this_code_would_strand_is_named_once_and_left(
    storage: BuiltInStorage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "LOOK_EVERY", 0.02)
    newer = WorkflowBuilder(
        name="counting", start_executor=counting(storage).executors["count"], checkpoint_storage=storage, version=2
    ).build()
    await submit(newer, storage, 3, "r")
    older = counting(storage)
    with caplog.at_level(logging.WARNING):
        async with serving(Worker(storage, [older])):
            await asyncio.sleep(0.3)
            assert await standings(storage) == {"r": "queued"}
            async with serving(Worker(storage, [newer])):
                await all_are(storage, "completed")
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "run 'r' of 'counting' is left to others" in warning
    assert "version 2" in warning


async def test_a_run_whose_sub_workflow_this_code_would_strand_is_left_before_anything_is_committed(
    storage: BuiltInStorage, caplog: pytest.LogCaptureFixture
) -> None:
    def nested(version: int) -> Workflow:
        inner = WorkflowBuilder(name="asking", start_executor=Asker("asker"), version=version).build()
        start = WorkflowExecutor(inner, id="inner", allow_direct_output=True)
        return WorkflowBuilder(name="outer", start_executor=start, checkpoint_storage=storage).build()

    await nested(2).run("?", run_id="r")
    (request,) = await storage.pending_requests()
    await admin.respond(storage, "r", request.request_id, "tea")
    before = await storage.get_run("r")
    async with serving(Worker(storage, [nested(1)])):
        await eventually(lambda: _has_logged(caplog, "is left to others"))
    after = await storage.get_run("r")
    assert before is not None
    assert after is not None
    assert (after.number, after.standing) == (before.number, "queued")
    async with serving(Worker(storage, [nested(2)])):
        await all_are(storage, "completed")


async def _has_logged(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return words in caplog.text


async def test_a_store_that_is_away_is_logged_once_and_tried_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "LOOK_EVERY", 0.02)
    storage = InMemoryCheckpointStorage()
    workflow = counting(storage)
    await submit(workflow, storage, 0, "r")
    ready, tries = storage._store.ready, 0

    async def away(*args: object, **options: object) -> object:
        nonlocal tries
        tries += 1
        if tries <= 5:
            raise StoreUnavailable("nobody answers")
        return await ready(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(storage._store, "ready", away)
    with caplog.at_level(logging.INFO):
        async with serving(Worker(storage, [workflow])):
            await all_are(storage, "completed")
    said = [record.getMessage() for record in caplog.records if "store is" in record.getMessage()]
    assert said == ["the store is away, and is tried again every second: nobody answers", "the store is back"]


async def test_the_lease_of_a_worker_is_its_own(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    workflow = counting(storage, pause=60)
    await submit(workflow, storage, 0, "r")
    worker = Worker(storage, [workflow], lease=1000, grace=0)
    async with serving(worker):
        await all_are(storage, "running")
        entry = await storage._store.run("r")
        assert entry is not None
        assert entry.lease is not None
        assert 900 < entry.lease.left < 1001
    assert storage._lease == 30


async def test_a_run_with_an_answer_beside_an_open_question_is_driven_once() -> None:
    class Both(Asker):
        @handler
        async def ask(self, question: str, ctx: WorkflowContext[str, str]) -> None:  # type: ignore[override]
            await ctx.request_info(question, str, request_id="q")
            await ctx.send_message(question)

    @executor(id="waiting")
    async def waiting(question: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(await ctx.ask(question, str, request_id="open"))

    storage, both = InMemoryCheckpointStorage(), Both("both")
    builder = WorkflowBuilder(name="both", start_executor=both, checkpoint_storage=storage)
    workflow = builder.add_edge(both, waiting).build()
    await workflow.run("tea or coffee?", run_id="r")
    await admin.respond(storage, "r", "q", "tea")
    worker = Worker(storage, [workflow])
    async with serving(worker):
        await all_are(storage, "waiting")
        await asyncio.sleep(1.2)  # longer than it takes to look again
        assert worker._counters.drives == 1
        await admin.respond(storage, "r", "open", "coffee")
        await all_are(storage, "completed")
    assert sorted((await workflow.run(run_id="r")).get_outputs()) == ["coffee", "tea"]
