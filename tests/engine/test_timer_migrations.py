"""Timers of executors that other code renames, replaces or removes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from stepwell import (
    Executor,
    Migration,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
    timer_handler,
)
from stepwell.testing import FakeClock

HOUR = timedelta(hours=1)


class Start(Executor):
    @handler
    async def begin(self, text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)


class Alarm(Executor):
    """Sets one timer under its own name, and one that every alarm has."""

    def __init__(self, id: str, hours: int) -> None:
        super().__init__(id)
        self.hours = hours

    @handler
    async def begin(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_timer(f"of {self.id}", self.hours * HOUR)
        ctx.set_timer("shared", self.hours * HOUR)

    @timer_handler
    async def ring(self, name: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{self.id}: {name}")


def build(storage: Any, *alarms: Alarm, migrations: Any = ()) -> Workflow:
    builder = WorkflowBuilder(
        name="alarms", start_executor=Start("start"), checkpoint_storage=storage, migrations=migrations
    )
    return builder.add_fan_out_edges("start", list(alarms)).build()


async def drive_to_end(workflow: Workflow, clock: FakeClock) -> list[str]:
    result = await workflow.run(run_id="r")
    while result.wakes_at is not None:
        clock.until(result.wakes_at)
        result = await workflow.run(run_id="r")
    assert result.get_final_state() is WorkflowRunState.IDLE
    return sorted(result.get_outputs())


async def test_timers_of_a_renamed_executor_call_it_by_its_new_name(everywhere: Any) -> None:
    with FakeClock() as clock:
        async with everywhere() as storage:
            await build(storage, Alarm("old", 1), Alarm("other", 2)).run("x", run_id="r")
            renamed = build(
                storage, Alarm("new", 1), Alarm("other", 2), migrations=[Migration(2).rename_executor("old", "new")]
            )
            assert await drive_to_end(renamed, clock) == [
                "new: of old",
                "new: shared",
                "other: of other",
                "other: shared",
            ]


async def test_timers_that_are_redirected_join_those_of_the_other_executor(everywhere: Any) -> None:
    with FakeClock() as clock:
        async with everywhere() as storage:
            await build(storage, Alarm("old", 1), Alarm("other", 2)).run("x", run_id="r")
            step = Migration(2).redirect_requests("old", to="other").remove_executor("old")
            merged = build(storage, Alarm("other", 2), Alarm("third", 1), migrations=[step])
            assert await drive_to_end(merged, clock) == ["other: of old", "other: of other", "other: shared"]


async def test_timers_that_are_withdrawn_do_not_fire(everywhere: Any) -> None:
    with FakeClock() as clock:
        async with everywhere() as storage:
            await build(storage, Alarm("old", 1), Alarm("other", 2)).run("x", run_id="r")
            step = Migration(2).withdraw_requests("old").remove_executor("old")
            left = build(storage, Alarm("other", 2), Alarm("third", 1), migrations=[step])
            assert await drive_to_end(left, clock) == ["other: of other", "other: shared"]
