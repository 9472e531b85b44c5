"""The processes that are killed: those that drive whatever runs there are, and those that answer questions.

main("drive" | "answer" | "work" | "serve", PLACE, SEED, LEASE, MANNER)

`work` is a worker. Nobody tells it what to drive: `serve` submits the runs that are ordered, answers what they ask,
each question twice, and sees when they have ended.

MANNER: `as it is`; `forgetful`: nothing is recalled of what was finished in a superstep that was cut off; `no fence`
and `no check`: writes of a process that was overtaken are not refused.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from stepwell import CommitConflict, ResponseRejected, RunBusy, RunError, UnknownRequest, Workflow, WorkflowRunState
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.stored_values import OpenedRun
from stepwell.worker import Worker
from stepwell.worker import worker as worker_module

from .errands import Errand, build, park_early
from .held import spoil
from .ledger import Ledger, nonce
from .places import Place, shorten_lease

AT_ONCE = 5
PAUSE = 0.01  # seconds until a run that could not be driven on is looked at again


@dataclass(frozen=True)
class Orders:
    """Which runs are to be driven; written by whoever supervises."""

    open: list[str]
    closing: bool  # there will be no more

    def write(self, folder: Path) -> None:
        (folder / "orders.new").write_text(json.dumps([self.open, self.closing]))
        os.replace(folder / "orders.new", folder / "orders")

    @classmethod
    def read(cls, folder: Path) -> Orders:
        return cls(*json.loads((folder / "orders").read_text()))


def errand_of(run_id: str) -> Errand:
    return Errand(int(run_id.rpartition("-")[2]))


def main(what: str, place: str, seed: str, lease: str, manner: str) -> None:
    where = Place.told(place)
    park_early()
    storage = shorten_lease(where.open(), float(lease))
    spoil(storage._store.inner, manner)  # type: ignore[attr-defined]
    where.witness(storage)
    if manner == "forgetful":
        store: Any = getattr(storage._store, "inner")  # noqa: B009 - the wrapper of every store has one
        opened = store.open

        async def open_without_log(*args: Any, **options: Any) -> OpenedRun:
            run: OpenedRun = await opened(*args, **options)
            return replace(run, log=())

        store.open = open_without_log
    act = {"drive": drive, "answer": answer, "work": work, "serve": serve}[what]
    asyncio.run(act(where, storage, random.Random(seed)))


async def drive(place: Place, storage: BuiltInStorage, chance: random.Random) -> None:
    ledger = place.ledger
    workflow = build(storage, ledger)
    mine: dict[str, asyncio.Task[None]] = {}
    while True:
        orders = Orders.read(place.path)
        if orders.closing and not orders.open:
            break
        for run_id in chance.sample(orders.open, len(orders.open)):
            if run_id not in mine and len(mine) < AT_ONCE:
                mine[run_id] = asyncio.create_task(_drive(workflow, ledger, run_id))
        await asyncio.sleep(PAUSE)
        for run_id in [run_id for run_id, task in mine.items() if task.done()]:
            mine.pop(run_id).result()  # whatever is not expected ends this process, loudly
    for task in mine.values():
        await task
    await storage.close()


async def _drive(workflow: Workflow, ledger: Ledger, run_id: str) -> None:
    try:
        result = await workflow.run(errand_of(run_id), run_id=run_id)
    except RunBusy:
        await asyncio.sleep(PAUSE)
        return
    except CommitConflict:
        return  # somebody else has taken it over; the witness has written it down
    except RunError as error:
        ledger.write("failed", run_id, why=f"{type(error).__name__}: {error}")
        return
    if result.get_final_state() is WorkflowRunState.IDLE:
        (output,) = result.get_outputs()
        ledger.write("ended", run_id, trail=output.trail)
    await asyncio.sleep(PAUSE)


async def answer(place: Place, storage: BuiltInStorage, chance: random.Random) -> None:
    """Answers whatever is asked, also if it was answered before: only the first answer counts."""
    ledger = place.ledger
    workflow = build(storage, ledger)
    done: set[str] = set()
    while not ((orders := Orders.read(place.path)).closing and not orders.open):
        for pending in await storage.pending_requests():
            if pending.request_id not in done:
                await _answer(workflow, ledger, pending.run_id, pending.request_id)
                done.add(pending.request_id)
        await asyncio.sleep(PAUSE * chance.random())
    await storage.close()


async def _answer(workflow: Workflow, ledger: Ledger, run_id: str, request_id: str) -> None:
    word = nonce()
    ledger.write("answers", run_id, request=request_id, word=word)
    try:
        await workflow.attach(run_id, drive=True).respond({request_id: word})
    except (ResponseRejected, UnknownRequest):
        ledger.write("rejected", run_id, request=request_id, word=word)
    else:
        ledger.write("answered", run_id, request=request_id, word=word)


async def work(place: Place, storage: BuiltInStorage, chance: random.Random) -> None:
    """A worker like any other, but for its haste, and its patience with runs whose drivers die: a storm kills often."""
    worker_module.LOOK_EVERY = 0.05
    worker = Worker(
        storage,
        [build(storage, place.ledger)],
        slots=AT_ONCE,
        grace=0.0,
        most_takeovers=10**6,
        dispatcher=place.dispatcher(),
    )
    serving = asyncio.create_task(worker.serve())
    while not serving.done() and not ((orders := Orders.read(place.path)).closing and not orders.open):  # noqa: ASYNC110
        await asyncio.sleep(PAUSE)
    worker.stop()
    await serving
    await storage.close()


async def serve(place: Place, storage: BuiltInStorage, chance: random.Random) -> None:
    async with place.announcing(storage):
        await _serve(place, storage, chance)
    await storage.close()


async def _serve(place: Place, storage: BuiltInStorage, chance: random.Random) -> None:
    workflow = build(storage, place.ledger)
    while not ((orders := Orders.read(place.path)).closing and not orders.open):
        for run_id in orders.open:
            run = await storage.get_run(run_id)
            if run is None:
                await workflow.submit(errand_of(run_id), run_id=run_id)
            elif run.standing == "completed":
                place.ledger.write("ended", run_id)
            elif run.standing == "failed":
                place.ledger.write("failed", run_id, why=str(await storage.event_history(run_id)))
        for pending in await storage.pending_requests():
            for _ in range(2):
                await _answer(workflow, place.ledger, pending.run_id, pending.request_id)
        await asyncio.sleep(PAUSE * chance.random())
