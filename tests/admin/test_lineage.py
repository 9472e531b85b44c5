"""The tree of forks that a run belongs to."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import InMemoryCheckpointStorage
from stepwell.admin import NotFound, export_run, find_lineage, fork, import_run
from stepwell.admin.lineage import Lineage
from stepwell.model.event import CheckpointInfo
from stepwell.storage.stored_values import CommitEffects, RunMetadata
from stepwell.testing.store_rules.samples import on, record, run_metadata
from tests.support.operating_runs import counting


def tree(lineage: Lineage) -> list[str]:
    return [f"{'  ' * place.depth}{place.run_id}{'' if place.run else ' (gone)'}" for place in lineage.runs]


async def grow(storage: Any) -> None:
    """A run, its forks, and theirs: some by hand, one by a workflow."""
    await counting(storage, 4).run(1, run_id="root")
    await fork(storage, "root@1", run_id="a", by="ada")
    await fork(storage, "root@2", run_id="b")
    checkpoint = (await storage.list_checkpoint_ids(run_id="root"))[1]
    await counting(storage, 4).run(checkpoint_id=checkpoint, run_id="c")
    await fork(storage, "b", run_id="b1")
    await fork(storage, "b1", run_id="b11")


async def test_a_run_knows_what_it_descends_from_and_what_was_forked_from_it(everywhere: Any) -> None:
    async with everywhere() as storage:
        await grow(storage)
        whole = ["root", "  a", "  b", "    b1", "      b11", "  c"]
        for run_id in ("root", "b1", "b11", "c"):
            lineage = await find_lineage(storage, run_id)
            assert (lineage.run_id, tree(lineage), lineage.is_whole) == (run_id, whole, True)
        places = {place.run_id: place for place in lineage.runs}
        parent = places["b"].parent
        assert parent is not None
        assert (parent.run_id, parent.number) == ("root", 2)
        assert parent.checkpoint_id == (await storage.list_checkpoint_ids(run_id="root"))[2]
        assert places["root"].parent is None
        fork_by_workflow = places["c"].run
        assert fork_by_workflow is not None
        assert fork_by_workflow.parent == places["c"].parent
        assert {"parent_run": "root", "parent_number": 1}.items() <= fork_by_workflow.to_dict().items()
        assert [run.run_id for run in await storage.list_runs(parent="root")] == ["c", "b", "a"]
        first = await storage.list_runs(parent="root", limit=1)
        assert [run.run_id for run in await storage.list_runs(parent="root", after=first[-1])] == ["b", "a"]
        assert await storage.list_runs(parent="\ud800") == []


async def test_a_tree_is_bounded_and_says_so(everywhere: Any) -> None:
    async with everywhere() as storage:
        await grow(storage)
        for limit, expected in [
            (1, ["b1"]),
            (2, ["b", "  b1"]),
            (3, ["root", "  b", "    b1"]),
            (4, ["root", "  b", "    b1", "      b11"]),
        ]:
            lineage = await find_lineage(storage, "b1", limit=limit)
            assert (tree(lineage), lineage.is_whole) == (expected, False)
        assert (await find_lineage(storage, "b1", limit=6)).is_whole
        with pytest.raises(ValueError, match="at least 1"):
            await find_lineage(storage, "b1", limit=0)
        with pytest.raises(NotFound):
            await find_lineage(storage, "nobody")


async def test_a_run_that_was_deleted_is_known_by_its_forks(everywhere: Any) -> None:
    async with everywhere() as storage:
        await grow(storage)
        await storage._store.drop("root")
        assert tree(await find_lineage(storage, "b1")) == ["root (gone)", "  a", "  b", "    b1", "      b11", "  c"]
        assert [run.run_id for run in await storage.list_runs(parent="root")] == ["c", "b", "a"]


async def test_the_parent_survives_export_and_import(everywhere: Any) -> None:
    async with everywhere() as storage, InMemoryCheckpointStorage() as other:
        await grow(storage)
        await import_run(other, await export_run(storage, "b1"))
        run = await other.get_run("b1")
        assert run is not None
        assert run.parent is not None
        assert (run.parent.run_id, tree(await find_lineage(other, "b1"))[-1].strip()) == ("b", "b1")


async def test_a_checkpoint_says_what_its_run_was_forked_from() -> None:
    async with InMemoryCheckpointStorage() as storage:
        await grow(storage)
        (first, *_) = await storage.list_checkpoints(run_id="b")
        assert first.parent == CheckpointInfo("root", (await storage.list_checkpoint_ids(run_id="root"))[2], 2)
        assert type(first).from_dict(first.to_dict()).parent == first.parent
        assert (await storage.list_checkpoints(run_id="root"))[0].parent is None


async def test_runs_that_claim_to_be_forked_from_each_other_end_the_search() -> None:
    async with InMemoryCheckpointStorage() as storage:
        for run_id, parent in [("x", "y"), ("y", "z"), ("z", "x")]:
            metadata: RunMetadata = replace(run_metadata(), parent=CheckpointInfo(parent, "id", 0))
            made = record(run_id, 0, at=on(1), status="IDLE")
            await storage._store.append(made, CommitEffects(metadata=metadata))
        lineage = await find_lineage(storage, "y")
        assert (sorted(place.run_id for place in lineage.runs), lineage.is_whole) == (["x", "y", "z"], True)
