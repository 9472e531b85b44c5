"""Deleting the newest checkpoints of a run brings back what was open before them, in every storage."""

from __future__ import annotations

from typing import Any

from stepwell import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler, response_handler


class Asker(Executor):
    """Asks two questions, and a third when the first is answered."""

    @handler
    async def begin(self, n: int, ctx: WorkflowContext) -> None:
        await ctx.request_info("one?", str, request_id="q1")
        await ctx.request_info("two?", str, request_id="q2")

    @response_handler
    async def take(self, original_request: str, response: str, ctx: WorkflowContext[None, str]) -> None:
        if ctx.request_id == "q1":
            await ctx.request_info("three?", str, request_id="q3")


def build(storage: Any) -> Workflow:
    return WorkflowBuilder(name="w", start_executor=Asker("asker"), checkpoint_storage=storage).build()


async def open_requests(storage: Any) -> list[str]:
    return [one.request_id for one in await storage.pending_requests(run_id="r")]


async def open_at(storage: Any, checkpoint_id: str) -> list[str]:
    return list((await storage.load(checkpoint_id)).pending_request_info_events)


async def answered_run(storage: Any) -> list[str]:
    """A run that has asked three questions and got two answers; the ids of its checkpoints."""
    await build(storage).run(1, run_id="r")
    await build(storage).run(run_id="r", responses={"q1": "yes"})
    await build(storage).run(run_id="r", responses={"q2": "yes"})
    ids: list[str] = await storage.list_checkpoint_ids(run_id="r")
    return ids


async def test_the_questions_of_the_checkpoint_that_becomes_the_newest_are_open(storage: Any) -> None:
    ids = await answered_run(storage)
    expected = [await open_at(storage, id) for id in ids]
    assert ["q1", "q2"] in expected
    assert await open_requests(storage) == expected[-1] == ["q3"]
    while len(ids) > 1:
        assert await storage.delete(ids.pop())
        expected.pop()
        assert await open_requests(storage) == expected[-1]
    assert await storage.delete(ids.pop())
    assert await open_requests(storage) == []
    await storage.close()


async def test_deleting_an_older_checkpoint_opens_and_closes_nothing(storage: Any) -> None:
    *ids, last = await answered_run(storage)
    for id in ids:
        assert await storage.delete(id)
        assert await open_requests(storage) == ["q3"]
    assert await storage.delete(last)
    assert await open_requests(storage) == []
    await storage.close()


async def test_the_newest_is_deleted_where_those_before_it_are_gone(storage: Any) -> None:
    ids = await answered_run(storage)
    waiting = [await open_at(storage, id) for id in ids].index(["q1", "q2"])
    for id in ids[waiting + 1 : -1]:
        assert await storage.delete(id)
    assert await storage.delete(ids[-1])
    assert await open_requests(storage) == ["q1", "q2"]
    await storage.close()
