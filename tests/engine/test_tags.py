"""Tags that change while a run lives, and the outermost run of a sub-workflow."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import (
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    LatestOnly,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
    workflow,
)
from stepwell.admin import Examined, examine, export_run, fork, import_run
from stepwell.functional import RunContext
from stepwell.testing import ScriptedHuman, crash_everywhere


@pytest.fixture
def storage(every_storage: Any) -> Any:
    return every_storage


class Stages(Executor):
    """Names where it is: first, asks, last."""

    @handler
    async def begin(self, text: str, ctx: WorkflowContext[int, str]) -> None:
        ctx.set_tag("stage", "first")
        ctx.set_tag("gone", None)
        await ctx.send_message(1)

    @handler
    async def ask(self, number: int, ctx: WorkflowContext[int, str]) -> None:
        ctx.set_tag("stage", "one of several")
        ctx.set_tag("stage", "asks")
        await ctx.request_info("go on?", bool, request_id="q")

    @response_handler
    async def end(self, original_request: str, response: bool, ctx: WorkflowContext[int, str]) -> None:
        ctx.set_tag("stage", None)
        ctx.set_tag("é\0", "")
        await ctx.yield_output("done")


def stages(storage: Any) -> Workflow:
    work = Stages("stages")
    return WorkflowBuilder(name="stages", start_executor=work, checkpoint_storage=storage).add_edge(work, work).build()


async def tags(storage: Any, run_id: str = "r") -> dict[str, str]:
    run = await storage.get_run(run_id)
    for name, value in run.tags.items():
        assert run_id in [found.run_id for found in await storage.list_runs(tags={name: value})]
    latest = await storage.get_latest(run_id=run_id)
    assert latest is not None
    return dict(run.tags)


async def test_tags_change_with_the_commit_of_the_superstep(storage: Any) -> None:
    workflow = stages(storage)
    seen = []
    async for event in workflow.run("x", run_id="r", tags={"team": "red", "gone": "soon"}, stream=True):
        if event.type in ("started", "superstep_completed"):
            seen.append(await tags(storage))
    start = {"team": "red", "gone": "soon"}
    assert seen == [start, {"team": "red", "stage": "first"}, {"team": "red", "stage": "asks"}]
    assert await storage.list_runs(tags={"stage": "first"}) == []
    await stages(storage).run(run_id="r", responses={"q": True})  # another process, so to say
    assert await tags(storage) == {"team": "red", "é\0": ""}
    assert all([isinstance(found, Examined) async for found in examine(storage)])
    await storage.close()


async def test_a_handler_that_fails_changes_no_tags(storage: Any) -> None:
    @executor(id="broken")
    async def broken(number: int, ctx: WorkflowContext[int, int]) -> None:
        ctx.set_tag("stage", "broken")
        raise ValueError("no luck")

    workflow = WorkflowBuilder(name="w", start_executor=broken, checkpoint_storage=storage).build()
    with pytest.raises(HandlerFailed):
        await workflow.run(1, run_id="r", tags={"team": "red"})
    assert await tags(storage) == {"team": "red"}
    await storage.close()


async def test_of_two_that_set_one_tag_the_one_that_was_planned_later_wins(storage: Any) -> None:
    class Setter(Executor):
        @handler
        async def set(self, number: int, ctx: WorkflowContext[int, int]) -> None:
            ctx.set_tag("who", self.id)
            ctx.set_tag(self.id, "was here")

    class First(Executor):
        @handler
        async def begin(self, number: int, ctx: WorkflowContext[int, int]) -> None:
            await ctx.send_message(number)

    first, others = First("first"), [Setter("a"), Setter("b"), Setter("c")]
    builder = WorkflowBuilder(name="w", start_executor=first, checkpoint_storage=storage)
    await builder.add_fan_out_edges(first, others).build().run(1, run_id="r")
    assert await tags(storage) == {"who": "c", "a": "was here", "b": "was here", "c": "was here"}
    await storage.close()


async def test_tags_follow_a_run_that_is_moved_back_forked_or_moved_elsewhere(storage: Any) -> None:
    workflow = stages(storage)
    await workflow.run("x", run_id="r")
    await workflow.run(run_id="r", responses={"q": True})
    await fork(storage, "r@1", run_id="f")
    assert await tags(storage, "f") == {"stage": "first"}
    there = InMemoryCheckpointStorage()
    await import_run(there, await export_run(storage, "r"))
    assert await tags(there) == {"é\0": ""}
    redacted = InMemoryCheckpointStorage()
    await import_run(redacted, await export_run(storage, "r", without=["tags.stage"]), inspect_only=True)
    assert "first" not in str([record.body for record in await redacted._store.history("r")])
    assert "asks" not in str([record.body for record in await redacted._store.history("r")])
    handle = workflow.attach("r")
    await handle.restore((await handle.checkpoints())[2])
    assert await tags(storage) == {"stage": "asks"}
    await storage.close()


async def test_a_run_that_keeps_only_its_latest_checkpoint_has_its_tags() -> None:
    storage = InMemoryCheckpointStorage(retention=LatestOnly)
    await stages(storage).run("x", run_id="r")
    await stages(storage).run(run_id="r", responses={"q": True})
    assert await tags(storage) == {"é\0": ""}


@pytest.mark.parametrize(
    ("name", "value"), [("", "x"), ("a", 1), (1, "x"), ("a", "\udc80"), ("x" * 10_001, "a"), ("a", "x" * 10_001)]
)
async def test_a_tag_that_cannot_be_stored_is_refused_where_it_is_set(name: Any, value: Any) -> None:
    @executor(id="wrong")
    async def wrong(number: int, ctx: WorkflowContext[int, int]) -> None:
        ctx.set_tag(name, value)

    with pytest.raises(HandlerFailed, match="ValueError"):
        await WorkflowBuilder(start_executor=wrong).build().run(1)


async def test_tags_are_those_that_were_committed_wherever_a_process_dies() -> None:
    report = await crash_everywhere(stages(None), "x", answer=ScriptedHuman([True]))
    assert report.crashes > 10


async def test_inside_a_sub_workflow_the_outermost_run_is_known(storage: Any) -> None:
    seen: list[tuple[str, str]] = []

    class Deep(Executor):
        @handler
        async def look(self, number: int, ctx: WorkflowContext[int, int]) -> None:
            seen.append((ctx.run_id, ctx.root_run_id))
            ctx.set_tag("depth", "inner")
            await ctx.request_info("sure?", bool, request_id="q")

        @response_handler
        async def done(self, original_request: str, response: bool, ctx: WorkflowContext[int, int]) -> None:
            seen.append((ctx.run_id, ctx.root_run_id))
            await ctx.yield_output(1)

    def nested() -> Workflow:
        inner = WorkflowBuilder(name="inner", start_executor=Deep("deep")).build()
        middle = WorkflowBuilder(
            name="middle", start_executor=WorkflowExecutor(inner, "inner", allow_direct_output=True)
        ).build()
        outer = WorkflowExecutor(middle, "middle", allow_direct_output=True)
        return WorkflowBuilder(name="outer", start_executor=outer, checkpoint_storage=storage).build()

    (event,) = (await nested().run(1, run_id="r")).get_request_info_events()
    await nested().run(run_id="r", responses={event.request_id: True})
    assert [root for _, root in seen] == ["r", "r"]
    assert seen[0][0] == seen[1][0] != "r"
    assert (await storage.get_run(seen[0][0])).tags == {"depth": "inner"}
    assert (await storage.get_run("r")).tags == {}
    await storage.close()


async def test_in_a_run_of_its_own_it_is_the_run(tmp_path: Any) -> None:
    seen = []

    @executor(id="look")
    async def look(number: int, ctx: WorkflowContext[int, int]) -> None:
        seen.append((ctx.run_id, ctx.root_run_id))

    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    await WorkflowBuilder(start_executor=look, checkpoint_storage=storage).build().run(1, run_id="r")
    assert seen == [("r", "r")]
    await storage.close()


async def test_a_durable_function_sets_tags(storage: Any) -> None:
    @workflow(name="staged")
    async def staged(text: str, ctx: RunContext) -> str:
        ctx.set_tag("stage", "asks")
        granted = await ctx.ask(text, bool, request_id="q")
        ctx.set_tag("stage", "granted" if granted else None)
        ctx.set_tag("desk", None)
        return text

    await staged.run("tea", run_id="f", tags={"desk": "tea"}, checkpoint_storage=storage)
    # With the commit that ends the superstep, like everything else that is staged.
    assert (await storage.get_run("f")).tags == {"desk": "tea"}
    await staged.run(run_id="f", responses={"q": True}, checkpoint_storage=storage)
    assert (await storage.get_run("f")).tags == {"stage": "granted"}
