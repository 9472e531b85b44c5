"""A service: runs are submitted, listed, answered, followed and cancelled over HTTP, and a loop drives what is ready.

    uvicorn service:app

No route drives a run. The loop does, here beside the routes, and as well in other processes, any number of them.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from stepwell import (
    CheckpointMissing,
    Executor,
    ResponseRejected,
    RunBusy,
    RunError,
    SQLiteCheckpointStorage,
    UnknownRequest,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from stepwell.workflows import status_word


class Clerk(Executor):
    @handler
    async def check(self, amount: int, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_tag("stage", "approval")
        await ctx.request_info(f"refund {amount}?", bool, request_id="approval")

    @response_handler
    async def pay(self, original_request: str, response: bool, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_tag("stage", None)
        await ctx.yield_output("refunded" if response else "declined")


storage = SQLiteCheckpointStorage("refunds.db")
refunds = WorkflowBuilder(name="refunds", start_executor=Clerk("clerk"), checkpoint_storage=storage).build()


async def submit(request: Request) -> JSONResponse:  # the client chooses the id, so it may repeat a call
    run_id = await refunds.submit(await request.json(), run_id=request.path_params["run"])
    return JSONResponse({"run": run_id}, 202)


async def show(request: Request) -> JSONResponse:
    result, run = await refunds.result(request.path_params["run"]), await storage.get_run(request.path_params["run"])
    assert run is not None
    return JSONResponse({"standing": run.standing, "tags": dict(run.tags), "outputs": result.get_outputs()})


async def inbox(request: Request) -> JSONResponse:
    pending = await storage.pending_requests(workflow_name="refunds", limit=50)
    return JSONResponse([{"run": e.run_id, "request": e.request_id, "question": e.question} for e in pending])


async def respond(request: Request) -> JSONResponse:
    answer, names = await request.json(), request.path_params
    await refunds.respond(names["run"], names["request"], answer["value"], by=answer.get("by"))
    return JSONResponse({}, 202)


async def cancel(request: Request) -> JSONResponse:
    status = await refunds.cancel(request.path_params["run"], by=request.query_params.get("by"))
    return JSONResponse({"status": status_word(status)}, 202)


async def follow(request: Request) -> StreamingResponse:
    async def lines(at: tuple[int, int] = (-1, 0)) -> AsyncIterator[str]:
        # A commit has several events: an id is a commit and a position in it, so a browser that comes back misses none.
        last = tuple(map(int, request.headers.get("Last-Event-ID", "0/-1").split("/")))
        async for event in storage.follow(request.path_params["run"], after=last[0] - 1):
            at = (event.commit or 0, at[1] + 1 if event.commit == at[0] else 0)
            if at > last:
                yield f"id: {at[0]}/{at[1]}\nevent: {event.type}\ndata: {json.dumps(str(event.data))}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


async def refuse(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 404 if isinstance(error, UnknownRequest | CheckpointMissing) else 409)


async def drive(run_id: str) -> None:
    try:
        await refunds.run(run_id=run_id)
    except (RunBusy, ResponseRejected):
        pass  # another process was faster, or an answer was of another type: its request is open again
    except RunError:
        logging.exception("run %r failed, and stays so until somebody resumes it", run_id)


async def drive_ready_runs(tasks: asyncio.TaskGroup, at_most: int = 8) -> None:
    driving: dict[str, asyncio.Task[None]] = {}
    while True:
        driving = {run_id: task for run_id, task in driving.items() if not task.done()}
        for run in await storage.ready_runs(workflow_name="refunds", limit=at_most):
            if run.run_id not in driving and len(driving) < at_most:
                driving[run.run_id] = tasks.create_task(drive(run.run_id))
        await asyncio.sleep(0.05)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with storage, asyncio.TaskGroup() as tasks:
        loop = tasks.create_task(drive_ready_runs(tasks))
        yield
        loop.cancel()  # the runs it drives come to rest first


PATH = "/runs/{run}"
app = Starlette(
    routes=[
        Route(PATH, submit, methods=["PUT"]),
        Route(PATH, show),
        Route(PATH, cancel, methods=["DELETE"]),
        Route(f"{PATH}/events", follow),
        Route(f"{PATH}/requests/{{request}}", respond, methods=["POST"]),
        Route("/inbox", inbox),
    ],
    lifespan=lifespan,
    exception_handlers={RunError: refuse, CheckpointMissing: refuse},
)
