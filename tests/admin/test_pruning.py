"""What is old goes, and what stays can be read and goes on, wherever it ends."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from stepwell import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    Retention,
    SQLiteCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    executor,
)
from stepwell.admin.forks import fork
from stepwell.admin.lookup import find_checkpoint
from stepwell.admin.retention.policy import Keep
from stepwell.admin.retention.pruner import delete_runs, prune
from stepwell.storage.filters import ALL_RUNS
from stepwell.storage.integrity import VerifiedStore
from stepwell.storage.lease import this_process
from stepwell.storage.stored_values import Record
from stepwell.testing.faults.crash import Crash, CrashingStore
from tests.support.nesting import Asker, Ok, alone, asks, deep, ids
from tests.support.operating_runs import Order, asking, counting


async def numbers(storage: Any, run_id: str) -> list[int]:
    return [seen.number for seen in await storage.list_checkpoints(run_id=run_id)]


async def runs(storage: Any) -> list[str]:
    return sorted(run.run_id for run in await storage._store.runs(ALL_RUNS))


async def test_old_checkpoints_go_and_the_rest_is_as_it_was(everywhere: Any) -> None:
    async with everywhere() as storage:
        await counting(storage, upto=80).run(1, run_id="long")
        before = {seen.number: seen for seen in await storage.list_checkpoints(run_id="long")}
        report = await prune(storage, Keep(last=3))
        assert (report.runs, report.skipped) == ((), {})
        assert sorted(one.number for one in report.checkpoints) == list(range(78))
        assert await numbers(storage, "long") == [78, 79, 80]
        for seen in await storage.list_checkpoints(run_id="long"):
            known = before[seen.number]
            assert (dict(seen.state), seen.status, seen.timestamp) == (dict(known.state), known.status, known.timestamp)
        assert (await counting(storage).run(run_id="long")).get_outputs() == [list(range(1, 81))]
        assert (await prune(storage, Keep(last=3))).checkpoints == ()


async def test_a_dry_run_says_the_same_and_does_nothing(everywhere: Any) -> None:
    async with everywhere() as storage:
        await counting(storage, upto=20).run(1, run_id="one")
        await counting(storage, upto=70).run(1, run_id="two")
        before = [seen.to_dict() for seen in await storage.list_checkpoints()]
        for policy in (Keep(last=2), Keep(last=0)):
            said = await prune(storage, policy, dry_run=True)
            assert [seen.to_dict() for seen in await storage.list_checkpoints()] == before
        assert said.lines() == [f"would remove 2 runs and 0 checkpoints of other runs, {said.bytes:,} bytes"]
        said = await prune(storage, Keep(last=2), dry_run=True)
        done = await prune(storage, Keep(last=2))
        assert (done.runs, done.checkpoints, done.bytes, done.dry_run) == (
            said.runs,
            said.checkpoints,
            said.bytes,
            False,
        )


async def test_old_runs_go_and_young_and_unfinished_ones_stay(everywhere: Any, later: Any) -> None:
    async with everywhere() as storage:
        await counting(storage).run(1, run_id="old")
        await asking(storage).run(Order(1, ["lamp"]), run_id="asks")
        later(minutes=60)
        await counting(storage).run(1, run_id="young")
        report = await prune(storage, Keep(age=timedelta(minutes=30)))
        assert (report.runs, report.checkpoints) == (("old",), ())
        assert await runs(storage) == ["asks", "young"]
        report = await prune(storage, Keep(age=timedelta(minutes=30)), named=["asks"])
        assert [(one.run_id, one.number) for one in report.checkpoints] == [("asks", 0)]
        done = await asking(storage).run(run_id="asks", responses={"refund-1": True})
        assert done.get_outputs() == ["lamp: refunded"]


async def test_runs_that_keep_only_their_latest_go_as_a_whole_or_not(everywhere: Any) -> None:
    async with everywhere(retention=Retention.LatestOnly) as storage:
        await counting(storage, upto=70).run(1, run_id="latest")
        assert (await prune(storage, Keep(last=1))).checkpoints == ()
        assert (await counting(storage).run(run_id="latest")).get_outputs() == [list(range(1, 71))]
        assert (await prune(storage, Keep(last=0))).runs == ("latest",)
        assert await runs(storage) == []


async def test_a_fork_loses_nothing_when_its_parent_is_thinned_out(everywhere: Any) -> None:
    @executor(id="tell")
    async def tell(number: int, ctx: WorkflowContext[int, int]) -> None:
        await ctx.yield_output(number)
        if number < 6:
            await ctx.send_message(number + 1)

    async with everywhere() as storage:
        flow = (
            WorkflowBuilder(name="tell", start_executor=tell, checkpoint_storage=storage).add_edge(tell, tell).build()
        )
        await flow.run(1, run_id="parent")
        await counting(storage, upto=6).run(1, run_id="counted")
        await fork(storage, "parent@3", run_id="forked")
        await fork(storage, "counted@3", run_id="counted-again")
        await prune(storage, Keep(last=1))
        assert await numbers(storage, "counted") == [3, 6]
        assert (await flow.run(run_id="forked")).get_outputs() == [1, 2, 3, 4, 5, 6]
        assert (await flow.run(run_id="parent")).get_outputs() == [1, 2, 3, 4, 5, 6]
        report = await prune(storage, Keep(last=0, by_status={"IN_PROGRESS": None}))
        assert report.runs == ("forked", "parent")  # the other fork goes on, and needs what it was begun from
        assert (await counting(storage, upto=6).run(run_id="counted-again")).get_outputs() == [[1, 2, 3, 4, 5, 6]]


async def test_runs_inside_stay_with_their_caller_and_go_with_it(everywhere: Any) -> None:
    async with everywhere() as storage:

        def build() -> Any:
            return deep(alone(Asker()), 2, storage)

        (id,) = ids(await build().run("a", run_id="outer"))
        await prune(storage, Keep(last=1), named=["outer"])
        await fork(storage, "outer", run_id="forked")
        assert (await build().run(run_id="outer", responses={id: Ok(True)})).get_outputs() == ["saw a", "a: True"]
        assert (await prune(storage, Keep(last=0))).runs == ()  # the fork is open still, and begins where they are
        again = asks(await build().run(run_id="forked", responses={id: Ok(False)}))
        await build().run(run_id="forked", responses={again[0].request_id: Ok(True)})
        report = await prune(storage, Keep(last=0))
        assert report.runs[0] == "forked"
        assert await runs(storage) == []


async def test_a_run_that_is_driven_is_skipped_and_so_is_what_it_needs(everywhere: Any) -> None:
    async with everywhere() as storage:
        await counting(storage).run(1, run_id="parent")
        await fork(storage, "parent", run_id="forked")
        other = this_process("somebody else")
        other = type(other)(other.host, "another machine", other.pid, other.started, other.drive)
        await storage._store.acquire("forked", other, seconds=30)
        report = await prune(storage, Keep(last=0))
        assert report.runs == ()
        assert report.skipped["forked"].startswith("it is being driven by")
        assert report.skipped["parent"] == "run 'forked' stays, and needs it"
        assert "skipped parent: run 'forked' stays, and needs it" in report.lines()
        await storage._store.release("forked", other)
        assert (await prune(storage, Keep(last=0))).runs == ("forked", "parent")


async def test_a_run_that_is_forked_while_others_are_looked_at_stays() -> None:
    storage = InMemoryCheckpointStorage()
    await counting(storage).run(1, run_id="parent")
    await counting(storage).run(1, run_id="other")
    inner: Any = cast(VerifiedStore, storage._store).inner
    listed = inner.requests

    async def requests(*known: Any, **options: Any) -> Any:  # asked for when the runs are listed already
        inner.requests = listed
        await fork(storage, "parent", run_id="forked")
        return await listed(*known, **options)

    inner.requests = requests
    report = await prune(storage, Keep(last=0))
    assert report.runs == ("other",)
    assert report.skipped == {"parent": "run 'forked' was forked from it meanwhile"}


async def test_checkpoints_that_cost_less_as_they_are_stay(storage: Any) -> None:
    """A large value written once, and small commits since: a second copy of it would be larger than all of them."""

    @executor(id="small")
    async def small(number: int, ctx: WorkflowContext[int, int]) -> None:
        if number == 1:
            ctx.set_state("large", os.urandom(50_000).hex())
        if number < 9:
            await ctx.send_message(number + 1)

    flow = (
        WorkflowBuilder(name="small", start_executor=small, checkpoint_storage=storage).add_edge(small, small).build()
    )
    await flow.run(1, run_id="small")
    await fork(storage, "small@2", run_id="forked")
    report = await prune(storage, Keep(last=1))
    assert await numbers(storage, "small") == [2, 3, 4, 5, 6, 7, 8, 9]  # the value was in 1, and is in 2 now
    assert [one.number for one in report.checkpoints] == [1, 0]
    assert report.bytes > 0


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_space_that_was_used_is_there_for_others(kind: str, tmp_path: Path) -> None:
    def used() -> int:
        return sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".db-shm")

    storage: Any = (
        SQLiteCheckpointStorage(tmp_path / "runs.db") if kind == "sqlite" else FileCheckpointStorage(tmp_path)
    )
    async with storage:
        await counting(storage, upto=90).run(1, run_id="one")
    before = used()
    async with storage:
        await prune(storage, Keep(last=0))
        if kind == "sqlite":  # its pages are free, and the next run is written into them
            await counting(storage, upto=90).run(1, run_id="two")
    assert used() <= before * 1.1 if kind == "sqlite" else used() < before / 10


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("policy", [Keep(last=2), Keep(last=0)], ids=["thin out", "drop"])
async def test_wherever_it_ends_every_run_that_is_left_can_be_read(policy: Keep, after: bool) -> None:
    async def made() -> InMemoryCheckpointStorage:
        storage = InMemoryCheckpointStorage()
        await counting(storage, upto=8).run(1, run_id="counted")
        await fork(storage, "counted@4", run_id="forked")
        (id,) = ids(await deep(alone(Asker()), 2, storage).run("a", run_id="outer"))
        await deep(alone(Asker()), 2, storage).run(run_id="outer", responses={id: Ok(True)})
        return storage

    storage = await made()
    counted = storage._store = CrashingStore(storage._store)
    await prune(storage, policy)
    assert counted.writes > 1
    for at in range(1, counted.writes + 1):
        storage = await made()
        whole = storage._store
        storage._store = CrashingStore(whole, at, after=after)
        with pytest.raises(Crash):
            await prune(storage, policy)
        storage._store = whole
        for run_id in await runs(storage):
            seen = await storage.list_checkpoints(run_id=run_id)
            assert [one.checkpoint_id for one in seen] == await storage.list_checkpoint_ids(run_id=run_id)
            assert (await find_checkpoint(storage, run_id)).number == seen[-1].number
        assert (await counting(storage, upto=8).run(run_id="forked")).get_outputs() == [list(range(1, 9))]
        await prune(storage, policy)
        assert (await prune(storage, policy)).lines()[0].startswith("removed 0 runs and 0 checkpoints")


async def test_only_some_runs_are_pruned_and_the_others_are_heeded(everywhere: Any) -> None:
    async with everywhere() as storage:
        for name in ("one", "two"):
            await counting(storage, upto=9).run(1, run_id=name)
        await fork(storage, "one@4", run_id="forked")
        report = await prune(storage, Keep(last=0), only=["one"])
        assert report.runs == ()
        assert report.stays == {"one": "run 'forked' was forked from it, and stays"}
        assert await numbers(storage, "one") == [4, 9]  # the newest, and the one that the fork began at
        assert await numbers(storage, "two") == list(range(10))


async def test_a_run_is_deleted_whatever_it_is_and_takes_those_inside_along(everywhere: Any) -> None:
    async with everywhere() as storage:
        await asking(storage).run(Order(1, ["lamp"]), run_id="asks")
        await storage._store.send("asks", "letter", b'{"format":1,"kind":"cancel","number":1}')
        await deep(alone(Asker()), 2, storage).run("a", run_id="outer")
        await counting(storage).run(1, run_id="other")
        said = await delete_runs(storage, ["asks", "outer"], dry_run=True)
        assert len(await runs(storage)) == 5
        report = await delete_runs(storage, ["asks", "outer"])
        assert (report.runs, report.bytes) == (said.runs, said.bytes)
        assert len(report.runs) == 4
        assert await runs(storage) == ["other"]
        assert (await storage.pending_requests(), await storage._store.pending_signals("asks")) == ([], [])


async def test_a_run_that_others_need_is_not_deleted_without_them(everywhere: Any) -> None:
    async with everywhere() as storage:
        await counting(storage).run(1, run_id="parent")
        await fork(storage, "parent@1", run_id="forked")
        await deep(alone(Asker()), 1, storage).run("a", run_id="outer")
        (inside,) = [id for id in await runs(storage) if id not in ("parent", "forked", "outer")]
        report = await delete_runs(storage, ["parent", inside])
        assert report.runs == ()
        assert report.stays == {
            "parent": "run 'forked' was forked from it, and stays",
            inside: "it is a sub-workflow run of 'outer', which stays",
        }
        assert (await delete_runs(storage, ["parent", "forked"])).runs == ("forked", "parent")


async def test_a_damaged_run_is_left_alone_and_can_be_deleted(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    for name in ("broken", "whole"):
        await counting(storage, upto=9).run(1, run_id=name)
    store = cast(VerifiedStore, storage._store).inner
    records = await store.history("broken")
    await store.rewrite("broken", replace=[Record(r.entry, r.body.replace(b"count", b"cuont")) for r in records])
    report = await prune(storage, Keep(last=0))
    assert report.runs == ("whole",)
    assert "it cannot be read: " in report.stays["broken"]
    assert (await delete_runs(storage, ["broken"])).runs == ("broken",)
    assert await runs(storage) == []
    await storage.close()
