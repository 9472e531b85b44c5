"""A process whose every handler waits until it is let on: `main(PLACE, NAME, LEASE, WAY, MANNER)`.

WAY: `insists` tries until the run is its own, `once` tries once, as soon as there is a file `go`.
MANNER: `as it is`; `no fence`: what it writes does not say under which claim; `no check`: nor is what it commits
compared with what is there.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast import CommitConflict, Executor, RunBusy, Workflow, WorkflowBuilder, WorkflowContext, executor
from holdfast.durable.ports import NOTHING_ALONG, Along, Record
from holdfast.durable.storage import BuiltInStorage

from .ledger import Ledger
from .places import Place, shorten_leases

RUN = "r"


def build(storage: BuiltInStorage | None, ledger: Ledger, folder: Path, me: str) -> Workflow:
    """start, then quick and slow side by side, then join."""

    async def let_on(name: str) -> None:
        while not ((folder / f"{me} {name}").exists() or (folder / f"all {name}").exists()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    def branch(name: str) -> Executor:
        @executor(id=name)
        async def work(number: int, ctx: WorkflowContext[str]) -> None:
            ledger.write("ran", ctx.run_id, name=name, me=me)
            await let_on(name)
            await ctx.send_message(f"{name} by {me}")

        return work

    @executor(id="start")
    async def start(number: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(number)

    @executor(id="join")
    async def join(found: list[str], ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(", ".join(found))

    branches = [branch("quick"), branch("slow")]
    builder = WorkflowBuilder(name="held", start_executor=start, checkpoint_storage=storage)
    return builder.add_fan_out_edges(start, branches).add_fan_in_edges(branches, join).build()


def spoil(store: Any, manner: str) -> None:
    """Take the checks away that protect a run from this process."""
    append, remember, put = store.append, store.remember, store.put

    async def append_anyhow(record: Record, along: Along = NOTHING_ALONG) -> None:
        await (put if manner == "no check" else append)(record, replace(along, fence=None))

    async def remember_anyhow(run_id: str, place: int, key: str, body: bytes, *, fence: int | None = None) -> bool:
        kept: bool = await remember(run_id, place, key, body)
        return kept

    if manner != "as it is":
        store.append, store.remember = append_anyhow, remember_anyhow


def main(place: str, me: str, lease: str, way: str, manner: str) -> None:
    where = Place.told(place)
    shorten_leases(float(lease))
    storage = where.open()
    spoil(storage.store.inner, manner)  # type: ignore[attr-defined]
    where.witness(storage)
    workflow = build(storage, where.ledger, where.path, me)
    if way == "once":
        where.ledger.write("ready", RUN, me=me)
        while not (where.path / "go").exists():
            time.sleep(0.0005)
    asyncio.run(drive(workflow, storage, where.ledger, me, way))


async def drive(workflow: Workflow, storage: BuiltInStorage, ledger: Ledger, me: str, way: str) -> None:
    while True:
        try:
            result = await workflow.run(1, run_id=RUN)
        except RunBusy:
            ledger.write("busy", RUN, me=me)
            if way == "insists":
                await asyncio.sleep(0.02)
                continue
        except CommitConflict as conflict:
            ledger.write("conflict", RUN, me=me, why=str(conflict))
        else:
            ledger.write("ended", RUN, me=me, outputs=result.get_outputs())
        break
    await storage.close()
