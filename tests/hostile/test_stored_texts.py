"""Records, memory and mail that were made to attack, or were damaged: read, or refused by name."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell import CheckpointCorrupt
from stepwell.storage.built_in_storage import BuiltInStorage
from tests.hostile.texts import CORPUS, changed, flipped
from tests.hostile.victim import RUN, Moment, Order, Text, build, moments, read_everything

few = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def a_text(draw: st.DrawFn) -> tuple[Moment, int, Text]:
    moment = draw(st.sampled_from(moments()))
    index = draw(st.integers(0, len(moment.texts) - 1))
    return moment, index, moment.texts[index]


async def read_with(moment: Moment, changes: dict[int, bytes]) -> int:
    return await read_everything(await moment.store(changes))


async def test_what_was_not_touched_is_read() -> None:
    for moment in await asyncio.to_thread(moments):
        assert await read_with(moment, {}) == 10


@few
@given(st.data())
def test_a_text_that_says_something_else_is_read_or_refused(data: st.DataObject) -> None:
    moment, index, text = data.draw(a_text())
    body = text.summed(data.draw(changed(text.tree)))
    asyncio.run(read_with(moment, {index: body}))


@few
@given(st.data())
def test_a_text_of_an_older_format_that_says_something_else_is_read_or_refused(data: st.DataObject) -> None:
    """Those had no sums: whatever is in them is looked at."""
    moment, index, text = data.draw(a_text())
    body = data.draw(changed({**text.tree, "format": data.draw(st.integers(0, 2))}))
    asyncio.run(read_with(moment, {index: body}))


@few
@given(st.data())
def test_a_text_with_other_bytes_is_refused(data: st.DataObject) -> None:
    moment, index, text = data.draw(a_text())
    body = data.draw(flipped(text.body))
    assert asyncio.run(read_with(moment, {index: body})) < 10, "damage was not noticed"


@pytest.mark.parametrize("name", CORPUS)
@pytest.mark.parametrize("summed", [True, False], ids=["summed", "bare"])
async def test_a_text_made_to_attack_is_refused_by_name(name: str, summed: bool) -> None:
    moment = (await asyncio.to_thread(moments))[2]
    last = max(i for i, text in enumerate(moment.texts) if text.record and text.where[1] == RUN)
    memory = next(i for i, text in enumerate(moment.texts) if text.where[0] == "memory")
    for index in (last, memory):
        text = moment.texts[index]
        store = await moment.store({index: text.summed(CORPUS[name]) if summed else CORPUS[name]})
        with pytest.raises(CheckpointCorrupt, match=RUN):
            await build(BuiltInStorage(store)).run(run_id=RUN)


async def test_texts_that_changed_places_are_refused() -> None:
    moment = (await asyncio.to_thread(moments))[1]
    swaps = 0
    for one, first in enumerate(moment.texts):
        for other, second in enumerate(moment.texts):
            if one < other:
                swaps += 1
                done = await read_with(moment, {one: second.body, other: first.body})
                assert done < 10, (first.where, second.where)
    assert swaps > 10


async def test_a_damaged_run_costs_nobody_else_anything() -> None:
    moment = (await asyncio.to_thread(moments))[0]
    changes = {i: b"{" for i, text in enumerate(moment.texts) if text.record}
    store = await moment.store(changes)
    assert await read_everything(store) < 6
    storage = BuiltInStorage(store)
    workflow = build(storage)
    result = await workflow.run(Order("cup", 3), run_id="another")
    result = await workflow.run(run_id="another", responses={"sell?": True})
    assert result.wakes_at is not None
    assert [run.run_id for run in await storage.list_runs()] == ["another", RUN]
