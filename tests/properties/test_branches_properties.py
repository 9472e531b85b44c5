"""Each branch of a handler gets its own results and its own keys, wherever the handler has to begin anew."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell import HandlerFailed, StepChanged
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import Crash, CrashingStore
from tests.properties.branching import Node, Trouble, World, programs

FEW = settings(max_examples=120, deadline=None)


async def drive(world: World, store: Any, **options: Any) -> dict[str, int] | None:
    """What came of the run; None if it failed or its process died, as it was meant to."""
    try:
        result = await world.workflow(BuiltInStorage(store)).run("go", run_id="r", **options)
    except (Crash, HandlerFailed, BaseExceptionGroup) as error:
        if not _is_trouble(error.__cause__ if isinstance(error, HandlerFailed) else error):
            raise
        return None
    outputs: list[dict[str, int]] = result.get_outputs()
    return outputs[0]


def _is_trouble(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_trouble(one) for one in error.exceptions)
    return isinstance(error, (Trouble, Crash))


async def drive_to_the_end(world: World, inner: MemoryStore, deaths: list[tuple[int, bool]]) -> dict[str, int]:
    for at, after in deaths:
        if (found := await drive(world, CrashingStore(inner, at, after=after))) is not None:
            return found
    while (found := await drive(world, inner)) is None:
        assert world.fails_after is not None
    return found


deaths = st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=4)
failures = st.lists(st.integers(0, 10), max_size=4)


@FEW
@given(programs(), deaths, failures, st.booleans(), st.integers(0, 9999))
async def test_every_step_gets_its_own_result_and_its_own_key(
    program: Node, deaths: list[tuple[int, bool]], failures: list[int], bare: bool, seed: int
) -> None:
    world = World(program, bare=bare, fails_after=list(failures), dice=random.Random(seed))
    outcome = await drive_to_the_end(world, MemoryStore(), deaths)
    assert all(int(id) == result for id, result in outcome.items())
    keys = defaultdict(set)
    for id, key in world.done:
        keys[id].add(key)
    assert all(len(own) == 1 for own in keys.values()), "a step got another key than before"
    assert len({key for own in keys.values() for key in own}) == len(keys), "two steps share a key"
    assert set(keys) == set(program.steps())


@FEW
@given(programs(), st.integers(1, 10), st.integers(0, 9999), st.booleans(), st.data())
async def test_a_step_that_is_asked_for_otherwise_is_refused_unless_its_result_is_wanted(
    program: Node, fails_after: int, seed: int, stated: bool, data: st.DataObject
) -> None:
    world = World(program, fails_after=[fails_after], dice=random.Random(seed), stated=stated)
    store = MemoryStore()
    if await drive(world, store) is not None or not world.done:
        return
    inside = {id for part in _every(program) if part.kind == "inside" for one in part.parts for id in one.steps()}
    candidates = sorted({id for id, _ in world.done} - inside)  # what a step did inside is not asked for again
    if not candidates:
        return
    changed = data.draw(st.sampled_from(candidates))
    before = len(world.done)
    world.changed = frozenset([changed])
    if not stated:
        with pytest.raises((StepChanged, HandlerFailed)) as raised:
            await world.workflow(BuiltInStorage(store)).run(run_id="r")
        refusal = _refusal(raised.value)
        assert refusal is not None, raised.value
        assert refusal.stored != refusal.asked
        assert refusal.stored.startswith("_Attempt.work.<locals>.work(int#")
        assert [id for id, _ in world.done[before:]].count(changed) == 0, "it was done again"
    outcome = await drive(world, store, on_changed_step="refuse" if stated else "recall")
    assert outcome is not None
    assert all(int(id) == result for id, result in outcome.items())


def _every(node: Node) -> list[Node]:
    return [node, *(one for part in node.parts for one in _every(part))]


def _refusal(error: BaseException | None) -> StepChanged | None:
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := _refusal(one)) is not None), None)
    return error if error is None or isinstance(error, StepChanged) else _refusal(error.__cause__)
