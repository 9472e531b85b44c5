"""A process whose every handler waits until it is let on: `main(PLACE, NAME, LEASE, WAY, MANNER, SHAPE)`.

WAY: `insists` tries until the run is its own, `once` tries once, as soon as there is a file `go`.
MANNER: `as it is`; `no fence`: what it writes does not say under which claim; `no check`: nor is what it commits
compared with what is there; `late`: it waits until it is let on before it claims a run inside its own.
SHAPE: of the workflow, `flat` or `nested`.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from stepwell import (
    CommitConflict,
    Executor,
    RunBusy,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import Owner
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, OpenedRun, Record

from .ledger import Ledger
from .places import Place, shorten_lease

RUN = "r"


async def let_on(folder: Path, me: str, name: str) -> None:
    """Wait until a file says that this process, or everybody, may go on there."""
    while not ((folder / f"{me} {name}").exists() or (folder / f"all {name}").exists()):  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def build(storage: BuiltInStorage | None, ledger: Ledger, folder: Path, me: str) -> Workflow:
    """start, then quick and slow side by side, then join."""

    def branch(name: str) -> Executor:
        @executor(id=name)
        async def work(number: int, ctx: WorkflowContext[str]) -> None:
            ledger.write("ran", ctx.run_id, name=name, me=me)
            await let_on(folder, me, name)
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


def build_nested(storage: BuiltInStorage | None, ledger: Ledger, folder: Path, me: str) -> Workflow:
    """A sub-workflow, and what passes on what it yields."""

    @executor(id="below")
    async def below(number: int, ctx: WorkflowContext[None, str]) -> None:
        ledger.write("ran", ctx.run_id, name="below", me=me)
        await let_on(folder, me, "below")
        await ctx.yield_output(f"below by {me}")

    @executor(id="above")
    async def above(found: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(found)

    sub = WorkflowExecutor(WorkflowBuilder(name="below", start_executor=below).build(), "sub")
    builder = WorkflowBuilder(name="nested", start_executor=sub, checkpoint_storage=storage)
    return builder.add_edge(sub, above).build()


def delay(store: Any, place: Place, me: str) -> None:
    """Wait before a run inside the own one is acquired."""
    opening = store.open

    async def open_late(run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
        if run_id != RUN and owner is not None:
            place.ledger.write("late", run_id, me=me)
            await let_on(place.path, me, "claim")
        opened: OpenedRun = await opening(run_id, owner=owner, seconds=seconds)
        return opened

    store.open = open_late


def spoil(store: Any, manner: str) -> None:
    """Take the checks away that protect a run from this process."""
    append, remember, rewrite = store.append, store.write_log, store.rewrite

    async def append_anyhow(record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        unfenced = replace(effects, fence=None)
        if manner == "no check":
            await rewrite(record.entry.run_id, insert=record, effects=unfenced)
        else:
            await append(record, unfenced)

    async def remember_anyhow(run_id: str, place: int, key: str, body: bytes, **options: Any) -> bool:
        kept: bool = await remember(run_id, place, key, body, **{**options, "fence": None})
        return kept

    if manner in ("no fence", "no check"):
        store.append, store.write_log = append_anyhow, remember_anyhow


def main(place: str, me: str, lease: str, way: str, manner: str, shape: str) -> None:
    where = Place.told(place)
    storage = shorten_lease(where.open(), float(lease))
    spoil(storage._store.inner, manner)  # type: ignore[attr-defined]
    if manner == "late":
        delay(storage._store.inner, where, me)  # type: ignore[attr-defined]
    where.witness(storage)
    workflow = {"flat": build, "nested": build_nested}[shape](storage, where.ledger, where.path, me)
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
