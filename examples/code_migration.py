"""A running workflow moves to new code: version 2 has other executors, and finishes what version 1 began.

    python code_migration.py parcels 1       version 1 starts a run, which waits for an approval
    python code_migration.py parcels 2       version 2 approves it, and finishes the run

The first argument is a folder for the data. Version 2 has renamed an executor and counts cents instead of euros; its
migration says so. Kill either program anywhere and repeat the command.
"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from stepwell import (
    Executor,
    Migration,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
)
from stepwell.admin import check

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "parcels")
FOLDER.mkdir(exist_ok=True)
storage = SQLiteCheckpointStorage(FOLDER / "runs.db")


@dataclass
class Parcel:
    id: str
    city: str


async def call(what: str) -> None:
    """Call a system outside, which takes its time; the ledger has a line for each call."""
    with (FOLDER / "ledger.txt").open("a") as ledger:
        ledger.write(f"{what}\n")
    await asyncio.sleep(0.2)


class Desk(Executor):
    @handler
    async def accept(self, parcel: Parcel, ctx: WorkflowContext[Parcel]) -> None:
        await ctx.step("weigh", call, f"weigh {parcel.id}")
        await ctx.step("price", call, f"price {parcel.id}")
        ctx.set_state("price", 12)
        await ctx.request_info(parcel, bool, request_id="approval")

    @response_handler
    async def decided(self, original_request: Parcel, response: bool, ctx: WorkflowContext[Parcel]) -> None:
        if response:
            await ctx.send_message(original_request)


@executor(id="ship")
async def ship(parcel: Parcel, ctx: WorkflowContext[None, str]) -> None:
    await ctx.step("ship", call, f"ship {parcel.id}")
    await ctx.yield_output(f"{parcel.id} is on its way to {parcel.city} for {ctx.get_state('price')}")


@executor(id="insure")
async def insure(parcel: Parcel, ctx: WorkflowContext[Parcel]) -> None:
    await ctx.step("insure", call, f"insure {parcel.id}")
    await ctx.send_message(parcel)


def version_1() -> Workflow:
    desk = Desk("desk")
    return WorkflowBuilder(name="parcels", start_executor=desk, checkpoint_storage=storage).add_edge(desk, ship).build()


def version_2() -> Workflow:
    counter = Desk("counter")
    cents = Migration(2).rename_executor("desk", "counter").change_state("price", lambda euros: f"{100 * euros} cents")
    builder = WorkflowBuilder(name="parcels", start_executor=counter, checkpoint_storage=storage, migrations=[cents])
    return builder.add_chain([counter, insure, ship]).build()


async def main(version: str) -> None:
    if version == "1":
        result = await version_1().run(Parcel("p-1", "Lisbon"), run_id="p-1")
        print(f"waits for {[event.request_id for event in result.get_request_info_events()]}")
        return
    workflow = version_2()
    print("before the deploy:", [f"{run.run_id} {run.verdict}" for run in (await check(storage, workflow)).runs])
    responses = {request.request_id: True for request in await storage.pending_requests()}
    result = await workflow.run(run_id="p-1", responses=responses)
    print(result.get_outputs()[0])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[2] if len(sys.argv) > 2 else "1"))
