"""One worker, as a program starts it: nothing about it is hastened. What its handlers do is written down.

main(PLACE, NAME, VERSION, LEASE, AHEAD)

AHEAD: by how many seconds its wall clock is wrong.
"""

from __future__ import annotations

import asyncio
import logging
import time

from stepwell import Workflow, WorkflowBuilder, WorkflowContext, executor
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.worker import Worker

from .ledger import Ledger
from .places import Place

BLOCKING, LONG = -1, -2  # what a handler is asked to do


def build(storage: BuiltInStorage, ledger: Ledger, name: str, version: int) -> Workflow:
    @executor(id="act")
    async def act(number: int, ctx: WorkflowContext[int, int]) -> None:
        ledger.write("ran", ctx.run_id, by=name, number=number)
        if number == BLOCKING:
            time.sleep(3.0)
        if number == LONG:
            await asyncio.sleep(3600)
        await ctx.yield_output(number)

    return WorkflowBuilder(name="acting", start_executor=act, checkpoint_storage=storage, version=version).build()


def main(place: str, name: str, version: str, lease: str, ahead: str) -> None:
    logging.basicConfig(level=logging.INFO)
    if float(ahead):
        real = time.time
        time.time = lambda: real() + float(ahead)
        clock.set_source(time.time)
    where = Place.told(place)
    storage = where.open()
    worker = Worker(storage, [build(storage, where.ledger, name, int(version))], lease=float(lease), name=name, grace=1)
    worker.run()
