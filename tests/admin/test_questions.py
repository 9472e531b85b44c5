"""What a run asks is seen whole from outside, with what is known of an answer."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import InMemoryCheckpointStorage, RunError
from stepwell.admin import fork, open_requests, preview_fork, respond
from stepwell.admin.diffs.checkpoints import NotForked, diff, diff_from_parent
from stepwell.admin.lookup import NotFound, find_checkpoint
from stepwell.admin.requests import load_requests
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.model.signal import ReceivedJson
from stepwell.storage.filters import ALL_RUNS
from stepwell.storage.signals import answer_key, write_signal
from stepwell.storage.store_archive import StoreArchive
from tests.support.nesting import Asker, alone, around
from tests.support.operating_runs import Order, asking, counting


async def test_a_question_is_there_until_its_answer_is_taken_in(everywhere: Any) -> None:
    async with everywhere() as storage:
        await asking(storage).run(Order(1, ["lamp"]), run_id="refund")
        (one,) = await open_requests(storage, "refund")
        assert (one.run_id, one.request_id, one.executor) == ("refund", "refund-1", "desk")
        assert one.data["v"] == {"id": 1, "lines": ["lamp"]}
        assert (one.response_type, one.response_schema, one.answered) == ("bool", {"type": "boolean"}, None)
        await respond(storage, "refund", "refund-1", "perhaps")
        assert [one.answered is not None for one in await open_requests(storage, "refund")] == [True]
        with pytest.raises(RunError):
            await asking(storage).run(run_id="refund")
        assert [one.answered is not None for one in await open_requests(storage, "refund")] == [False]  # it was refused
        await asking(storage).run(run_id="refund", responses={"refund-1": True})
        assert await open_requests(storage, "refund") == []
        before = await load_requests(storage, await find_checkpoint(storage, "refund@1"))
        assert [(one.request_id, one.answered is not None) for one in before] == [("refund-1", False)]


async def test_mail_for_a_run_as_it_was_before_it_was_moved_back_is_no_answer() -> None:
    storage = InMemoryCheckpointStorage()
    await asking(storage).run(Order(1, ["lamp"]), run_id="refund")
    at = await StoreArchive(storage._store, DEFAULT_CODEC).head("refund")
    assert at is not None
    for epoch, answered in ((at.header.epoch + 1, False), (at.header.epoch, True)):
        key = answer_key(epoch, at.requests["refund-1"])
        await storage._store.send("refund", key, write_signal(ReceivedJson("refund-1", b"true")))
        assert [one.answered is not None for one in await open_requests(storage, "refund")] == [answered]


async def test_a_run_that_works_for_another_asks_nothing_itself() -> None:
    storage = InMemoryCheckpointStorage()
    await around(alone(Asker()), storage).run("tea", run_id="outer")
    assert len(await open_requests(storage, "outer")) == 1
    inner = next(run.run_id for run in await storage._store.runs(ALL_RUNS) if run.run_id != "outer")
    with pytest.raises(RunError, match="is a sub-workflow run of 'outer'"):
        await open_requests(storage, inner)
    with pytest.raises(NotFound):
        await open_requests(storage, "nobody")


async def test_a_preview_is_the_difference_that_the_fork_has(everywhere: Any) -> None:
    async with everywhere() as storage:
        await counting(storage).run(1, run_id="parent")
        changes: dict[str, Any] = {"set": {"numbers.0": 9}, "add": {"upto": 5}, "delete": ["about"]}
        preview = await preview_fork(storage, "parent@2", run_id="forked", **changes)
        assert [run.run_id for run in await storage.list_runs()] == ["parent"]
        await fork(storage, "parent@2", run_id="forked", **changes)
        made = await diff(storage, "parent@2", "forked@0")
        assert preview.changes == made.changes
        assert (await diff_from_parent(storage, "forked@0")) == made
        with pytest.raises(RunError, match="already exists"):
            await preview_fork(storage, "parent@2", run_id="forked")
        with pytest.raises(NotForked):
            await diff_from_parent(storage, "parent")
