"""A handler takes a request back: `ctx.withdraw`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from stepwell import (
    Executor,
    RequestError,
    UnknownRequest,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
    response_handler,
)
from stepwell.admin import respond

WAITING, IDLE = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS, WorkflowRunState.IDLE


class Committee(Executor):
    """Asks several; the first answer decides, and the others are not asked any more."""

    @handler
    async def ask(self, names: list[str], ctx: WorkflowContext[None, str]) -> None:
        for name in names:
            ctx.request_info(f"{name}?", bool, request_id=name)
        ctx.request_info("a mistake", bool, request_id="mistake")
        ctx.withdraw("mistake")

    @response_handler
    async def decide(self, question: str, granted: bool, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{ctx.request_id}: {granted}")
        if granted:
            for name in ("ann", "bo", "cy"):
                with suppress(UnknownRequest):  # it may be closed already
                    ctx.withdraw(name)


def build(storage: Any) -> Workflow:
    return WorkflowBuilder(name="committee", start_executor=Committee("c"), checkpoint_storage=storage).build()


async def test_a_withdrawn_request_is_neither_listed_nor_answered(everywhere: Any) -> None:
    storage = everywhere()
    workflow = build(storage)
    await workflow.run(["ann", "bo", "cy"], run_id="r")
    assert [request.request_id for request in await storage.pending_requests()] == ["ann", "bo", "cy"]
    await respond(storage, "r", "bo", True)
    done = await workflow.run(run_id="r")
    # Nothing else is open: the run is completed.
    assert (done.get_outputs(), done.get_final_state()) == (["bo: True"], IDLE)
    assert await storage.pending_requests() == []
    with pytest.raises(UnknownRequest):
        await respond(storage, "r", "ann", True)
    events = [(e.type, e.data) async for e in storage.follow("r") if e.type == "request_withdrawn"]
    assert events == [("request_withdrawn", "ann"), ("request_withdrawn", "cy")]
    await storage.close()


async def test_answers_that_were_applied_are_not_withdrawn(everywhere: Any) -> None:
    storage = everywhere()
    workflow = build(storage)
    await workflow.run(["ann", "bo", "cy"], run_id="r")
    handle = workflow.attach("r")
    await handle.respond({"bo": False})
    assert (await workflow.run(run_id="r")).get_final_state() is WAITING
    await handle.respond({"ann": True})
    await handle.respond({"cy": True})
    done = await workflow.run(run_id="r")
    # Both were applied at once: the second handler of the superstep finds both closed already.
    assert sorted(done.get_outputs()) == ["ann: True", "bo: False", "cy: True"]
    assert done.get_final_state() is IDLE
    await storage.close()


async def test_only_an_open_request_can_be_withdrawn(everywhere: Any) -> None:
    storage, seen = everywhere(), list[RequestError]()

    class Careless(Executor):
        @handler
        async def work(self, id: str, ctx: WorkflowContext[None, str]) -> None:
            try:
                ctx.withdraw(id)
            except RequestError as error:
                seen.append(error)

    workflow = WorkflowBuilder(name="careless", start_executor=Careless("c"), checkpoint_storage=storage).build()
    await workflow.run("nothing", run_id="r")
    assert [type(error) for error in seen] == [UnknownRequest]
    assert "has no open request 'nothing' to withdraw; open: none" in str(seen[0])
    await storage.close()
