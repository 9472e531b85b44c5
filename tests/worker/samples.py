"""Workflows for workers, and helpers that several of their tests share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from stepwell import Executor, Workflow, WorkflowBuilder, WorkflowContext, executor, handler, response_handler
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.worker import Worker

PATIENCE = 20.0  # seconds; only a broken test waits so long


def counting(storage: BuiltInStorage, upto: int = 3, *, name: str = "counting", pause: float = 0.0) -> Workflow:
    """A run that counts, one superstep for each number, and outputs the last."""

    @executor(id="count")
    async def count(number: int, ctx: WorkflowContext[int, int]) -> None:
        await asyncio.sleep(pause)
        if number < upto:
            await ctx.send_message(number + 1)
        else:
            await ctx.yield_output(number)

    return WorkflowBuilder(name=name, start_executor=count, checkpoint_storage=storage).add_edge(count, count).build()


class Asker(Executor):
    """Asks one question, and outputs the answer."""

    @handler
    async def ask(self, question: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(question, str, request_id="q")

    @response_handler
    async def answered(self, original_request: str, response: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(response)


def asking(storage: BuiltInStorage) -> Workflow:
    return WorkflowBuilder(name="asking", start_executor=Asker("asker"), checkpoint_storage=storage).build()


async def submit(workflow: Workflow, storage: BuiltInStorage, message: Any, run_id: str) -> None:
    """Store a run, and leave it to a worker."""
    await workflow.submit(message, run_id=run_id, checkpoint_storage=storage)


@asynccontextmanager
async def serving(*workers: Worker) -> AsyncIterator[None]:
    """Workers that serve inside the block, and have left after it."""
    tasks = [asyncio.create_task(worker.serve()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks)


async def eventually(is_so: Callable[[], Awaitable[bool]], seconds: float = PATIENCE) -> None:
    """Return as soon as it is so."""
    async with asyncio.timeout(seconds):
        while not await is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def standings(storage: BuiltInStorage) -> dict[str, str]:
    return {run.run_id: run.standing for run in await storage.list_runs()}


async def all_are(storage: BuiltInStorage, standing: str) -> None:
    """Return when every run stands like this."""

    async def is_so() -> bool:
        return set((await standings(storage)).values()) == {standing}

    await eventually(is_so)
