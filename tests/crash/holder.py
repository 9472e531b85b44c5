"""A program that holds a run by a handle, and writes down every handler that begins.

python holder.py sqlite|file PATH WHAT [ARGUMENT]

A handler that is called with a number waits for ever, unless there is a file `pass-NUMBER`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from stepwell import (
    Executor,
    FileCheckpointStorage,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
)
from stepwell.workflows import RunHandle

LAST = 6


def write_down(path: Path, line: str) -> None:
    """One write to the end of the file: what the kernel has taken survives the death of the process."""
    book = os.open(path / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(book, f"{line}\n".encode())
    finally:
        os.close(book)


def build(kind: str, path: Path) -> Workflow:
    storage = {"sqlite": SQLiteCheckpointStorage, "file": FileCheckpointStorage}[kind](path / "runs")

    async def held_up(number: int) -> None:
        write_down(path, f"{os.getpid()} ran {number}")
        try:
            while not (path / f"pass-{number}").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            write_down(path, f"{os.getpid()} cleaned {number}")
            raise

    @executor(id="count")
    async def count(number: int, ctx: WorkflowContext[int, int]) -> None:
        await held_up(number)
        await ctx.yield_output(number)
        if number < LAST:
            await ctx.send_message(number + 1)

    class Asker(Executor):
        @handler
        async def ask(self, number: int, ctx: WorkflowContext[int, int]) -> None:
            if number == 1:
                await ctx.request_info("how much?", int, request_id="q")
            await ctx.send_message(number)

        @response_handler
        async def told(self, original_request: str, response: int, ctx: WorkflowContext[int, int]) -> None:
            write_down(path, f"{os.getpid()} was told {response}")
            await ctx.yield_output(response)

    asker = Asker("asker")
    builder = WorkflowBuilder(name="w", start_executor=asker, checkpoint_storage=storage)
    return builder.add_edge(asker, count).add_edge(count, count).build()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def start(handle: RunHandle, argument: str) -> None:
    await handle.result()


async def watch(handle: RunHandle, argument: str) -> None:
    async for event in handle.events():
        if event.durable and event.type in ("output", "restored"):
            print("told", event.commit, event.type, event.data)


async def respond_and_die(handle: RunHandle, argument: str) -> None:
    await handle.respond({"q": int(argument)})
    die()


async def send_and_die(handle: RunHandle, argument: str) -> None:
    await handle.send(int(argument))
    die()


async def cancel(handle: RunHandle, argument: str) -> None:
    print("ended", await handle.cancel())


async def restore(handle: RunHandle, argument: str) -> None:
    await handle.restore((await handle.checkpoints())[int(argument)])
    await handle.result()


async def main(kind: str, place: str, what: str, argument: str = "") -> None:
    workflow = build(kind, Path(place))
    acts: dict[str, Callable[[RunHandle, str], Awaitable[None]]] = {
        "start": start,
        "watch": watch,
        "respond": respond_and_die,
        "send": send_and_die,
        "cancel": cancel,
        "restore": restore,
        "look": start,
    }
    handle = workflow.start(1, run_id="r") if what == "start" else workflow.attach("r", drive=True)
    await acts[what](handle, argument)
    result = await handle.result()
    print("result", result.get_final_state(), result.get_outputs())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
