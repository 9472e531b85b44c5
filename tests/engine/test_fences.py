"""Whoever comes back after a long pause and finds the run claimed by somebody else cannot write any more."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import CommitConflict, WorkflowBuilder, WorkflowContext, executor
from stepwell.storage.lease import this_process


async def test_it_is_refused_before_the_other_has_written_anything(storage: Any, later: Any) -> None:
    """The other has only claimed the run: where it stands is still where the first one saw it."""

    @executor(id="work")
    async def work(number: int, ctx: WorkflowContext[int, int]) -> None:
        if number == 2:
            later(minutes=10)  # a pause: its lease is over
            await storage._store.acquire("r", this_process("somebody else"), seconds=60)
        if number < 4:
            await ctx.send_message(number + 1)

    workflow = WorkflowBuilder(name="worker", start_executor=work, checkpoint_storage=storage).add_edge(work, work)
    with pytest.raises(CommitConflict, match="acquired by another process"):
        await workflow.build().run(1, run_id="r")
    assert (await storage.get_latest(run_id="r")).number == 1
