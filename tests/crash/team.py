"""One worker, as a program starts it: nothing about it is hastened. What its handlers do is written down.

main(PLACE, NAME, VERSION, LEASE, AHEAD, NETWORK, MANNER)

AHEAD: by how many seconds its wall clock is wrong. NETWORK: the network namespace that it works in; empty: ours.
MANNER: `as it is`, or `no check`: writes of a process that was overtaken are not refused.
"""

from __future__ import annotations

import asyncio
import logging
import time

from stepwell import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler, response_handler
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.worker import Worker

from .held import spoil
from .ledger import Ledger
from .networks import enter
from .places import Place

BLOCKING, LONG, ASKING = -1, -2, -3  # what a handler is asked to do
STEADY = 1000  # from here on: to count down, one superstep for each number


class Actor(Executor):
    def __init__(self, ledger: Ledger, name: str) -> None:
        super().__init__("act")
        self._ledger, self._name = ledger, name

    @handler
    async def act(self, number: int, ctx: WorkflowContext[int, int]) -> None:
        self._ledger.write("ran", ctx.run_id, by=self._name, number=number)
        if number == BLOCKING:
            time.sleep(3.0)
        if number == LONG:
            await asyncio.sleep(3600)
        if number == ASKING:
            await ctx.request_info("how many?", int, request_id="q")
        elif number > STEADY:
            await asyncio.sleep(0.1)
            await ctx.send_message(number - 1)
        else:
            await ctx.yield_output(number)

    @response_handler
    async def answered(self, original_request: str, response: int, ctx: WorkflowContext[int, int]) -> None:
        await ctx.yield_output(response)


def build(storage: BuiltInStorage, ledger: Ledger, name: str, version: int) -> Workflow:
    actor = Actor(ledger, name)
    builder = WorkflowBuilder(name="acting", start_executor=actor, checkpoint_storage=storage, version=version)
    return builder.add_edge(actor, actor).build()


def main(place: str, name: str, version: str, lease: str, ahead: str, network: str, manner: str) -> None:
    logging.basicConfig(level=logging.INFO)
    if network:
        enter(network)
    if float(ahead):
        real = time.time
        time.time = lambda: real() + float(ahead)
        clock.set_source(time.time)
    where = Place.told(place)
    storage = where.open()
    spoil(storage._store.inner, manner)  # type: ignore[attr-defined]
    worker = Worker(
        storage,
        [build(storage, where.ledger, name, int(version))],
        lease=float(lease),
        name=name,
        grace=1,
        dispatcher=where.dispatcher(),
    )
    worker.run()
