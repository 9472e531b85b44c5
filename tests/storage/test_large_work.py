"""A commit of a large state is built and protected in a thread, and is still all or nothing."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from stepwell import InMemoryCheckpointStorage, WorkflowBuilder, WorkflowContext, executor
from stepwell.storage import integrity, store_archive
from stepwell.storage.integrity import add_checksum
from stepwell.storage.large_work import LARGE_WORK
from stepwell.storage.record import build_record

KIB = 1024


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[bool]]:
    """For each kind of work, whether it was done in a thread, commit by commit."""
    loop, seen = threading.get_ident(), dict[str, list[bool]](built=[], summed=[])

    def noting(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen[name].append(threading.get_ident() != loop)
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(store_archive, "build_record", noting("built", build_record))
    monkeypatch.setattr(integrity, "add_checksum", noting("summed", add_checksum))
    return seen


async def run(size: int, calls: list[int], storage: Any, turns: int = 2) -> None:
    @executor(id="turn")
    async def turn(left: int, ctx: WorkflowContext[int]) -> None:
        calls.append(left)
        ctx.set_state("text", str(left) * size)
        if left > 1:
            await ctx.send_message(left - 1)

    workflow = WorkflowBuilder(start_executor=turn, checkpoint_storage=storage).add_edge(turn, turn).build()
    await (workflow.run(turns, run_id="r") if not calls else workflow.run(run_id="r"))


@pytest.mark.parametrize(("size", "in_thread"), [(LARGE_WORK, True), (LARGE_WORK - KIB, False)])
async def test_only_large_work_leaves_the_event_loop(
    size: int, in_thread: bool, threads: dict[str, list[bool]]
) -> None:
    storage = InMemoryCheckpointStorage()
    await run(size, [], storage)
    assert threads == {"built": [False, in_thread, in_thread], "summed": [False, in_thread, in_thread]}
    latest = await storage.get_latest(run_id="r")
    assert latest is not None
    assert latest.state["text"] == "1" * size


async def test_a_commit_that_is_cancelled_while_it_is_built_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    building, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(*args: Any, **kwargs: Any) -> Any:
        if args[0].number == 1:
            loop.call_soon_threadsafe(building.set)
            assert go_on.wait(10)
        return build_record(*args, **kwargs)

    monkeypatch.setattr(store_archive, "build_record", slow)
    storage, calls = InMemoryCheckpointStorage(), list[int]()
    task = asyncio.create_task(run(LARGE_WORK, calls, storage))
    await building.wait()
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert calls == [2]
    await run(LARGE_WORK, calls, storage)
    assert calls == [2, 1]
