"""Any graph that a run dies in, and any other that goes on with it: refused if and only if something is missing, and
otherwise what the other graph makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from stepwell import (
    GraphChanged,
    HandlerFailed,
    InMemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
)
from stepwell.graph.edges import FanIn

OTHERS = "bcde"


@dataclass(frozen=True)
class Shape:
    """A graph that begins with `a`: ways from one to another, and perhaps two that are waited for together."""

    ways: tuple[tuple[str, str], ...]
    join: tuple[str, str, str] | None  # two sources, and who waits for them

    @property
    def names(self) -> list[str]:
        return sorted({"a", *(end for way in self.ways for end in way), *(self.join or ())})

    @property
    def key(self) -> str | None:
        return None if self.join is None else FanIn(self.join[:2], self.join[2]).key


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    there = ["a"]
    ways: list[tuple[str, str]] = []
    for name in draw(st.lists(st.sampled_from(OTHERS), unique=True, min_size=1)):  # each can be reached
        ways.append((draw(st.sampled_from(there)), name))
        there.append(name)
    more = st.tuples(st.sampled_from(there), st.sampled_from(there))
    ways += [way for way in draw(st.lists(more, max_size=2, unique=True)) if way not in ways]
    join = None
    if len(there) > 2 and draw(st.booleans()):
        first, second, target = draw(st.permutations(there))[:3]
        if (first, target) not in ways and (second, target) not in ways:
            join = (first, second, target)
    return Shape(tuple(ways), join)


class World:
    """Executors that count down, note each call in the state, and fail where they are told to."""

    def __init__(self, storage: Any, calls: int | None) -> None:
        self.storage, self.left = storage, calls  # how many calls succeed

    def build(self, shape: Shape) -> Workflow:
        steps = {name: self._step(name) for name in shape.names}
        builder = WorkflowBuilder(
            name="world", start_executor=steps["a"], checkpoint_storage=self.storage, on_unroutable="drop"
        )
        for source, target in shape.ways:
            builder.add_edge(steps[source], steps[target])
        if shape.join is not None:
            *sources, target = shape.join
            builder.add_fan_in_edges([steps[source] for source in sources], steps[target])
        return builder.build()

    def _step(self, name: str) -> Any:
        @executor(id=name)
        async def step(given: int | list[int], ctx: WorkflowContext[int, Any]) -> None:
            number = given if isinstance(given, int) else max(given)
            if self.left == 0:
                raise ValueError("told to")
            self.left = None if self.left is None else self.left - 1
            ctx.append_state("log", [name, given])
            if number == 0:
                await ctx.yield_output(name)
            else:
                await ctx.send_message(number - 1)

        return step


def missing(shape: Shape, head: Any) -> bool:
    """Whether a graph of that shape lacks what a run has under way; told from what anybody can see of it."""
    sent = [message for group in head.messages.values() for message in group]
    takers = {taker for message in sent for taker in message.takers}
    joins = {key for message in sent for key in message.joins} | set(head.position.get("held", {}))
    return not takers <= set(shape.names) or not joins <= {shape.key}


@settings(max_examples=80, deadline=None)
@given(before=shapes(), after=shapes(), calls=st.integers(0, 7))
def test_a_run_goes_on_in_any_graph_that_has_what_it_needs(before: Shape, after: Shape, calls: int) -> None:
    asyncio.run(_goes_on(before, after, calls))


async def _goes_on(before: Shape, after: Shape, calls: int) -> None:
    world = World(InMemoryCheckpointStorage(), calls)
    try:
        await world.build(before).run(3, run_id="r")
        return  # it never came there
    except HandlerFailed:
        world.left = None
    head: Any = await world.storage.get_latest(run_id="r")
    other = world.build(after)
    stored: Sequence[str] = await world.storage.list_checkpoint_ids(run_id="r")
    if missing(after, head):
        with pytest.raises(GraphChanged) as refused:
            await other.run(run_id="r")
        # Without what was removed, an outcome of the superstep may be left under the name of another delivery.
        reasons = ("was removed", "belongs to another executor")
        assert all(any(reason in words for reason in reasons) for words in refused.value.differences)
        assert any("was removed" in words for words in refused.value.differences)
        assert await world.storage.list_checkpoint_ids(run_id="r") == stored
        event("refused")
        return
    afresh = await other.run(checkpoint_id=head.checkpoint_id, run_id="fork")
    result = await other.run(run_id="r")
    event("goes on")
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert result.get_outputs() == afresh.get_outputs()
    came_to = [await world.storage.get_latest(run_id=run_id) for run_id in ("r", "fork")]
    assert dict(came_to[0].state) == dict(came_to[1].state)
