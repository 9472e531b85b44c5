"""A pattern that takes long to match holds up its own run, and nothing else of the event loop."""

import asyncio
import time
from typing import Any

import pytest

from holdfast import HandlerFailed, InMemoryCheckpointStorage, Message
from holdfast.declarative import AgentWorkflow, Approval, ConditionFailed, matches, not_

# The package `regex` looks at its clock once in several hundred steps, and here each step walks through the whole text.
SLOW, TEXT = r"a.*?c", "a" * 3_000_000


async def gives_much(messages: list[Message]) -> str:
    return TEXT


async def echoes(messages: list[Message]) -> str:
    return "done"


def by_edge(condition: Any) -> AgentWorkflow:
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


def by_approval(condition: Any) -> AgentWorkflow:
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
async def test_a_slow_pattern_does_not_stop_the_event_loop(build: Any) -> None:
    condition = not_(matches("a", SLOW)) & matches("a", SLOW)
    before = time.perf_counter()
    with pytest.raises(ConditionFailed):
        condition.holds({"a": TEXT})
    alone = time.perf_counter() - before

    async def fails() -> None:
        with pytest.raises((ConditionFailed, HandlerFailed)) as failed:
            await build(condition).run("go")
        assert "make it simpler" in str(failed.value)

    assert await longest_gap(fails()) < alone / 2
