"""Fill stores with many checkpoints of real runs.

A few runs are executed, in memory. All others are copies of their records under other ids, appended to the store in
batches. One run in four waits for a response; one run has a tenth of all checkpoints.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

from msgspec.structs import replace

from stepwell import Executor, InMemoryCheckpointStorage, WorkflowBuilder, WorkflowContext, handler, response_handler
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import checkpoint_id
from stepwell.storage.port import CommitEffects, Record, RunMetadata

COMMITS = 100  # per run, except the long one
WAITING = 4  # one run in four waits for a response
AT_ONCE = 1000  # records per batch
TEAMS = ("north", "south", "east", "west")


class Clerk(Executor):
    """Processes orders, one per superstep, and then asks whether that was all."""

    @handler
    async def work(self, left: int, ctx: WorkflowContext[int, str]) -> None:
        ctx.set_state("order", {"number": left, "customer": f"customer {left % 17}", "lines": ["tea", "samovar"]})
        ctx.set_state("left", left)
        if left > 1:
            await ctx.send_message(left - 1)
        elif ctx.get_state("asks", False):
            await ctx.request_info("was that all?", bool)
        else:
            await ctx.yield_output("done")

    @handler
    async def work_and_ask(self, left: str, ctx: WorkflowContext[int, str]) -> None:
        ctx.set_state("asks", True)
        await ctx.send_message(int(left))

    @response_handler
    async def answered(self, original_request: str, response: bool, ctx: WorkflowContext[int, str]) -> None:
        await ctx.yield_output(f"done: {response}")


@dataclass(frozen=True)
class Template:
    """A run that was executed."""

    run_id: str
    records: list[Record]
    effects: list[CommitEffects]


@dataclass(frozen=True)
class Stock:
    """What a store contains."""

    checkpoints: int
    runs: int
    waiting: list[str]  # runs that wait, oldest first
    long: str  # the run with a tenth of all checkpoints


async def template(run_id: str, given: int | str) -> Template:
    """Run a workflow for this number of orders, and return what it stored."""
    storage = InMemoryCheckpointStorage()
    clerk = Clerk("clerk")
    workflow = WorkflowBuilder(name="orders", start_executor=clerk, checkpoint_storage=storage, max_iterations=2**62)
    await workflow.add_edge(clerk, clerk).build().run(given, run_id=run_id)
    records = await storage._store.history(run_id)
    effects = [CommitEffects() for _ in records]
    effects[-1] = CommitEffects(asked=tuple(await storage._store.pending()))
    return Template(run_id, records, effects)


def copied(made: Template, run_id: str, team: str) -> Iterator[tuple[Record, CommitEffects]]:
    """Yield the records of a run under another id."""
    old, new = f'"run_id":"{made.run_id}"'.encode(), f'"run_id":"{run_id}"'.encode()
    for record, effects in zip(made.records, made.effects, strict=True):
        entry = record.entry
        known = replace(entry, run_id=run_id, checkpoint_id=checkpoint_id(run_id, 0, entry.number))
        if effects.asked:
            effects = replace(effects, asked=tuple(replace(one, run_id=run_id) for one in effects.asked))
        if entry.number == 0:
            effects = replace(effects, metadata=RunMetadata({"team": team}))
        yield Record(known, record.body.replace(old, new) if entry.is_snapshot else record.body), effects


async def stock(storage: BuiltInStorage, checkpoints: int) -> Stock:
    """Fill an empty storage with about this many checkpoints."""
    length = max(checkpoints // 10, COMMITS)
    count = max((checkpoints - length) // COMMITS, 2)
    ids = [f"{n * 2654435761 % 2**32:08x}-{n}" for n in range(count)]
    done, waiting = await template("template", COMMITS - 1), await template("template", str(COMMITS - 2))
    runs = ((waiting if n % WAITING == 0 else done, run_id, TEAMS[n % len(TEAMS)]) for n, run_id in enumerate(ids))
    written = chain.from_iterable(copied(*run) for run in runs)
    long = copied(await template("template", length - 1), "the-long-one", "north")
    whole = chain(written, long)
    while piece := list(islice(whole, AT_ONCE)):
        await asyncio.gather(*(storage._store.append(record, effects) for record, effects in piece))
    return Stock(count * COMMITS + length, count + 1, ids[::WAITING], "the-long-one")
