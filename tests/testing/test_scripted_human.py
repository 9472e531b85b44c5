"""Somebody who answers in order or by type, and, on request, wrongly, late or twice."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Executor,
    InMemoryCheckpointStorage,
    RequestExpired,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    response_handler,
)
from stepwell.testing import FailingStore, FakeClock, ScriptedHuman, crash_everywhere


@dataclass
class Price:
    of: str


class Shop(Executor):
    """Asks for a colour, then for a price."""

    def __init__(self, *, hours: float | None = None, default: str | None = None) -> None:
        super().__init__("shop")
        self.terms: dict[str, Any] = {} if hours is None else {"deadline": timedelta(hours=hours)}
        if default is not None:
            self.terms["default"] = default

    @handler
    async def begin(self, item: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(f"the colour of {item}?", str, **self.terms)

    @response_handler
    async def coloured(self, original_request: str, response: str, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_state("colour", response)
        await ctx.request_info(Price(response), int)

    @response_handler
    async def priced(self, original_request: Price, response: int, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{ctx.get_state('colour')} for {response}")


def build(**terms: Any) -> Workflow:
    inner = WorkflowBuilder(name="inner", start_executor=Shop(**terms)).build()
    storage = InMemoryCheckpointStorage()
    return WorkflowBuilder(
        name="outer",
        start_executor=WorkflowExecutor(inner, "shop", allow_direct_output=True),
        checkpoint_storage=storage,
    ).build()


async def talk(human: ScriptedHuman, clock: FakeClock | None = None, **terms: Any) -> list[Any]:
    workflow = build(**terms)
    result = await workflow.run("cup", run_id="r")
    result = await human.talk(result, lambda answers: workflow.run(run_id="r", responses=dict(answers)), clock=clock)
    return result.get_outputs()


async def test_questions_are_answered_in_order() -> None:
    human = ScriptedHuman(["blue", 7])
    assert await talk(human) == ["blue for 7"]
    assert human.asked == ["the colour of cup?", Price("blue")]


async def test_questions_are_answered_by_type() -> None:
    human = ScriptedHuman({Price: lambda question: len(question.of), str: "green"})
    assert await talk(human) == ["green for 5"]


@pytest.mark.parametrize(
    ("script", "words"),
    [(["blue"], "only 1 answers, but was also asked: Price"), ({str: "blue"}, "no answer to a Price")],
)
async def test_what_the_script_does_not_foresee_is_said(script: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        await talk(ScriptedHuman(script))


async def test_wrong_answers_and_second_ones_are_refused_on_the_way() -> None:
    assert await talk(ScriptedHuman(["blue", 7], wrong=[None], twice=True)) == ["blue for 7"]


async def test_a_wrong_answer_that_is_taken_is_found() -> None:
    with pytest.raises(AssertionError, match="a wrong answer was accepted"):
        await talk(ScriptedHuman(["blue", 7], wrong="red"))


async def test_whoever_is_late_is_answered_for_by_the_default() -> None:
    with FakeClock() as clock:
        late = ScriptedHuman(["blue", 7], late=timedelta(days=1))
        assert await talk(late, clock, hours=3, default="grey") == ["grey for 7"]


async def test_whoever_is_late_without_a_default_fails_the_run() -> None:
    with FakeClock() as clock, pytest.raises(RequestExpired):
        await talk(ScriptedHuman(["blue", 7], late=timedelta(days=1)), clock, hours=3)


async def test_to_be_late_needs_a_clock() -> None:
    with pytest.raises(ValueError, match="clock"):
        await talk(ScriptedHuman(["blue"], late=timedelta(days=1)))


@pytest.mark.long
@pytest.mark.parametrize("fault", [None, FailingStore])
async def test_a_human_who_makes_every_mistake_changes_nothing_wherever_a_run_dies(fault: Any) -> None:
    human = ScriptedHuman(["blue", 7], wrong=[None], twice=True, late=timedelta(days=1))
    more = {} if fault is None else {"fault": fault}
    report = await crash_everywhere(build(hours=3, default="grey"), "cup", answer=human, **more)
    assert report.writes > 8
    assert human.asked == ["the colour of cup?", Price("grey")]
