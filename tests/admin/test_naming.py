"""A run and a checkpoint are found by what a person types."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import CheckpointMissing, Retention, WorkflowCheckpoint
from stepwell.admin.lookup import Ambiguous, NotFound, find_checkpoint, find_run
from stepwell.testing.faults.wrapped_store import WrappedStore
from tests.support.operating_runs import counting


async def test_a_run_is_found_by_its_id_and_by_the_beginning_of_it(everywhere: Any) -> None:
    async with everywhere() as storage:
        await counting(storage).run(1, run_id="order-7", tags={"for": "ada"})
        await counting(storage).run(1, run_id="other-1")
        (_, listed) = await storage.list_runs()
        assert listed.run_id == "order-7"
        for text in ("order-7", "orde"):
            assert await find_run(storage, text) == listed


async def test_an_id_as_it_is_goes_before_those_that_begin_with_it(everywhere: Any) -> None:
    async with everywhere() as storage:
        for run_id in ("order", "order-1", "order@1"):
            await counting(storage).run(1, run_id=run_id)
        assert (await find_run(storage, "order")).run_id == "order"
        assert (await find_checkpoint(storage, "order")).run_id == "order"
        named = await find_checkpoint(storage, "order@1")  # the run of that name, not commit 1 of "order"
        assert (named.run_id, named.number) == ("order@1", 3)
        assert (await find_checkpoint(storage, "order@1@1")).number == 1


async def test_a_number_is_that_of_the_commit_and_a_negative_one_counts_from_the_end(everywhere: Any) -> None:
    async with everywhere() as storage:
        await counting(storage).run(1, run_id="counted")
        ids = await storage.list_checkpoint_ids(run_id="counted")
        for number, id in enumerate(ids):
            for text in (f"counted@{number}", f"counted@{number - len(ids)}", f"coun@{number}", id):
                found = await find_checkpoint(storage, text)
                assert (found.run_id, found.number, found.checkpoint_id) == ("counted", number, id)
        await storage.delete(ids[1])
        assert (await find_checkpoint(storage, "counted@2")).checkpoint_id == ids[2]
        assert (await find_checkpoint(storage, "counted@-3")).number == 0
        for text in ("counted@1", "counted@4", "counted@-4"):
            with pytest.raises(NotFound, match=r"3 are stored, from counted@0 to counted@3") as caught:
                await find_checkpoint(storage, text)
            assert caught.value.candidates == ("counted@0", "counted@2", "counted@3")


async def test_a_checkpoint_is_found_by_the_beginning_of_its_id(everywhere: Any) -> None:
    async with everywhere() as storage:
        await counting(storage, upto=30).run(1, run_id="counted")
        for number, id in enumerate(await storage.list_checkpoint_ids()):
            assert (await find_checkpoint(storage, id[:13])).number == number


async def test_what_fits_several_is_named_and_not_guessed(everywhere: Any) -> None:
    async with everywhere() as storage:
        for n in range(7):
            await counting(storage).run(1, run_id=f"order-{n}")
        for find in (find_run, find_checkpoint):
            with pytest.raises(Ambiguous, match=r"'order' matches order-6, .* order-2 and others") as caught:
                await find(storage, "order")
            assert caught.value.candidates == tuple(f"order-{n}" for n in (6, 5, 4, 3, 2))


@pytest.mark.long
@pytest.mark.parametrize(
    "text", ["nothing", "ord", "", "@", "order-1x", "nothing@3", "ord@0", "half \ud800", "half \ud800@1"]
)
async def test_what_is_not_there_is_an_error_that_says_what_is(text: str, everywhere: Any) -> None:
    async with everywhere() as storage:
        with pytest.raises(NotFound, match="it holds no runs"):
            await find_checkpoint(storage, text)
        await counting(storage).run(1, run_id="order-1")
        for find in (find_run, find_checkpoint):
            with pytest.raises(CheckpointMissing, match="the newest runs are order-1") as caught:
                await find(storage, text)
            assert isinstance(caught.value, NotFound)
            assert caught.value.candidates == ("order-1",)


async def test_a_run_that_keeps_only_its_latest_has_one_checkpoint(everywhere: Any) -> None:
    async with everywhere(retention=Retention.LatestOnly) as storage:
        await counting(storage, upto=90).run(1, run_id="latest")  # its first records are gone
        (listed,) = await storage.list_runs()
        assert await find_run(storage, "latest") == listed
        for text in ("latest", "latest@90", "latest@-1"):
            assert (await find_checkpoint(storage, text)).number == 90
        with pytest.raises(CheckpointMissing, match="latest"):
            await find_checkpoint(storage, "latest@89")


async def test_a_run_that_was_saved_by_hand_is_found_as_it_is_listed(storage: Any) -> None:
    await storage.save(
        WorkflowCheckpoint("by hand", run_id="hand-made", number=0, timestamp="2020-01-01T00:00:00+00:00")
    )
    (listed,) = await storage.list_runs()
    assert await find_run(storage, "hand-made") == listed


async def test_whole_ids_cost_the_same_however_much_is_stored(storage: Any) -> None:
    asked: list[str] = []

    class Watched(WrappedStore):
        async def use(self, name: str, call: Any) -> Any:
            asked.append(name)
            return await call()

    for n in range(5):
        await counting(storage).run(1, run_id=f"run-{n}")
    storage._store = Watched(storage._store)
    await find_run(storage, "run-3")
    await find_checkpoint(storage, "run-3@1")
    assert not {"runs", "checkpoints"} & set(asked)
