"""Runs are listed with where they are, and found by workflow, status and tags, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import InMemoryCheckpointStorage, WorkflowRunState
from tests.support.held import Script, asking, counting

IDLE, WAITING = WorkflowRunState.IDLE, WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


async def names(storage: Any, **filters: Any) -> list[str]:
    return [run.run_id for run in await storage.list_runs(**filters)]


async def test_a_run_is_listed_where_it_is(storage: Any) -> None:
    asker = asking(storage, Script())
    await asker.run("word", run_id="r", tags={"customer": "42"})
    (run,) = await storage.list_runs()
    head = await storage.get_latest(run_id="r")
    assert (run.run_id, run.workflow_name, run.status, run.tags) == ("r", "asking", WAITING, {"customer": "42"})
    assert (run.checkpoint_id, run.number, run.iteration_count) == (head.checkpoint_id, head.number, 1)
    assert run.began_at <= run.changed_at == head.timestamp
    await asker.run(run_id="r", responses={"word": True})
    (after,) = await storage.list_runs()
    assert (after.status, after.began_at, after.tags) == (IDLE, run.began_at, {"customer": "42"})


async def test_runs_are_found_by_workflow_status_and_all_of_the_tags(storage: Any) -> None:
    await asking(storage, Script()).run("word", run_id="a", tags={"customer": "42", "urgent": "yes"})
    await counting(storage, Script()).run(1, run_id="b", tags={"customer": "42"})
    await counting(storage, Script()).run(1, run_id="c")
    assert await names(storage) == ["c", "b", "a"]
    assert await names(storage, workflow_name="counting") == ["c", "b"]
    assert await names(storage, status=WAITING) == await names(storage, status="IDLE_WITH_PENDING_REQUESTS") == ["a"]
    assert await names(storage, tags={"customer": "42"}) == ["b", "a"]
    assert await names(storage, tags={"customer": "42", "urgent": "yes"}) == ["a"]
    assert await names(storage, tags={"customer": "42"}, status=IDLE) == ["b"]
    assert await names(storage, tags={"customer": "43"}) == []


async def test_pages_follow_each_other(storage: Any) -> None:
    workflow = counting(storage, Script(), last=1)
    for n in range(7):
        await workflow.run(1, run_id=f"r{n}", tags={"odd": "yes"} if n % 2 else None)
    first = await storage.list_runs(limit=3)
    second = await storage.list_runs(limit=3, after=first[-1])
    third = await storage.list_runs(limit=3, after=second[-1])
    assert [run.run_id for run in first + second + third] == [f"r{n}" for n in reversed(range(7))]
    assert await storage.list_runs(limit=1) == first[:1]
    assert await storage.list_runs(limit=1, after=first[0]) == first[1:2]
    odd = await storage.list_runs(limit=2, tags={"odd": "yes"})
    assert [run.run_id for run in odd] == ["r5", "r3"]
    assert await names(storage, after=odd[-1], tags={"odd": "yes"}) == ["r1"]


async def test_checkpoints_are_listed_in_pages(storage: Any) -> None:
    await counting(storage, Script(), last=9).run(1, run_id="r")
    ids = await storage.list_checkpoint_ids(run_id="r")
    assert await storage.list_checkpoint_ids(limit=3) == ids[-3:]
    assert await storage.list_checkpoint_ids(limit=1) == ids[-1:]
    assert [one.checkpoint_id for one in await storage.list_checkpoints(limit=1, before=ids[1])] == ids[:1]
    assert await storage.list_checkpoint_ids(run_id="r", limit=3, before=ids[-3]) == ids[-6:-3]
    page = await storage.list_checkpoints(workflow_name="counting", limit=4, before=ids[2])
    assert [one.checkpoint_id for one in page] == ids[:2]
    with pytest.raises(ValueError, match="at least 1, not 0"):
        await storage.list_checkpoint_ids(limit=0)


async def test_a_fork_has_the_tags_of_its_parent_or_its_own(storage: Any) -> None:
    workflow = counting(storage, Script())
    await workflow.run(1, run_id="r", tags={"customer": "42"})
    first = (await storage.list_checkpoint_ids(run_id="r"))[1]
    await workflow.run(checkpoint_id=first, run_id="same")
    await workflow.run(checkpoint_id=first, run_id="other", tags={"trial": "2"})
    assert {run.run_id: run.tags for run in await storage.list_runs()} == {
        "r": {"customer": "42"},
        "same": {"customer": "42"},
        "other": {"trial": "2"},
    }


async def test_a_handle_takes_tags_too(storage: Any) -> None:
    handle = counting(storage, Script()).start(1, run_id="r", tags={"customer": "42"})
    await handle.result()
    assert await names(storage, tags={"customer": "42"}) == ["r"]


async def test_started_again_a_run_keeps_its_tags(storage: Any) -> None:
    workflow = counting(storage, Script())
    for tags in ({"customer": "42"}, {"customer": "43"}):
        await workflow.run(1, run_id="r", tags=tags)
    (run,) = await storage.list_runs()
    assert run.tags == {"customer": "42"}


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        (["a"], "mapping from names to strings, not a list"),
        ({"a": 1}, "a name and a string, not 'a': 1"),
        ({"": "x"}, "a name and a string"),
        ({"a": "\ud800"}, "not valid Unicode"),
    ],
)
async def test_what_is_no_tag_is_refused_before_anything_begins(tags: Any, words: str) -> None:
    storage = InMemoryCheckpointStorage()
    with pytest.raises(ValueError, match=words):
        await counting(storage, Script()).run(1, run_id="r", tags=tags)
    assert await storage.list_runs() == []


async def test_a_run_that_has_begun_takes_no_tags(storage: Any) -> None:
    workflow = counting(storage, Script())
    await workflow.run(1, run_id="r")
    with pytest.raises(ValueError, match="are set when a run starts"):
        await workflow.run(run_id="r", tags={"a": "b"})
