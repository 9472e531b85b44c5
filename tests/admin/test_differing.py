"""Two checkpoints are compared by what their runs hold there, without the code that made them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from stepwell import Retention, SQLiteCheckpointStorage
from stepwell.admin.diffs.checkpoints import diff, load_document
from stepwell.admin.diffs.json_diff import apply_patch, compare, format_path, patch_of, same
from stepwell.admin.lookup import NotFound, find_checkpoint
from tests.support.nesting import Asker, alone, deep
from tests.support.operating_runs import Order, asking, counting


async def test_what_a_superstep_did_is_what_differs(everywhere: Any) -> None:
    async with everywhere() as storage:
        await counting(storage).run(1, run_id="counted")
        found = await diff(storage, "counted@2", "counted@3")
        assert found.lines() == [
            "counted@2 → counted@3",
            '~ status: "running" → "completed"',
            "+ outputs[0]: [1, 2, 3]",
            "~ iteration: 2 → 3",
            "~ state.about.last: 2 → 3",
            "+ state.numbers[2]: 3",
            '- messages[0]: {"from": "count", "to": ["count"], "data": 3}',
        ]
        assert {"op": "add", "path": "/state/numbers/2", "value": 3} in found.patch()
        assert (await diff(storage, "counted@2", "counted@2")).lines()[1:] == ["no difference"]


async def test_the_patch_leads_from_one_to_the_other_and_back(everywhere: Any) -> None:
    async with everywhere() as storage:
        await counting(storage, upto=12).run(1, run_id="counted")
        await asking(storage).run(Order(1, ["lamp"]), run_id="asked")
        for one, other in (("counted@0", "counted@12"), ("counted@5", "counted@4"), ("counted@7", "asked")):
            found = await diff(storage, one, other)
            first, second = [await load_document(storage, at) for at in (found.before, found.after)]
            assert same(apply_patch(first, found.patch()), second)
            assert same(apply_patch(second, found.reversed().patch()), first)
            assert found.reversed().before == found.after


async def test_a_fork_that_did_the_same_has_no_difference_from_its_parent(everywhere: Any) -> None:
    async with everywhere() as storage:
        await counting(storage, upto=4).run(1, run_id="parent")
        older = await find_checkpoint(storage, "parent@2")
        await counting(storage, upto=4).run(checkpoint_id=older.checkpoint_id, run_id="forked")
        assert (await diff(storage, "parent", "forked")).changes == ()
        assert (await diff(storage, "parent@2", "forked@0")).changes == ()


async def test_open_questions_and_runs_inside_are_part_of_it(everywhere: Any) -> None:
    async with everywhere() as storage:
        await asking(storage).run(Order(1, ["lamp"]), run_id="asked")
        lines = (await diff(storage, "asked@0", "asked@1")).lines()
        (asked,) = [line for line in lines if line.startswith("+ requests.refund-1")]
        assert '"executor": "desk", "question": {"id": 1, "lines": ["lamp"]}' in asked
        await deep(alone(Asker()), 1, storage).run("a", run_id="outer")
        assert any(line.startswith("+ children.") for line in (await diff(storage, "outer@0", "outer")).lines())


async def test_runs_that_keep_only_their_latest_are_compared_where_they_are(everywhere: Any) -> None:
    async with everywhere(retention=Retention.LatestOnly) as storage:
        await counting(storage, upto=3).run(1, run_id="three")
        await counting(storage, upto=5).run(1, run_id="five")
        found = await diff(storage, "three", "five")
        assert [change.after for change in found.changes if change.kind == "added" and "numbers" in change.path] == [
            4,
            5,
        ]


async def test_a_checkpoint_that_is_not_there_is_an_error(storage: Any) -> None:
    await counting(storage).run(1, run_id="counted")
    with pytest.raises(NotFound, match="missing"):
        await diff(storage, "counted", "missing")


@pytest.mark.process
async def test_no_code_of_the_workflow_is_needed(tmp_path: Path) -> None:
    async with SQLiteCheckpointStorage(tmp_path / "runs.db") as storage:
        await asking(storage).run(Order(1, ["lamp"]), run_id="asked")
        await asking(storage).run(run_id="asked", responses={"refund-1": True})
    program = """
import asyncio, json, sys
from stepwell import SQLiteCheckpointStorage
from stepwell.admin.diffs.checkpoints import diff
async def main():
    async with SQLiteCheckpointStorage(sys.argv[1]) as storage:
        print(json.dumps((await diff(storage, "asked@0", "asked@1")).patch()))
asyncio.run(main())
assert "operating_runs" not in sys.modules
"""
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(tmp_path / "runs.db"), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await started.communicate()
    assert started.returncode == 0
    order = {"$": "tests.support.operating_runs:Order", "v": {"id": 1, "lines": ["lamp"]}}
    assert {"op": "add", "path": "/state/order", "value": order} in json.loads(printed)


def test_the_stored_form_of_a_class_is_not_part_of_a_path_that_people_read() -> None:
    before = {"state": {"order": {"$": "shop:Order", "v": {"price": 1}}, "v": {"v": 1}}}
    after = {"state": {"order": {"$": "shop:Order", "v": {"price": 2}}, "v": {"v": 2}}}
    changes = compare(before, after)
    assert [format_path(change.path) for change in changes] == ["state.order.price", "state.v.v"]
    assert apply_patch(before, patch_of(changes)) == after
