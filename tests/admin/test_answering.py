"""An answer in plain JSON reaches the run as what it asked for, or leaves the question open."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    InMemoryCheckpointStorage,
    ResponseRejected,
    RunError,
    UnknownRequest,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
    response_handler,
)
from stepwell.admin.forks import fork
from stepwell.admin.requests import respond
from stepwell.admin.state_edits import EditRefused
from stepwell.storage.filters import ALL_RUNS
from stepwell.testing.faults.crash import Crash, CrashingStore
from tests.support.nesting import Asker, alone, deep, ids

WAITING = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


@dataclass
class Verdict:
    good: bool
    why: str = ""


class Judge(Executor):
    """Asks about each name, and says what it was told."""

    def __init__(self, *, hours: float | None = None) -> None:
        super().__init__("judge")
        self.hours = hours

    @handler
    async def ask(self, names: list[str], ctx: WorkflowContext[None, str]) -> None:
        for name in names:
            if self.hours is None:
                await ctx.request_info(name, Verdict, request_id=name)
            else:
                late = Verdict(False, "too late")
                await ctx.request_info(
                    name, Verdict, request_id=name, deadline=timedelta(hours=self.hours), default=late
                )

    @response_handler
    async def told(self, name: str, verdict: Verdict, ctx: WorkflowContext[None, str]) -> None:
        assert type(verdict) is Verdict
        await ctx.yield_output(f"{name}: {verdict.good} {verdict.why}".strip())


def judging(storage: Any, **how: Any) -> Workflow:
    return WorkflowBuilder(name="judging", start_executor=Judge(**how), checkpoint_storage=storage).build()


async def test_a_plain_answer_arrives_as_the_type_that_was_asked_for(everywhere: Any) -> None:
    async with everywhere() as storage:
        await judging(storage).run(["gold"], run_id="judged")
        await respond(storage, "judg", "gold", {"good": True, "why": "it shines"})
        done = await judging(storage).run(run_id="judged")
        assert (done.get_outputs(), done.get_final_state()) == (["gold: True it shines"], WorkflowRunState.IDLE)
        assert await storage._store.pending_signals("judged") == []
        with pytest.raises(ResponseRejected, match="was answered already at 20"):
            await respond(storage, "judged", "gold", {"good": True})
        with pytest.raises(UnknownRequest, match="open requests: none"):
            await respond(storage, "judged", "silver", {"good": True})


async def test_an_answer_that_does_not_fit_leaves_the_question_open_for_another(everywhere: Any) -> None:
    async with everywhere() as storage:
        await judging(storage).run(["gold"], run_id="judged")
        await respond(storage, "judged", "gold", {"good": "perhaps"})
        with pytest.raises(
            ResponseRejected, match=r"the response to 'gold' of 'judge' in run 'judged' is not accepted"
        ) as no:
            await judging(storage).run(run_id="judged")
        assert no.value.request_id == "gold"
        assert [asked.request_id for asked in await storage.pending_requests()] == ["gold"]
        again = await judging(storage).run(run_id="judged")  # told once, and the run waits as before
        assert (again.get_final_state(), again.get_outputs()) == (WAITING, [])
        await respond(storage, "judged", "gold", {"good": False})
        assert (await judging(storage).run(run_id="judged")).get_outputs() == ["gold: False"]


async def test_what_does_not_fit_is_a_warning_if_there_is_something_else_to_go_on_with(everywhere: Any) -> None:
    async with everywhere() as storage:
        await judging(storage).run(["gold", "silver"], run_id="judged")
        await respond(storage, "judged", "gold", [])
        await respond(storage, "judged", "silver", {"good": True})
        result = await judging(storage).run(run_id="judged")
        assert (result.get_outputs(), result.get_final_state()) == (["silver: True"], WAITING)
        (warning,) = [event.data for event in result if event.type == "warning"]
        assert "the response to 'gold'" in warning
        await respond(storage, "judged", "gold", {"good": True})
        assert (await judging(storage).run(run_id="judged")).get_outputs() == ["silver: True", "gold: True"]


async def test_the_second_of_two_answers_is_refused_with_the_name_of_the_first(everywhere: Any) -> None:
    async with everywhere() as storage:
        workflow = judging(storage)
        await workflow.run(["gold"], run_id="r")
        await respond(storage, "r", "gold", {"good": True}, by="ann")
        (pending,) = await storage.pending_requests()
        assert pending.answered is not None
        assert (pending.answered.by, pending.answered.at[:2]) == ("ann", "20")
        refused = "request 'gold' of run 'r' was answered already by 'ann' at 20"
        for call in (
            lambda: respond(storage, "r", "gold", {"good": False}, by="bo"),
            lambda: workflow.attach("r").respond({"gold": Verdict(False)}, by="bo"),
            lambda: workflow.run(run_id="r", responses={"gold": Verdict(False)}, by="bo"),
        ):
            with pytest.raises(ResponseRejected, match=refused):
                await call()
        await respond(storage, "r", "gold", {"good": True}, by="ann")  # sent again after a crash
        assert (await workflow.run(run_id="r")).get_outputs() == ["gold: True"]
        # Nor when it is applied.
        for call in (
            lambda: respond(storage, "r", "gold", {"good": False}, by="bo"),
            lambda: workflow.attach("r").respond({"gold": Verdict(False)}, by="bo"),
            lambda: workflow.run(run_id="r", responses={"gold": Verdict(False)}, by="bo"),
        ):
            with pytest.raises(ResponseRejected, match=refused):
                await call()
        assert await storage._store.pending_signals("r") == []


async def test_an_answer_that_the_run_rejects_frees_its_request(everywhere: Any) -> None:
    async with everywhere() as storage:
        await judging(storage).run(["gold"], run_id="r")
        await respond(storage, "r", "gold", {"good": "perhaps"}, by="ann")
        with pytest.raises(ResponseRejected, match="by 'ann'"):
            await respond(storage, "r", "gold", {"good": True}, by="bo")
        with pytest.raises(ResponseRejected, match="is not accepted"):
            await judging(storage).run(run_id="r")
        (pending,) = await storage.pending_requests()
        assert pending.answered is None
        done = await judging(storage).run(run_id="r", responses={"gold": Verdict(True)}, by="bo")
        assert done.get_outputs() == ["gold: True"]


async def test_an_answer_that_came_in_time_goes_before_the_default(storage: Any, later: Any) -> None:
    for run_id, value in (("in time", {"good": True}), ("no verdict", 5)):
        await judging(storage, hours=1).run(["gold"], run_id=run_id)
        await respond(storage, run_id, "gold", value)
    later(minutes=90)
    await respond(storage, "in time", "gold", {"good": True})  # it is there already, and was in time
    with pytest.raises(ResponseRejected, match="answered already"):
        await respond(storage, "in time", "gold", {"good": False})
    assert (await judging(storage, hours=1).run(run_id="in time")).get_outputs() == ["gold: True"]
    assert (await judging(storage, hours=1).run(run_id="no verdict")).get_outputs() == ["gold: False too late"]


async def test_a_fork_is_answered_along_and_its_parent_is_not(everywhere: Any) -> None:
    async with everywhere() as storage:
        await judging(storage).run(["gold", "silver"], run_id="parent")
        await fork(storage, "parent", run_id="forked", responses={"gold": {"good": True}, "silver": {"good": False}})
        assert sorted((await judging(storage).run(run_id="forked")).get_outputs()) == ["gold: True", "silver: False"]
        assert len(await storage.pending_requests(run_id="parent")) == 2
        with pytest.raises(UnknownRequest, match="open requests: 'gold', 'silver'"):
            await fork(storage, "parent", run_id="wrong", responses={"lead": True})
        with pytest.raises(EditRefused):
            await fork(storage, "parent", run_id="wrong", responses={"gold": Verdict(True)})
        assert sorted(run.run_id for run in await storage.list_runs()) == ["forked", "parent"]


async def test_a_question_of_a_run_inside_is_answered_by_its_caller(everywhere: Any) -> None:
    async with everywhere() as storage:
        (id,) = ids(await deep(alone(Asker()), 2, storage).run("a", run_id="outer"))
        await fork(storage, "outer", run_id="forked", responses={id: {"yes": True}})
        done = await deep(alone(Asker()), 2, storage).run(run_id="forked")
        assert done.get_outputs() == ["saw a", "a: True"]
        (inner,) = [run for run in await storage._store.runs(ALL_RUNS) if run.metadata.caller == "outer"]
        with pytest.raises(RunError, match="is a sub-workflow run of 'outer'"):
            await respond(storage, inner.run_id, id, {"yes": True})


async def test_a_dollar_in_a_plain_answer_is_a_name_like_any_other(storage: Any) -> None:
    class Free(Executor):
        @handler
        async def ask(self, name: str, ctx: WorkflowContext[None, dict]) -> None:  # type: ignore[type-arg]
            await ctx.request_info(name, dict, request_id="free")

        @response_handler
        async def told(self, name: str, said: dict, ctx: WorkflowContext[None, dict]) -> None:  # type: ignore[type-arg]
            await ctx.yield_output(said)

    flow = WorkflowBuilder(name="free", start_executor=Free("free"), checkpoint_storage=storage).build()
    await flow.run("a", run_id="free")
    said = {"$": "Decimal", "v": "1.5", "more": [None, 1.0]}
    await respond(storage, "free", "free", said)
    assert (await flow.run(run_id="free")).get_outputs() == [said]


@pytest.mark.parametrize("after", [False, True])
async def test_wherever_it_dies_a_plain_answer_is_taken_in_once(after: bool) -> None:
    async def asked() -> InMemoryCheckpointStorage:
        storage = InMemoryCheckpointStorage()
        await judging(storage).run(["gold", "silver"], run_id="judged")
        for name, value in (("gold", {"good": True}), ("silver", "no verdict")):
            await respond(storage, "judged", name, value)
        return storage

    storage = await asked()
    counted = storage._store = CrashingStore(storage._store)
    whole = await judging(storage).run(run_id="judged")
    assert (whole.get_outputs(), whole.get_final_state()) == (["gold: True"], WAITING)
    assert counted.writes > 1
    for at in range(1, counted.writes + 1):
        storage = await asked()
        sound = storage._store
        storage._store = CrashingStore(sound, at, after=after)
        with pytest.raises(Crash):
            await judging(storage).run(run_id="judged")
        storage._store = sound
        again = await judging(storage).run(run_id="judged")
        assert (again.get_outputs(), again.get_final_state()) == (["gold: True"], WAITING)
        assert [one.request_id for one in await storage.pending_requests()] == ["silver"]
        assert await storage._store.pending_signals("judged") == []
