"""A record that tells only what changed is never applied to another than the one before it."""

from __future__ import annotations

import pytest

from stepwell import CheckpointCorrupt, InMemoryCheckpointStorage, WorkflowBuilder, WorkflowContext, executor
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.storage.record import fold, fold_each


@executor(id="count")
async def count(number: int, ctx: WorkflowContext[int]) -> None:
    ctx.set_state("number", number)
    if number < 5:
        await ctx.send_message(number + 1)


async def test_a_chain_with_a_gap_is_refused() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(name="counting", start_executor=count).add_edge(count, count).build()
    await workflow.run(1, run_id="r", checkpoint_storage=storage)
    records = await storage._store.history("r")
    assert fold(records, DEFAULT_CODEC)[0].state["number"].open() == 5
    assert not records[3].entry.is_snapshot
    with pytest.raises(
        CheckpointCorrupt, match=f"{records[3].entry.checkpoint_id} of run 'r' cannot be read: it is a delta"
    ):
        fold([*records[:2], *records[3:]], DEFAULT_CODEC)


async def test_the_last_checkpoint_of_a_chain_is_the_same_whether_or_not_those_before_it_are_read() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(name="counting", start_executor=count).add_edge(count, count).build()
    await workflow.run(1, run_id="r", checkpoint_storage=storage)
    records = await storage._store.history("r")
    each = fold_each(records, DEFAULT_CODEC)
    assert [fold(records[: n + 1], DEFAULT_CODEC) for n in range(len(records))] == each
    assert [len(checkpoint.messages) for checkpoint, _ in each] == [1, 1, 1, 1, 1, 0]
