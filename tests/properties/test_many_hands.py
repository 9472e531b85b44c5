"""Several hold one run and do to it what they like, all at once: it stays one run, and everybody sees the same."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stepwell import RunBusy, RunError, WorkflowRunState
from stepwell.workflows import RunHandle
from tests.support.held import Script, counting, storage_at

ACTS = ("send", "send", "cancel", "resume", "restore", "read", "read", "result")
KINDS = [("memory", 1, 10), ("six methods", 1, 5), ("sqlite", 2, 5), ("file", 2, 5)]
"""Where the run is kept, by how many programs, and how often it is tried."""


class Hands:
    """Whoever holds the run, in one program or two, and what they read."""

    def __init__(self, dice: random.Random, storages: list[Any]) -> None:
        self.dice = dice
        self.workflows = [counting(storage, Script(), last=3) for storage in storages]
        self.first = self.workflows[0].start(1, run_id="r")
        self.handles = [self.first, *(one.attach("r", drive=True) for one in self.workflows for _ in range(2))]
        self.read: list[tuple[int, list[tuple[Any, ...]]]] = []

    async def act(self) -> None:
        for _ in range(self.dice.randrange(60)):
            await asyncio.sleep(0)
        handle = self.dice.choice(self.handles)
        with suppress(RunError, RunBusy):  # it was cancelled or moved back just then, or another program drives it
            await self._act(self.dice.choice(ACTS), handle)

    async def _act(self, what: str, handle: RunHandle) -> None:
        match what:
            case "send":
                await handle.send(self.dice.choice([2, 3, 10]))
            case "cancel":
                assert await handle.cancel() in (WorkflowRunState.CANCELLED, WorkflowRunState.IDLE)
            case "resume":
                await self.dice.choice(self.workflows).start(1, run_id="r").status()
            case "restore":
                await handle.restore(self.dice.choice(await handle.checkpoints()))
            case "read":
                after = self.dice.randrange(-1, 8)
                self.read.append((after, await told(handle, after)))
            case "result":
                await handle.result()


async def told(handle: RunHandle, after: int = -1) -> list[tuple[Any, ...]]:
    """What a handle shows of the history after a commit; what a run rests with may be older, and is left out."""
    seen = [(event.commit, event.type, event.data) async for event in handle.events(after=after) if event.durable]
    return [event for event in seen if event[0] is not None and event[0] > after]


@pytest.mark.parametrize(
    ("kind", "programs", "seed"),
    [(kind, programs, seed) for kind, programs, times in KINDS for seed in range(times)],
)
async def test_it_stays_one_run_and_everybody_is_told_the_same(
    kind: str, programs: int, seed: int, tmp_path: Path
) -> None:
    hands = Hands(random.Random(seed), [storage_at(kind, tmp_path) for _ in range(programs)])
    await hands.first.status()
    await asyncio.gather(*(hands.act() for _ in range(25)))

    await hands.workflows[0].start(1, run_id="r").result()
    result = await hands.first.result()
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert (await hands.workflows[-1].run(run_id="r")).get_outputs() == result.get_outputs()
    whole = await told(hands.first)
    for after, read in hands.read:
        assert read == [event for event in whole if event[0] > after][: len(read)]
    checkpoints = await hands.first.checkpoints()
    assert [info.number for info in checkpoints] == list(range(len(checkpoints)))
    assert len({info.checkpoint_id for info in checkpoints}) == len(checkpoints)
