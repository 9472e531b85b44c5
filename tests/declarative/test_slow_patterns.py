"""A pattern that takes long to match holds up its own run, and nothing else of the event loop."""

import asyncio
import threading
import time
from typing import Any

import pytest

from stepwell import HandlerFailed, InMemoryCheckpointStorage, Message
from stepwell.declarative import AgentWorkflow, AgentWorkflowInstance, Approval, ConditionFailed, matches, not_
from stepwell.declarative.conditions import patterns

# The package `regex` looks at its clock once in several hundred steps, and here each step walks through the whole text.
SLOW, TEXT = r"a.*?c", "a" * 1_500_000


async def gives_much(messages: list[Message]) -> str:
    return TEXT


async def echoes(messages: list[Message]) -> str:
    return "done"


def by_edge(condition: Any) -> AgentWorkflowInstance:
    return (
        AgentWorkflow.create()
        .with_name("slow")
        .with_checkpointing()
        .with_workflow_store(InMemoryCheckpointStorage())
        .add_agent("a", gives_much)
        .add_agent("b", echoes)
        .from_("a")
        .to("b", when=condition)
        .build()
    )


def by_approval(condition: Any) -> AgentWorkflowInstance:
    return (
        AgentWorkflow.create()
        .with_name("slow")
        .with_checkpointing()
        .with_workflow_store(InMemoryCheckpointStorage())
        .add_agent("a", gives_much, approval=Approval(when=condition))
        .build()
    )


async def longest_gap(work: Any) -> float:
    """How long the event loop stood still at most while that was done."""
    gaps = []

    async def tick() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.005)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    ticking = asyncio.create_task(tick())
    try:
        await work
    finally:
        ticking.cancel()
    return max(gaps)


@pytest.mark.parametrize("build", [by_edge, by_approval])
async def test_the_event_loop_goes_on_while_a_pattern_is_matched(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, went_on = asyncio.get_running_loop(), []

    def search(pattern: str, text: str) -> bool:
        seen = threading.Event()
        loop.call_soon_threadsafe(seen.set)
        went_on.append(seen.wait(timeout=2))  # only an event loop that goes on can end this before its time
        return False

    monkeypatch.setattr(patterns, "search", search)
    await build(not_(matches("a", "x")) & (matches("a", "y") | matches("a", "z"))).run("go")
    assert went_on == [True, True, True]


@pytest.mark.long
async def test_a_slow_pattern_does_not_stop_the_event_loop() -> None:
    condition = not_(matches("a", SLOW)) & matches("a", SLOW)
    before = time.perf_counter()
    with pytest.raises(ConditionFailed):
        condition.holds({"a": TEXT})
    alone = time.perf_counter() - before

    async def fails() -> None:
        with pytest.raises((ConditionFailed, HandlerFailed)) as failed:
            await by_edge(condition).run("go")
        assert "simplify it" in str(failed.value)

    gaps: list[float] = []
    while len(gaps) < 4 and (not gaps or gaps[-1] > alone / 2):  # the machine may be busy with something else
        gaps.append(await longest_gap(fails()))
    assert min(gaps) < alone / 2
