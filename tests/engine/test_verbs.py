"""Verbs for services: submit, respond, cancel and result store or read, and drive nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from stepwell import (
    CheckpointMissing,
    GraphChanged,
    HandlerFailed,
    InMemoryCheckpointStorage,
    InputMismatch,
    LatestOnly,
    PostgresCheckpointStorage,
    ResponseRejected,
    RoutingFailed,
    RunError,
    Seal,
    UnknownRequest,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import this_process
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import Crash, CrashingStore
from stepwell.testing.clock import FakeClock
from tests.support.operating_runs import Order, asking, counting
from tests.support.postgres_server import dsn, fresh_schema
from tests.support.spies import spy

CANCELLED, IDLE = WorkflowRunState.CANCELLED, WorkflowRunState.IDLE


@pytest.fixture
def storage(every_storage: Any) -> Any:
    return every_storage


async def drive_all(workflow: Any, storage: Any) -> list[str]:
    """Drive what is ready, as a worker does; return which runs that was."""
    runs = [run.run_id for run in await storage.ready_runs(workflow_name=workflow.name)]
    for run_id in runs:
        await workflow.run(run_id=run_id)
    return runs


# -------------------------------------------------------------------- submit


async def test_a_submitted_run_is_stored_and_not_driven(storage: Any) -> None:
    calls: list[int] = []
    workflow = counting(storage, calls=calls)
    assert await workflow.submit(1, run_id="r", tags={"team": "red"}, by="ada") == "r"
    other = await workflow.submit(2)
    await asyncio.sleep(0.1)
    assert calls == []
    run = await storage.get_run("r")
    assert (run.standing, run.number, run.tags, run.owner) == ("queued", 0, {"team": "red"}, None)
    assert run.since == run.changed_at
    assert await drive_all(workflow, storage) == ["r", other]
    assert (await workflow.result("r")).get_outputs() == [[1, 2, 3]]
    assert (await storage.get_run("r")).standing == "completed"
    await storage.close()


async def test_a_run_is_submitted_once_and_with_one_input(storage: Any) -> None:
    workflow = counting(storage)
    ids = await asyncio.gather(*(counting(storage).submit(1, run_id="r") for _ in range(5)))
    assert ids == ["r"] * 5
    assert (await storage.get_run("r")).number == 0
    with pytest.raises(InputMismatch):
        await workflow.submit(2, run_id="r")
    with pytest.raises(RunError, match="by workflow 'counting'"):
        await counting(storage, name="other").submit(1, run_id="r")
    await workflow.run(run_id="r")
    assert await workflow.submit(1, run_id="r") == "r"
    assert (await storage.get_run("r")).standing == "completed"
    await storage.close()


async def test_a_run_that_is_driven_can_be_submitted_again(storage: Any) -> None:
    reached, gate = asyncio.Event(), asyncio.Event()

    @executor(id="slow")
    async def slow(number: int, ctx: WorkflowContext[int, int]) -> None:
        reached.set()
        await gate.wait()
        await ctx.yield_output(number)

    workflow = WorkflowBuilder(name="w", start_executor=slow, checkpoint_storage=storage).build()
    handle = workflow.start(1, run_id="r")
    await reached.wait()
    assert await workflow.submit(1, run_id="r") == "r"
    with pytest.raises(InputMismatch):
        await workflow.submit(2, run_id="r")
    gate.set()
    assert (await handle.result()).get_outputs() == [1]
    await storage.close()


async def test_what_cannot_be_started_is_not_submitted(storage: Any) -> None:
    workflow = counting(storage)
    with pytest.raises(RoutingFailed):
        await workflow.submit("one", run_id="r")
    for wrong in ({"run_id": ""}, {"tags": {"a": 1}}, {"by": 7}):
        with pytest.raises((ValueError, TypeError)):
            await workflow.submit(1, **wrong)
    with pytest.raises(TypeError, match="PostgresCheckpointStorage"):
        await counting(InMemoryCheckpointStorage()).submit(1, connection=object())
    assert await storage.list_runs() == []
    assert await storage.ready_runs() == []
    await storage.close()


async def test_a_new_run_is_stored_in_one_call(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for method in ("append", "open", "read", "acquire", "release", "run"):
        original = getattr(type(storage._store), method)
        monkeypatch.setattr(type(storage._store), method, spy(original, calls, lambda *_, name=method, **__: name))
    await counting(storage).submit(1, run_id="r")
    await counting(storage).submit(1)
    assert calls == ["append", "append"]
    await storage.close()


async def test_a_submit_waits_for_a_process_that_is_about_to_start_the_run(storage: Any) -> None:
    starter = replace(this_process("starter"), host="elsewhere", machine="another")
    await storage._store.acquire("r", starter, seconds=60)
    submitting = asyncio.create_task(counting(storage).submit(1, run_id="r"))
    await asyncio.sleep(0.15)
    assert not submitting.done()
    assert await storage.get_run("r") is None
    await storage._store.release("r", starter)
    assert await submitting == "r"
    assert await drive_all(counting(storage), storage) == ["r"]
    await storage.close()


@pytest.mark.parametrize("after", [False, True])
async def test_wherever_a_process_dies_that_submits_the_next_one_finishes(after: bool) -> None:
    inner = MemoryStore()
    dead = CrashingStore(inner, at=1, after=after)
    with pytest.raises(Crash):
        await counting(BuiltInStorage(dead)).submit(1, run_id="r", tags={"team": "red"})
    storage = BuiltInStorage(inner)
    assert (await storage.get_run("r") is not None) is after
    with FakeClock() as later:
        later(minutes=5)  # the lease of the dead one is over
        assert [run.run_id for run in await storage.ready_runs()] == (["r"] if after else [])
        assert await counting(storage).submit(1, run_id="r", tags={"team": "red"}) == "r"
        assert [run.number for run in await storage.list_runs()] == [0]
        assert await drive_all(counting(storage), storage) == ["r"]
    assert (await counting(storage).result("r")).get_outputs() == [[1, 2, 3]]


# -------------------------------------------------------------------- respond, cancel, result


async def test_an_answer_is_checked_and_stored_and_the_first_one_wins(storage: Any) -> None:
    workflow = asking(storage)
    await workflow.submit(Order(7, ["tea"]), run_id="r")
    assert await drive_all(workflow, storage) == ["r"]
    (request,) = await storage.pending_requests()
    with pytest.raises(UnknownRequest):
        await workflow.respond("r", "none", True)
    with pytest.raises(ResponseRejected):
        await workflow.respond("r", request.request_id, "maybe")
    assert await storage.ready_runs() == []
    await workflow.respond("r", request.request_id, True, by="ada", comment="fine")
    with pytest.raises(ResponseRejected):
        await workflow.respond("r", request.request_id, False, by="bob")
    assert (await storage.get_run("r")).standing == "queued"
    assert await drive_all(workflow, storage) == ["r"]
    answers = [event for event in await storage.event_history("r") if event.type == "request_answered"]
    assert [(event.by, event.comment) for event in answers] == [("ada", "fine")]
    with pytest.raises(CheckpointMissing):
        await workflow.respond("none", "q", True)
    await storage.close()


async def test_code_without_the_executor_that_asks_says_so(storage: Any) -> None:
    await asking(storage).run(Order(7, ["tea"]), run_id="r")
    (request,) = await storage.pending_requests()
    other, words = counting(storage), r"run 'r' of workflow 'refunds' .*: executor 'desk', whose request"
    with pytest.raises(GraphChanged, match=words):
        await other.respond("r", request.request_id, True)
    with pytest.raises(GraphChanged, match=words):
        await other.attach("r").respond({request.request_id: True})
    assert (await storage.get_run("r")).standing == "waiting"
    await storage.close()


async def test_a_run_that_nobody_drives_is_cancelled_at_once(storage: Any) -> None:
    calls: list[int] = []
    workflow = counting(storage, calls=calls)
    await workflow.submit(1, run_id="r")
    assert await workflow.cancel("r", reason="not needed", by="ada") is CANCELLED
    assert await workflow.cancel("r") is CANCELLED
    assert await storage.ready_runs() == []
    assert (await storage.get_run("r")).standing == "cancelled"
    assert (await workflow.run(run_id="r")).get_outputs() == [[1, 2, 3]]
    assert await workflow.cancel("r") is IDLE
    assert calls == [1, 2, 3]
    with pytest.raises(CheckpointMissing):
        await workflow.cancel("none")
    await storage.close()


async def test_a_result_is_read_without_driving(storage: Any) -> None:
    workflow = asking(storage)
    await workflow.submit(Order(7, ["tea"]), run_id="r")
    assert (await workflow.result("r")).get_final_state() is WorkflowRunState.IN_PROGRESS
    await drive_all(workflow, storage)
    waiting = await workflow.result("r")
    assert [event.request_id for event in waiting.get_request_info_events()] == [
        request.request_id for request in await storage.pending_requests()
    ]

    @executor(id="broken")
    async def broken(number: int, ctx: WorkflowContext[int, int]) -> None:
        raise ValueError("no luck")

    failing = WorkflowBuilder(name="failing", start_executor=broken, checkpoint_storage=storage).build()
    with pytest.raises(HandlerFailed):
        await failing.run(1, run_id="f")
    with pytest.raises(HandlerFailed, match="no luck"):
        await failing.result("f")
    with pytest.raises(CheckpointMissing):
        await failing.result("none")
    await storage.close()


async def test_a_submitted_run_of_a_storage_that_keeps_only_the_latest_is_no_different() -> None:
    storage = InMemoryCheckpointStorage(retention=LatestOnly)
    workflow = counting(storage)
    await workflow.submit(1, run_id="r")
    await drive_all(workflow, storage)
    assert len(await storage.list_checkpoint_ids()) == 1


# -------------------------------------------------------------------- in the caller's transaction

postgres = pytest.mark.process


@pytest.fixture
def schema() -> Iterator[str]:
    with fresh_schema() as made:
        yield made


@postgres
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("sealed", [True, False])
async def test_a_run_exists_if_and_only_if_the_caller_commits(schema: str, commits: bool, sealed: bool) -> None:
    storage = PostgresCheckpointStorage(
        dsn(), schema=schema, seal=Seal({"k": bytes(32)}, current="k") if sealed else None
    )
    workflow = counting(storage)
    async with await psycopg.AsyncConnection.connect(dsn()) as connection:
        await connection.execute("CREATE TEMPORARY TABLE orders (id text)")
        await connection.commit()
        await connection.execute("INSERT INTO orders VALUES ('o-1')")
        assert await workflow.submit(1, run_id="r", tags={"team": "red"}, connection=connection) == "r"
        assert await workflow.submit(1, run_id="r", connection=connection) == "r"
        with pytest.raises(InputMismatch):
            await workflow.submit(2, run_id="r", connection=connection)
        assert await storage.get_run("r") is None
        assert await storage.ready_runs() == []
        await (connection.commit() if commits else connection.rollback())
        rows = await (await connection.execute("SELECT count(*) FROM orders")).fetchall()
    assert rows == [(int(commits),)]
    run = await storage.get_run("r")
    assert (run is not None) is commits
    if run is not None:
        assert (run.standing, run.tags, run.owner) == ("queued", {"team": "red"}, None)
        assert await drive_all(workflow, storage) == ["r"]
    assert await workflow.submit(1, run_id="r") == "r"
    await storage.close()


@postgres
async def test_a_connection_that_waits_and_returns_dictionaries_will_do(schema: str) -> None:
    storage = PostgresCheckpointStorage(dsn(), schema=schema)
    workflow = counting(storage)
    with psycopg.connect(dsn(), row_factory=psycopg.rows.dict_row) as connection:
        run_id = await workflow.submit(1, connection=connection)
    assert await drive_all(workflow, storage) == [run_id]
    with psycopg.connect(dsn(), autocommit=True) as connection:
        with pytest.raises(ValueError, match="autocommit"):
            await workflow.submit(1, connection=connection)
        with connection.transaction():
            second = await workflow.submit(1, connection=connection)
    assert await drive_all(workflow, storage) == [second]
    with pytest.raises(TypeError, match="psycopg"):
        await workflow.submit(1, connection="host=here")
    await storage.close()
