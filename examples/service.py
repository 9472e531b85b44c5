"""A service: runs are submitted, watched, answered and cancelled over HTTP, and a loop drives what is ready.

    python service.py

The application is plain Starlette; `build_service` returns it, for `uvicorn --factory service:build_service`. None of
its routes drives a run. The loop beside it does, and may as well run in other processes, any number of them. This
script plays the client.
"""

import asyncio
import json
import logging
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from stepwell import (
    Executor,
    InputMismatch,
    ResponseRejected,
    RunBusy,
    RunError,
    SQLiteCheckpointStorage,
    UnknownRequest,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from stepwell.workflows import status_word


@dataclass
class Refund:
    order: str
    amount: int


class Clerk(Executor):
    @handler
    async def check(self, refund: Refund, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_tag("stage", "approval")
        await ctx.request_info(refund, bool, request_id=f"approve {refund.order}")

    @response_handler
    async def pay(self, original_request: Refund, response: bool, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_tag("stage", None)
        await ctx.yield_output(f"paid {original_request.amount}" if response else "declined")


class Service:
    """The routes: each stores or reads, and returns."""

    def __init__(self, storage: SQLiteCheckpointStorage, refunds: Workflow) -> None:
        self.storage, self.refunds = storage, refunds

    async def submit(self, request: Request) -> Response:
        # The client chooses the id, so it may repeat a call that got no answer.
        run_id = request.path_params["run"]
        try:
            await self.refunds.submit(Refund(**await request.json()), run_id=run_id, tags={"desk": "refunds"})
        except InputMismatch as error:
            raise HTTPException(409, str(error)) from error
        return JSONResponse({"run": run_id}, 202)

    async def show(self, request: Request) -> Response:
        run = await self.storage.get_run(request.path_params["run"])
        if run is None:
            raise HTTPException(404, "there is no such run")
        result = None if run.standing == "failed" else await self.refunds.result(run.run_id)
        outputs = [] if result is None else result.get_outputs()
        return JSONResponse({"standing": run.standing, "tags": dict(run.tags), "outputs": outputs})

    async def inbox(self, request: Request) -> Response:
        requests = await self.storage.pending_requests(workflow_name=self.refunds.name, limit=50)
        return JSONResponse([{"run": each.run_id, "request": each.request_id} for each in requests])

    async def respond(self, request: Request) -> Response:
        answer = await request.json()
        try:
            await self.refunds.respond(
                request.path_params["run"], request.path_params["request"], answer["value"], by=answer.get("by")
            )
        except UnknownRequest as error:
            raise HTTPException(404, str(error)) from error
        except (ResponseRejected, RunError) as error:
            raise HTTPException(409, str(error)) from error
        return Response(status_code=202)

    async def cancel(self, request: Request) -> Response:
        status = await self.refunds.cancel(request.path_params["run"], by=request.query_params.get("by"))
        return JSONResponse({"status": status_word(status)}, 202)

    async def follow(self, request: Request) -> Response:
        async def lines() -> AsyncIterator[str]:
            # A commit may have several events, so an id is a commit and a position in it: a browser that comes back
            # says which event it saw last, and misses none.
            last = tuple(map(int, request.headers.get("Last-Event-ID", "0/-1").split("/")))
            at = (-1, 0)
            async for event in self.storage.follow(request.path_params["run"], after=last[0] - 1):
                number = event.commit or 0
                at = (number, at[1] + 1 if number == at[0] else 0)
                if at > last:
                    yield f"id: {at[0]}/{at[1]}\nevent: {event.type}\ndata: {json.dumps(str(event.data))}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")


async def drive_ready_runs(storage: SQLiteCheckpointStorage, workflow: Workflow, at_most: int = 8) -> None:
    """Drive whatever is ready, so many runs at a time, until cancelled."""
    driving: dict[str, asyncio.Task[None]] = {}

    async def drive(run_id: str) -> None:
        try:
            await workflow.run(run_id=run_id)
        except RunBusy:
            pass  # another process was faster
        except RunError:
            logging.exception("run %r failed; it stays so until somebody resumes it", run_id)

    async with asyncio.TaskGroup() as tasks:
        while True:
            driving = {run_id: task for run_id, task in driving.items() if not task.done()}
            for run in await storage.ready_runs(workflow_name=workflow.name, limit=at_most):
                if run.run_id not in driving and len(driving) < at_most:
                    driving[run.run_id] = tasks.create_task(drive(run.run_id))
            await asyncio.sleep(0.05)


def build_service(database: str | Path = "refunds.db") -> Starlette:
    storage = SQLiteCheckpointStorage(database)
    refunds = WorkflowBuilder(name="refunds", start_executor=Clerk("clerk"), checkpoint_storage=storage).build()
    service = Service(storage, refunds)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        driver = asyncio.create_task(drive_ready_runs(storage, refunds))
        yield
        driver.cancel()
        await asyncio.wait([driver])
        await storage.close()

    routes = [
        Route("/runs/{run}", service.submit, methods=["PUT"]),
        Route("/runs/{run}", service.show),
        Route("/runs/{run}", service.cancel, methods=["DELETE"]),
        Route("/runs/{run}/events", service.follow),
        Route("/runs/{run}/requests/{request}", service.respond, methods=["POST"]),
        Route("/inbox", service.inbox),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def wait_for(client: httpx.AsyncClient, path: str, wanted: Any) -> Any:
    while True:
        found = (await client.get(path)).json()
        if wanted(found):
            return found
        await asyncio.sleep(0.02)


async def play_client(client: httpx.AsyncClient) -> None:
    order = {"order": "tea", "amount": 400}
    for _ in range(2):  # the second one changes nothing
        print("submitted:", (await client.put("/runs/r-1", json=order)).json())
    print("with another input:", (await client.put("/runs/r-1", json={**order, "amount": 1})).status_code)
    (request,) = await wait_for(client, "/inbox", bool)
    print("inbox:", request)
    print("the run:", (await client.get("/runs/r-1")).json())

    answer = f"/runs/{request['run']}/requests/{request['request']}"
    print("a wrong answer:", (await client.post(answer, json={"value": "maybe"})).status_code)
    print("an answer:", (await client.post(answer, json={"value": True, "by": "ada"})).status_code)
    events = await client.get("/runs/r-1/events", headers={"Last-Event-ID": "2/0"})  # ends with the run
    print("followed:", [line for line in events.text.splitlines() if line.startswith("event")])
    print("the run:", (await client.get("/runs/r-1")).json())

    await client.put("/runs/r-2", json={"order": "lamp", "amount": 90})
    await wait_for(client, "/inbox", bool)
    print("cancelled:", (await client.delete("/runs/r-2", params={"by": "bob"})).json())


async def main(database: Path) -> None:
    app = build_service(database)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://here") as client,
    ):
        await play_client(client)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory) / "refunds.db"))
