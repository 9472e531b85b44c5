"""Following a run from outside: its history, then what anybody commits, on every storage."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import stepwell
from stepwell import CheckpointMissing, WorkflowBuilder, WorkflowContext, executor
from stepwell.storage import followed_run
from tests.support.operating_runs import Order, asking, counting
from tests.support.postgres_server import dsn, fresh_schema

TIMEOUT = 20


@pytest.fixture
def storage(every_storage: Any) -> Any:
    return every_storage


def seen(events: list[Any]) -> list[tuple[int | None, str]]:
    return [(event.commit, event.type) for event in events]


async def followed(storage: Any, run_id: str, **options: Any) -> list[Any]:
    async with asyncio.timeout(TIMEOUT):
        return [event async for event in storage.follow(run_id, **options)]


@pytest.mark.parametrize("page", [1, 2, 100])
async def test_a_run_that_is_over_is_followed_to_its_end_from_anywhere(
    storage: Any, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_run, "_PAGE", page)
    await counting(storage).run(1, run_id="r")
    history = seen(await storage.event_history("r"))
    assert seen(await followed(storage, "r")) == history
    for after in range(-1, 4):
        expected = [(number, kind) for number, kind in history if number is not None and number > after]
        assert seen(await followed(storage, "r", after=after)) == expected
    for run_id in ("none", "\udc80"):
        with pytest.raises(CheckpointMissing, match="no run"):
            await followed(storage, run_id)
    await storage.close()


@pytest.mark.parametrize("after", [None, "3", 1.5, True])
async def test_what_is_not_the_number_of_a_commit_is_refused(storage: Any, after: Any) -> None:
    workflow = counting(storage)
    await workflow.run(1, run_id="r")
    words = "after must be the number of a commit, or -1 for all events, not"
    with pytest.raises(TypeError, match=words):
        await followed(storage, "r", after=after)
    with pytest.raises(TypeError, match=words):
        [event async for event in workflow.attach("r").events(after=after)]
    await storage.close()


async def test_what_is_committed_meanwhile_comes_without_gap_or_repeat(storage: Any) -> None:
    gate = asyncio.Event()

    @executor(id="slow")
    async def slow(number: int, ctx: WorkflowContext[int, int]) -> None:
        await gate.wait()
        await (ctx.send_message(number + 1) if number < 20 else ctx.yield_output(number))

    workflow = WorkflowBuilder(name="w", start_executor=slow, checkpoint_storage=storage).add_edge(slow, slow).build()
    handle = workflow.start(1, run_id="r")
    await handle.status()
    followers = [asyncio.create_task(followed(storage, "r", after=after)) for after in (-1, 0, 5)]
    await asyncio.sleep(0.1)
    gate.set()
    history = seen(await followed(storage, "r"))
    assert history == seen(await storage.event_history("r"))
    for after, follower in zip((-1, 0, 5), followers, strict=True):
        assert seen(await follower) == [each for each in history if each[0] is not None and each[0] > after]
    await storage.close()


@pytest.mark.process
@pytest.mark.parametrize("kind", ["SQLiteCheckpointStorage", "FileCheckpointStorage", "PostgresCheckpointStorage"])
async def test_what_another_process_commits_is_followed(kind: str, tmp_path: Path) -> None:
    with fresh_schema() as schema:
        place: str = dsn() if kind == "PostgresCheckpointStorage" else str(tmp_path / "runs")
        options = {"schema": schema} if kind == "PostgresCheckpointStorage" else {}
        storage = getattr(stepwell, kind)(place, **options)
        (event,) = (await asking(storage).run(Order(7, ["tea"]), run_id="r")).get_request_info_events()
        follower = asyncio.create_task(followed(storage, "r", after=0))
        await asyncio.sleep(0.1)
        program = f"""
import asyncio, stepwell
from tests.support.operating_runs import asking

async def main():
    async with stepwell.{kind}({place!r}, **{options!r}) as storage:
        await asking(storage).run(run_id="r", responses={{{event.request_id!r}: True}})

asyncio.run(main())
"""
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
        assert await other.wait() == 0
        history = seen(await storage.event_history("r"))
        assert seen(await follower) == [each for each in history if each[0] != 0]
        assert "request_answered" in [kind for _, kind in history]
        await storage.close()


async def test_a_follower_waits_with_a_run_that_waits_unless_told_otherwise(storage: Any) -> None:
    (event,) = (await asking(storage).run(Order(7, ["tea"]), run_id="r")).get_request_info_events()
    resting = seen(await followed(storage, "r", until_rest=True))
    assert resting[-1] == (1, "status")
    follower = asyncio.create_task(followed(storage, "r"))
    await asyncio.sleep(0.2)
    assert not follower.done()
    await asking(storage).run(run_id="r", responses={event.request_id: True})
    assert seen(await follower) == seen(await storage.event_history("r"))
    await storage.close()


async def test_a_follower_ends_with_a_run_that_is_deleted(storage: Any) -> None:
    await asking(storage).run(Order(7, ["tea"]), run_id="r")
    follower = asyncio.create_task(followed(storage, "r"))
    await asyncio.sleep(0.1)
    await storage._store.drop("r")
    with pytest.raises(CheckpointMissing):
        await follower
    await storage.close()


async def test_a_commit_of_this_process_is_seen_at_once_and_a_quiet_run_costs_little(
    storage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_run, "_FIRST_LOOK", 600.0)
    monkeypatch.setattr(followed_run, "_LAST_LOOK", 600.0)
    (event,) = (await asking(storage).run(Order(7, ["tea"]), run_id="r")).get_request_info_events()
    looks: list[str] = []
    real = storage._store.inner

    class Counted:
        def __getattr__(self, name: str) -> Any:
            if name in ("run", "history", "read", "open"):
                looks.append(name)
            return getattr(real, name)

    storage._store.inner = Counted()
    follower = asyncio.create_task(followed(storage, "r", after=1))
    await asyncio.sleep(0.1)
    assert looks == ["run"]
    storage._store.inner = real
    await asking(storage).run(run_id="r", responses={event.request_id: True})
    assert seen(await follower)[-1][1] == "status"
    await storage.close()


async def test_each_commit_is_read_once_however_long_the_run_is(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    go = asyncio.Event()

    @executor(id="count")
    async def count(number: int, ctx: WorkflowContext[int, int]) -> None:
        if number == 10:
            await go.wait()
        await (ctx.send_message(number + 1) if number < 20 else ctx.yield_output(number))

    workflow = (
        WorkflowBuilder(name="w", start_executor=count, checkpoint_storage=storage).add_edge(count, count).build()
    )
    handle = workflow.start(1, run_id="r")
    await handle.status()
    real, history, spans = storage._store.inner, storage._store.inner.history, list[tuple[int, int]]()

    async def noted(run_id: str, **options: Any) -> Any:
        if asyncio.current_task() is follower:
            spans.append((options["after"], options["upto"]))
        return await history(run_id, **options)

    monkeypatch.setattr(real, "history", noted)
    follower = asyncio.create_task(followed(storage, "r", after=3))
    async with asyncio.timeout(TIMEOUT):
        while not spans:  # noqa: ASYNC110 - what another task reads sets no event
            await asyncio.sleep(0.01)
    go.set()
    await follower
    await handle.result()
    assert [after for after, _ in spans] == [3, *(upto for _, upto in spans[:-1])]
    assert spans[-1][1] == (await storage.get_run("r")).number == 20
    assert len(spans) > 1
    await storage.close()
