"""What a step costs, counted and not timed: a clock says more about the machine."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from stepwell import SQLiteCheckpointStorage, step, workflow
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore

STEPS = 100


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def doubles(steps: int) -> int:
    return sum([await double(number) for number in range(steps)])


async def test_a_step_enters_few_functions() -> None:
    """Functions of Python that one more step enters, on the store in memory."""
    function = doubles.build(checkpoint_storage=BuiltInStorage(MemoryStore()))
    counts = list[int]()
    for steps in (1, 1, STEPS + 1):
        entered = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal entered
            entered += event == "call"

        sys.setprofile(count)
        try:
            await function.run(steps)
        finally:
            sys.setprofile(None)
        counts.append(entered)
    assert (counts[2] - counts[1]) / STEPS <= 110


async def test_a_step_takes_one_turn_of_the_event_loop(tmp_path: Path) -> None:
    """The way to the thread that writes, and back: no task, no callback besides."""
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    function = doubles.build(checkpoint_storage=storage)
    await function.run(1)
    loop, turns = asyncio.get_running_loop(), list[int]()
    select = loop._selector.select  # type: ignore[attr-defined]

    def count(timeout: Any = None) -> Any:
        turns.append(1)
        return select(timeout)

    loop._selector.select = count  # type: ignore[attr-defined]
    try:
        await function.run(STEPS)
    finally:
        loop._selector.select = select  # type: ignore[attr-defined]
    await storage.close()
    assert len(turns) < 1.2 * STEPS + 20
