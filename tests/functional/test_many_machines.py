"""Workers drive durable functions: new ones, those that were answered, and those that sleep."""

from __future__ import annotations

from stepwell import RunContext, step, workflow
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import FakeClock
from stepwell.worker import Worker
from tests.worker.samples import all_are, serving

CALLS: list[str] = []


@step
async def lookup(customer: str) -> str:
    CALLS.append(customer)
    return customer.title()


@workflow
async def refund(customer: str, ctx: RunContext) -> str:
    name = await lookup(customer)
    answer = await ctx.ask(f"Refund {name}?", str)
    await ctx.sleep(3600)
    return f"{name}: {answer}"


async def test_a_worker_drives_a_function_to_its_end() -> None:
    storage = BuiltInStorage(MemoryStore())
    function = refund.build(checkpoint_storage=storage)
    CALLS.clear()
    runs = [await function.submit(name) for name in ("ada", "bo")]
    with FakeClock() as clock:
        async with serving(Worker(storage, [function])):
            await all_are(storage, "waiting")
            for request in await storage.pending_requests():
                await function.respond(request.run_id, request.request_id, "yes")
            await all_are(storage, "sleeping")
            clock(hours=2)
            await all_are(storage, "completed")
    outputs = [(await function.run(run_id=run)).get_outputs() for run in runs]
    assert outputs == [["Ada: yes"], ["Bo: yes"]]
    assert sorted(CALLS) == ["ada", "bo"]
