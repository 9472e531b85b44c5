"""The simulation is worth something only if it notices: each of these bugs breaks a promise in one of few worlds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import CommitConflict, kernel
from stepwell.engine.durability.superstep_log import SuperstepLog
from stepwell.engine.handler import branches
from stepwell.model.log_keys import RecalledLog
from stepwell.storage.store_archive import StoreArchive
from stepwell.storage.stored_values import NO_EFFECTS
from stepwell.storage.unstored_archive import UnstoredArchive
from stepwell.stores.memory.store import MemoryStore
from tests.simulation.growing import plan_of
from tests.simulation.loop import simulated_loop
from tests.simulation.shrink import broken_by, smallest
from tests.simulation.world import Broken, run_plan

MOST_SEEDS = 150

Patch = pytest.MonkeyPatch


def never_recall(patch: Patch) -> None:
    def forget(self: Any, head: Any, rows: Any) -> RecalledLog:
        return RecalledLog()

    patch.setattr(StoreArchive, "_read_log", forget)


def never_consume_mail(patch: Patch) -> None:
    commit = StoreArchive.commit

    async def forgetful(self: Any, *args: Any, consumed: Any = (), **more: Any) -> None:
        await commit(self, *args, **more)

    patch.setattr(StoreArchive, "commit", forgetful)


def no_check_when_appending(patch: Patch) -> None:
    """A second commit of one number takes the place of the first, whoever holds the claim."""
    append = MemoryStore.append

    async def overwriting(self: Any, record: Any, effects: Any = NO_EFFECTS) -> None:
        try:
            await append(self, record, effects)
        except CommitConflict:
            await self.rewrite(record.entry.run_id, insert=record, effects=changed(effects, fence=None))

    patch.setattr(MemoryStore, "append", overwriting)


def fold_in_finishing_order(patch: Patch) -> None:
    merge = kernel.merge

    def racing(graph: Any, before: Any, made: Any, outcomes: Any, *rest: Any, **more: Any) -> Any:
        by_id = {delivery.id: delivery for delivery in made.deliveries}
        finished = tuple(by_id[id] for id in outcomes)
        return merge(graph, before, replace(made, deliveries=finished), outcomes, *rest, **more)

    patch.setattr(kernel, "merge", racing)


def tell_before_it_is_stored(patch: Patch) -> None:
    store, lazy = StoreArchive.commit, set[Any]()

    async def soon(self: Any, commit: Any, *args: Any, **effects: Any) -> None:
        storing = store(self, commit, *args, **effects)
        if commit.number == 0:
            await storing
        else:
            lazy.add(asyncio.ensure_future(storing))

    patch.setattr(StoreArchive, "commit", soon)


def forget_steps(patch: Patch) -> None:
    put = SuperstepLog.add

    async def careless(self: Any, key: str, note: Any) -> None:
        if "/step/" in key and note.value is not None:
            self._archive, kept = UnstoredArchive(), self._archive
            await put(self, key, note)
            self._archive = kept
        else:
            await put(self, key, note)

    patch.setattr(SuperstepLog, "add", careless)


def count_steps_by_asking(patch: Patch) -> None:
    current = branches.find_current

    def handler_itself(owner: branches.Branch) -> Any:
        branch = current(owner)
        return branch and list(branch.ancestors())[-1]

    patch.setattr(branches, "find_current", handler_itself)
    patch.setattr(branches.Branch, "is_run_by_another", lambda self: False)


BUGS: dict[Callable[[Patch], None], str] = {
    never_recall: "although it was durable",
    never_consume_mail: "mail was not consumed",
    no_check_when_appending: "breaks a promise",
    fold_in_finishing_order: "instead of",
    tell_before_it_is_stored: "was told before commit",
    forget_steps: "before it was durable",
    count_steps_by_asking: "step",
}
"""Each bug, and what is said of it."""


def first_broken() -> Broken | None:
    with simulated_loop() as loop:
        for seed in range(MOST_SEEDS):
            try:
                run_plan(loop, plan_of(seed))
            except Broken as broken:
                return broken
    return None


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_it_finds(bug: Callable[[Patch], None], monkeypatch: Patch) -> None:
    bug(monkeypatch)
    broken = first_broken()
    assert broken is not None, f"{MOST_SEEDS} worlds did not notice"
    assert BUGS[bug] in str(broken)


def test_what_it_finds_is_made_smaller(monkeypatch: Patch) -> None:
    never_recall(monkeypatch)
    broken = first_broken()
    assert broken is not None
    small = smallest(broken.plan, most=50)
    assert len(small.faults) <= len(broken.plan.faults)
    assert len(small.graph.every_node()) <= 3, small
    assert broken_by(small) is not None
    monkeypatch.undo()
    assert broken_by(small) is None
