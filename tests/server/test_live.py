"""Live events of a run that another process drives reach those who watch it, and cost nobody else anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from stepwell import RetryPolicy, Workflow, WorkflowBuilder, WorkflowContext, executor
from stepwell.agents.executor import AgentExecutor
from stepwell.agents.scripted import Fails, Move, ScriptedAgent
from stepwell.engine.events.watchers import WATCHERS
from stepwell.server.run_feed import EventCursor, follow_several
from stepwell.worker import Worker


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - what it waits for is not ours
        await asyncio.sleep(0.02)


@executor(id="door")
async def wait_for_a_watcher(text: str, ctx: WorkflowContext[str]) -> None:
    await until(lambda: bool(WATCHERS) or text == "nobody will come")
    await ctx.send_message(text)


def writing() -> Workflow:
    """An agent that begins when somebody watches, and whose first attempt fails in the middle of a sentence."""
    script: list[Move] = [Fails(ConnectionError("gone"), after="half a sent"), "all of it"]
    agent = AgentExecutor(ScriptedAgent("clerk", script), retry=RetryPolicy(max_attempts=2, initial_interval=0))
    builder = WorkflowBuilder(name="writing", start_executor=wait_for_a_watcher)
    return builder.add_edge(wait_for_a_watcher, agent).build()


async def read_live(storage: Any) -> list[tuple[str, str | None]]:
    """Return the live events of run `r` up to the last word of its answer, with their texts."""
    live: list[tuple[str, str | None]] = []
    async with aclosing(follow_several(storage, {"r": EventCursor()}, None, live=True)) as items:
        async for item in items:
            if item.data.get("live"):
                assert item.id is None
                data = item.data.get("data")
                live.append((item.name, data.get("text") if isinstance(data, dict) else None))
            if live and live[-1] == ("update", "it "):
                break
    return live


async def test_tokens_of_a_run_driven_elsewhere_are_seen_and_withdrawn(everywhere: Any) -> None:
    here = everywhere()
    # In memory there is one process only; everywhere else the worker has a storage object of its own.
    there = here if type(here).__name__.startswith("InMemory") else everywhere()
    workflow = writing()
    worker = Worker(there, [workflow])
    working = asyncio.create_task(worker.serve())
    async with asyncio.timeout(30):
        await workflow.submit("go", run_id="r", checkpoint_storage=there)
        live = await read_live(here)
    worker.stop(at_once=True)
    await working
    kinds = [kind for kind in live if kind[0] in ("update", "withdrawn")]
    begun, again = kinds.index(("update", "half a sent")), kinds.index(("update", "all "))
    assert ("withdrawn", None) in kinds[begun:again]
    assert [text for kind, text in kinds if kind == "update"][-3:] == ["all ", "of ", "it "]
    await here.close()
    await there.close()


async def test_a_run_that_nobody_watches_writes_nothing(tmp_path: Path, storage: Any) -> None:
    workflow = writing()
    worker = Worker(storage, [workflow])
    serving_worker = asyncio.create_task(worker.serve())
    await workflow.submit("nobody will come", run_id="r", checkpoint_storage=storage)
    async with asyncio.timeout(20):
        async for _ in storage.follow("r"):
            pass
    assert WATCHERS == {}
    assert list(tmp_path.rglob("*live*")) == []
    assert await storage._live.read({"r": 0}) == []
    worker.stop(at_once=True)
    await serving_worker


async def test_the_ring_is_small(everywhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("stepwell.stores.side_ring", "stepwell.stores.postgres.live"):
        monkeypatch.setattr(f"{module}.KEPT", 10)
    storage = everywhere()
    ring = storage._live
    await storage.list_runs()  # creates the store
    assert await ring.watched() == frozenset()
    assert await ring.watch(["r", "\0 %s"]) == 0
    assert await ring.watched() == {"r", "\0 %s"}
    for number in range(30):
        await ring.write([("r", str(number).encode())])
    rows = await ring.read({"r": 0})
    assert [row.body for row in rows] == [str(number).encode() for number in range(20, 30)]
    assert await ring.read({"r": rows[-1].position}) == []
    assert await ring.read({"other": 0}) == []
    assert await ring.watch(["r"]) == rows[-1].position
    await ring.write([("r", b"a"), ("\0 %s", b"b"), ("r", b"c")])
    both = await ring.read({"r": rows[-1].position, "\0 %s": rows[-1].position})
    assert sorted((row.run_id, row.body) for row in both) == [("\0 %s", b"b"), ("r", b"a"), ("r", b"c")]
    await storage.close()
