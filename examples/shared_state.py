"""State shared by all executors of a run: plain keys, a list to append to, and a reducer.

Two executors writing the same key in one superstep is an error, unless a reducer combines the values.
Appending is never a conflict. The order always comes from the plan, not from timing.
"""

import asyncio

from stepwell import StateConflict, Workflow, WorkflowBuilder, WorkflowContext, executor

READINGS = {"north": 17, "south": 24, "east": 21}


@executor
async def ask(day: str, ctx: WorkflowContext[str]) -> None:
    ctx.set_state("day", day)
    await ctx.send_message(day)


async def measure(station: str, ctx: WorkflowContext[str]) -> None:
    await asyncio.sleep(0.001 * READINGS[station])
    ctx.append_state("log", f"{station} on {ctx.get_state('day')}")
    ctx.set_state("warmest", READINGS[station])  # all three write it, so it needs a reducer
    await ctx.send_message(station)


@executor
async def north(day: str, ctx: WorkflowContext[str]) -> None:
    await measure("north", ctx)


@executor
async def south(day: str, ctx: WorkflowContext[str]) -> None:
    await measure("south", ctx)


@executor
async def east(day: str, ctx: WorkflowContext[str]) -> None:
    await measure("east", ctx)


@executor
async def report(stations: list[str], ctx: WorkflowContext[None, str]) -> None:
    for line in ctx.get_state("log"):
        print(f"  {line}")
    ctx.delete_state("log")
    await ctx.yield_output(f"warmest of {len(stations)}: {ctx.get_state('warmest')}")


def build(*, reduce: bool) -> Workflow:
    builder = WorkflowBuilder(name="weather", start_executor=ask, reducers={"warmest": max} if reduce else None)
    stations = [north, south, east]
    return builder.add_fan_out_edges(ask, stations).add_fan_in_edges(stations, report).build()


async def main() -> None:
    result = await build(reduce=True).run("Monday")
    print(result.get_outputs()[0])
    try:
        await build(reduce=False).run("Tuesday")
    except StateConflict as conflict:
        print(f"without the reducer: {conflict}")


if __name__ == "__main__":
    asyncio.run(main())
