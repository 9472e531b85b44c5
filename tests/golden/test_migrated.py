"""Runs of stores as they were released, and newer code: it goes on, migrates, or says why not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    Executor,
    GraphChanged,
    Migration,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
)
from stepwell.admin import check
from tests.support.golden_later import Seller
from tests.support.golden_migrated import SECOND, build, build_second
from tests.support.golden_stores import STORES, copy_of
from tests.support.golden_workflow import Asker, Counter, Parcel


@pytest.fixture(params=STORES, ids="-".join)
async def golden(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    name, kind = request.param
    async with copy_of(name, kind, tmp_path) as storage:
        yield storage


async def test_a_run_that_was_migrated_goes_on(golden: Any) -> None:
    head = await golden.get_latest(run_id="migrated")
    assert (dict(head.state), dict(head.executor_states)["officer"]) == ({"euros": 3.0}, {"seen": 1})
    (told,) = [event.data for event in await golden.event_history("migrated") if event.type == "migrated"]
    assert told[:2] == ["version 1 became version 2", "executor 'clerk' renamed to 'officer'"]
    result = await build_second(golden).run(run_id="migrated", responses={"golden loan": True})
    assert result.get_outputs() == [(3, None, 3.0), "noted"]


async def test_what_the_second_version_had_finished_is_recalled_and_migrated_by_the_third(golden: Any) -> None:
    third = Migration(3).rename_executor("pay", "payout")

    def newest(storage: Any) -> Workflow:
        @executor(id="payout")
        async def payout(loan: Any, ctx: WorkflowContext) -> None:
            raise AssertionError("it had finished")

        made = build_second(storage)
        first, note = made.executors["officer"], made.executors["note"]
        known = {"name": "loans", "checkpoint_storage": storage, "migrations": [SECOND, third]}
        return WorkflowBuilder(start_executor=first, **known).add_fan_out_edges(first, [payout, note]).build()

    result = await newest(golden).run(run_id="failed in the second")
    assert result.get_outputs() == [(3, None, 3.0), "noted"]


async def test_the_first_version_does_not_misread_what_the_second_has_changed(golden: Any) -> None:
    with pytest.raises(GraphChanged, match="stored by version 2 of the workflow, and this code is version 1"):
        await build(golden).run(run_id="migrated", responses={"golden loan": True})


class Judge(Asker):
    """Asks as before, under another name."""


def asking(storage: Any, *migrations: Migration) -> Workflow:
    known = {"name": "asking", "checkpoint_storage": storage, "migrations": migrations}
    return WorkflowBuilder(start_executor=Judge("judge"), **known).build()


async def test_a_question_of_an_executor_that_was_renamed_is_answered(golden: Any) -> None:
    checked = await check(golden, asking(golden))
    assert {run.verdict for run in checked.runs} == {"incompatible"}
    with pytest.raises(GraphChanged):
        await asking(golden).run(run_id="waiting", responses={"golden question": {"good": True}})
    renamed = asking(golden, Migration(2).rename_executor("asker", "judge"))
    assert {run.verdict for run in (await check(golden, renamed)).runs} == {"migrates"}
    result = await renamed.run(run_id="waiting", responses={"golden question": {"good": True}})
    assert result.get_outputs() == ["gold is good"]


class Strict(Executor):
    """Wants to know something else than the one before it."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext) -> None: ...

    @response_handler
    async def weigh(self, original_request: Parcel, response: int, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{original_request.label} weighs {response}")


async def test_a_question_that_wants_another_answer_now_is_changed(golden: Any) -> None:
    def strict(*migrations: Migration) -> Workflow:
        known = {"name": "asking", "checkpoint_storage": golden, "migrations": migrations}
        return WorkflowBuilder(start_executor=Strict("asker"), **known).build()

    with pytest.raises(GraphChanged, match="expects Verdict, but 'asker' accepts int"):
        await strict().run(run_id="waiting")
    reworded = strict(Migration(2).change_requests("asker", response_type=int))
    waiting = await reworded.run(run_id="waiting")
    assert [one.response_type for one in waiting.get_request_info_events()] == ["int"]
    result = await reworded.run(run_id="waiting", responses={"golden question": 7})
    assert result.get_outputs() == ["gold weighs 7"]


async def test_a_failed_superstep_goes_on_in_a_graph_of_another_shape(golden: Any) -> None:
    """`left` had finished and `right` failed; the join behind them is another now, and nothing is in it yet."""
    called: list[str] = []

    @executor(id="left")
    async def left(parcel: Parcel, ctx: WorkflowContext[int]) -> None:
        raise AssertionError("it had finished")

    @executor(id="right")
    async def right(parcel: Parcel, ctx: WorkflowContext[int]) -> None:
        called.append("right")
        await ctx.send_message(3)

    @executor(id="sum")
    async def each(number: int, ctx: WorkflowContext[None, int]) -> None:
        await ctx.yield_output(number)

    counter = Counter("counter")
    builder = WorkflowBuilder(name="golden", start_executor=counter, checkpoint_storage=golden)
    builder.add_fan_out_edges(counter, [left, right]).add_edge(left, each).add_edge(right, each)
    result = await builder.build().run(run_id="failed")
    assert (sorted(result.get_outputs(), key=str), called) == ([1, 2, 3, "left was here"], ["right"])


async def test_a_question_from_two_floors_down_is_answered_by_floors_that_were_renamed(golden: Any) -> None:
    def renamed(storage: Any) -> Workflow:
        shop = Migration(2).rename_executor("seller", "shop")
        deep = WorkflowBuilder(name="selling", start_executor=Seller("shop"), migrations=[shop]).build()
        middle = WorkflowExecutor(deep, "inner", allow_direct_output=True)
        inner = Migration(2).rename_executor("deep", "inner")
        market = WorkflowBuilder(name="market", start_executor=middle, migrations=[inner]).build()

        @executor(id="scribe")
        async def scribe(text: str, ctx: WorkflowContext[None, str]) -> None:
            await ctx.yield_output(f"scribe: {text}")

        outer = WorkflowExecutor(market, "market")
        builder = WorkflowBuilder(name="nested", start_executor=outer, checkpoint_storage=storage)
        return builder.add_edge(outer, scribe).build()

    (run,) = (await check(golden, renamed(golden))).runs
    assert (run.verdict, any("renamed to 'shop'" in words for words in run.why)) == ("migrates", True)
    result = await renamed(golden).run(run_id="nested", responses={"deal 3": {"done": True}})
    assert result.get_outputs() == ["clerk: offered for 3", "scribe: sold for 3"]
