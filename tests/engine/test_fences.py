"""Whoever comes back after a long pause and finds the run claimed by somebody else cannot write any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    CommitConflict,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import this_process
from stepwell.storage.port import Store
from stepwell.testing.faults.wrapped_store import WrappedStore


async def test_it_is_refused_before_the_other_has_written_anything(storage: Any, later: Any) -> None:
    """The other has only claimed the run: where it stands is still where the first one saw it."""

    @executor(id="work")
    async def work(number: int, ctx: WorkflowContext[int, int]) -> None:
        if number == 2:
            later(minutes=10)  # a pause: its lease is over
            await storage._store.acquire("r", this_process("somebody else"), seconds=60)
        if number < 4:
            await ctx.send_message(number + 1)

    workflow = WorkflowBuilder(name="worker", start_executor=work, checkpoint_storage=storage).add_edge(work, work)
    with pytest.raises(CommitConflict, match="acquired by another process"):
        await workflow.build().run(1, run_id="r")
    assert (await storage.get_latest(run_id="r")).number == 1


class HeldUp(WrappedStore):
    """A store whose program is held up when it sends something, and is overtaken there."""

    def __init__(self, inner: Store, overtake: Callable[[], Awaitable[None]]) -> None:
        super().__init__(inner)
        self._overtake = overtake

    async def write(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
        if name == "send":
            await self._overtake()
        return await call()


class Asker(Executor):
    """Requests an answer, or waits for it in its handler."""

    @handler
    async def ask(self, how: str, ctx: WorkflowContext[None, str]) -> None:
        hour = timedelta(hours=1)
        if how == "ask":
            await ctx.yield_output(f"{await ctx.ask('?', int, request_id='q', deadline=hour, default=0)}")
        else:
            await ctx.request_info("?", int, request_id="q", deadline=hour, default=0)

    @response_handler
    async def answered(self, question: str, answer: int, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{answer}")


def asking(storage: Any) -> Workflow:
    return WorkflowBuilder(name="asking", start_executor=Asker("asker"), checkpoint_storage=storage).build()


@pytest.mark.parametrize("how", ["ask", "request"])
async def test_a_default_that_it_sends_late_does_not_reach_the_run(everywhere: Any, later: Any, how: str) -> None:
    """Another process has applied the default, and the run has ended: nothing is left for it to do."""
    storage = everywhere()
    workflow = asking(storage)
    await workflow.run(how, run_id="r")
    later(minutes=61)

    async def overtake() -> None:
        later(minutes=10)  # a pause: its lease is over
        assert (await workflow.run(run_id="r")).get_outputs() == ["0"]

    late = BuiltInStorage(HeldUp(storage._store.inner, overtake))
    with pytest.raises(CommitConflict, match="acquired by another process"):
        await asking(late).run(run_id="r")
    assert await storage._store.pending_signals("r") == []
    assert ((await storage.get_run("r")).standing, await storage.ready_runs()) == ("completed", [])
    await storage.close()


async def test_a_response_that_it_was_given_does_not_reach_a_run_that_it_has_lost(everywhere: Any, later: Any) -> None:
    storage = everywhere()
    workflow = asking(storage)
    await workflow.run("request", run_id="r")

    async def overtake() -> None:
        later(minutes=10)
        await storage._store.acquire("r", this_process("somebody else"), seconds=60)

    late = BuiltInStorage(HeldUp(storage._store.inner, overtake))
    with pytest.raises(CommitConflict, match="acquired by another process"):
        await asking(late).run(run_id="r", responses={"q": 1})
    assert await storage._store.pending_signals("r") == []
    await storage.close()
