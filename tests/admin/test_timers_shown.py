"""The timers of a run are shown: in its sentence, its document and its report."""

from __future__ import annotations

import re
from typing import Any

from stepwell import Executor, WorkflowBuilder, WorkflowContext, WorkflowExecutor, handler, timer_handler
from stepwell.admin import cancel, describe_run, report_run


class Alarm(Executor):
    @handler
    async def begin(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_timer("late", 7200)
        ctx.set_timer("early", 3600)

    @timer_handler
    async def ring(self, name: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(name)


async def start(storage: Any, *, nested: bool = False) -> None:
    alarm: Executor = Alarm("alarm")
    if nested:
        inner = WorkflowBuilder(name="inner", start_executor=alarm).build()
        alarm = WorkflowExecutor(inner, id="around", allow_direct_output=True)
    await WorkflowBuilder(name="alarms", start_executor=alarm, checkpoint_storage=storage).build().run("", run_id="r")


async def test_a_run_with_timers_says_which_fires_next_and_lists_them(everywhere: Any) -> None:
    async with everywhere() as storage:
        await start(storage)
        document = await describe_run(storage, "r")
        timers = document["timers"]["alarm"]
        assert sorted(timers) == ["early", "late"]
        assert timers["early"] < timers["late"]
        assert document["sentence"].startswith("Run r of alarms is sleeping until 20")
        assert "; timer 'early' of alarm fires next then. " in document["sentence"]
        assert document["until"] == timers["early"]
        page = re.sub(r"<[^>]+>", " ", await report_run(storage, "r"))
        assert page.index("timer &#x27;early&#x27; of alarm, due 20") < page.index("timer &#x27;late&#x27; of alarm")
        await cancel(storage, "r")
        assert (await describe_run(storage, "r"))["timers"]["alarm"] == timers  # a resume finds them again


async def test_timers_inside_a_sub_workflow_are_named_by_its_run(everywhere: Any) -> None:
    async with everywhere() as storage:
        await start(storage, nested=True)
        document = await describe_run(storage, "r")
        (child,) = document["children"].values()
        fires = f"; a timer of sub-workflow run {child['run_id']} of around fires next then. "
        assert fires in document["sentence"]
        inner = await describe_run(storage, child["run_id"])
        assert sorted(inner["timers"]["alarm"]) == ["early", "late"]
