"""What model calls consumed is added up from the commits, in all and by workflow, tag and day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from stepwell import AgentExecutor, Workflow, WorkflowBuilder, WorkflowExecutor
from stepwell.admin import costs, fork
from stepwell.admin.costs import Consumption, sum_costs
from stepwell.agents import Calls, Message, ScriptedAgent, Usage
from stepwell.testing import FakeClock
from tests.support.operating_runs import counting


def _look_up_first(messages: list[Message]) -> str | Calls:
    return "found" if messages[-1].role == "tool" else Calls(("look", {"word": "well"}))


def clerks(storage: Any, *, priced: bool = True, name: str = "clerks") -> Workflow:
    """One agent, with two model calls and a tool call between them. A token costs a cent."""
    clerk = ScriptedAgent("clerk", _look_up_first, tools={"look": lambda word: word}, tokens_per_word=1)

    def price(usage: Usage) -> float:
        return (usage.input_tokens + usage.output_tokens) / 100

    start = AgentExecutor(clerk, price=price if priced else None)
    return WorkflowBuilder(name=name, start_executor=start, checkpoint_storage=storage).build()


def day_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


async def test_costs_are_added_up_by_workflow_tag_and_day(everywhere: Any) -> None:
    with FakeClock() as clock:
        async with everywhere() as storage:
            await clerks(storage).run("a deep well", run_id="one", tags={"team": "blue", "customer": "7"})
            one = (await sum_costs(storage)).total
            assert (one.runs, one.calls, one.unpriced) == (1, 2, 0)
            assert one.cost == Decimal(one.input_tokens + one.output_tokens) / 100 > 0
            first = clock.seconds()
            clock(days=1)
            await clerks(storage).run("a deep well", run_id="two", tags={"team": "blue"})
            await clerks(storage, priced=False, name="free").run("a deep well", run_id="three")
            await counting(storage).run(1, run_id="numbers")  # no model is called

            report = await sum_costs(storage)
            assert (report.runs, report.is_whole) == (4, True)
            assert report.total == one + one + Consumption(1, 2, one.input_tokens, one.output_tokens, unpriced=2)
            assert {name: (spent.runs, spent.cost) for name, spent in report.workflows.items()} == {
                "clerks": (2, 2 * one.cost),
                "free": (1, 0),
            }
            assert report.tags == {"team=blue": one + one, "customer=7": one}
            assert {day: spent.runs for day, spent in report.days.items()} == {
                day_of(first): 1,
                day_of(clock.seconds()): 2,
            }

            assert (await sum_costs(storage, workflow_name="free")).total.unpriced == 2
            assert (await sum_costs(storage, tags={"customer": "7"})).total == one
            later = datetime.fromtimestamp(first, UTC) + timedelta(hours=1)
            assert set((await sum_costs(storage, since=later)).days) == {day_of(clock.seconds())}


async def test_a_fork_and_a_sub_workflow_count_what_they_spent_themselves(storage: Any) -> None:
    inner = WorkflowExecutor(clerks(None, name="inner"), "inner", allow_direct_output=True)
    await (
        WorkflowBuilder(name="outer", start_executor=inner, checkpoint_storage=storage).build().run("x", run_id="outer")
    )
    assert {name: spent.calls for name, spent in (await sum_costs(storage)).workflows.items()} == {"inner": 2}
    await clerks(storage).run("x", run_id="parent")
    await fork(storage, "parent", run_id="child")  # from its end: nothing is left to do
    assert (await sum_costs(storage, workflow_name="clerks")).total.calls == 2


async def test_what_is_not_read_is_not_counted_and_the_report_says_so(storage: Any, monkeypatch: Any) -> None:
    for number in range(3):
        await clerks(storage).run("x", run_id=f"run-{number}")
    report = await sum_costs(storage, limit=2)
    assert (report.runs, report.total.runs, report.is_whole) == (2, 2, False)
    assert (await sum_costs(storage, limit=3)).is_whole
    monkeypatch.setattr(costs, "MOST_COMMITS", 1)
    assert not (await sum_costs(storage, limit=3)).is_whole
