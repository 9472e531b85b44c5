"""A FastAPI service: routes of your own, the API of Stepwell below /stepwell, and a worker that drives what is ready.

    python fastapi_service.py refunds 8000

The first argument is a folder for the data. No route drives a run: each stores or reads, and returns. The worker runs
beside the routes here; `stepwell worker fastapi_service:refunds` starts more of them, on any number of machines if the
storage is PostgreSQL. Kill the service anywhere and start it again: its runs continue.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from stepwell import (
    CheckpointMissing,
    Executor,
    SQLiteCheckpointStorage,
    UnknownRequest,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
    server,
)
from stepwell.worker import Worker

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "refunds")
FOLDER.mkdir(exist_ok=True)
TOKEN = os.environ.get("REFUNDS_TOKEN", "a long secret of your own")


async def call(what: str) -> None:
    """Call a system outside, which takes its time; the ledger has a line for each call."""
    with (FOLDER / "ledger.txt").open("a") as ledger:
        ledger.write(f"{what}\n")
    await asyncio.sleep(0.2)


class Clerk(Executor):
    @handler
    async def check(self, amount: int, ctx: WorkflowContext[None, str]) -> None:
        await ctx.step("look up", call, f"look up {ctx.run_id}")
        await ctx.step("assess", call, f"assess {ctx.run_id}")
        await ctx.request_info(f"refund {amount}?", bool, request_id="approval")

    @response_handler
    async def decided(self, original_request: str, response: bool, ctx: WorkflowContext[None, str]) -> None:
        if response:
            await ctx.step("pay", call, f"pay {ctx.run_id}")
        await ctx.yield_output("refunded" if response else "declined")


class Decision(BaseModel):
    approved: bool
    by: str


storage = SQLiteCheckpointStorage(FOLDER / "runs.db")
refunds = WorkflowBuilder(name="refunds", start_executor=Clerk("clerk"), checkpoint_storage=storage).build()
api = server.app(storage, [refunds], auth=TOKEN, worker=Worker(storage, [refunds]))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with storage, server.running(api):
        yield


app = FastAPI(title="Refunds", lifespan=lifespan)


@app.put("/refunds/{order}", status_code=202)
async def start(order: str, amount: int) -> dict[str, str]:
    # The client chooses the id, so it may repeat the call.
    return {"run": await refunds.submit(amount, run_id=order)}


@app.get("/refunds/{order}")
async def show(order: str) -> dict[str, Any]:
    run = await storage.get_run(order)
    if run is None:
        raise HTTPException(404, f"there is no refund {order!r}")
    return {"standing": run.standing, "outputs": (await refunds.result(order)).get_outputs()}


@app.post("/refunds/{order}/decision", status_code=202)
async def decide(order: str, decision: Decision) -> dict[str, str]:
    try:
        await refunds.respond(order, "approval", decision.approved, by=decision.by)
    except (UnknownRequest, CheckpointMissing) as error:
        raise HTTPException(404, str(error)) from error
    return {"run": order}


app.mount("/stepwell", api)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[2]) if len(sys.argv) > 2 else 8000, log_level="warning")
