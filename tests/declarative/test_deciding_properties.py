"""Whatever the edges, and whatever comes of each agent: a run ends, and everybody in it is accounted for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.declarative.conditions.condition import equals
from stepwell.declarative.definition import Definition, Edge, ErrorMode, Node
from stepwell.declarative.node_graph import NodeGraph
from stepwell.declarative.schedule import (
    SETTLED,
    Decision,
    NodeState,
    Scheduler,
    TooManyLoops,
    compute_progress,
    find_final_nodes,
)
from stepwell.declarative.validation import find_problems
from tests.support.conditions import find_holding

IDS = ("a", "b", "c", "d", "e", "f")
MODES: tuple[ErrorMode, ...] = ("stop", "skip", "isolate", "fallback")


@st.composite
def definitions(draw: st.DrawFn) -> Definition:
    ids = IDS[: draw(st.integers(1, len(IDS)))]
    nodes = []
    for id in ids:
        mode = draw(st.sampled_from(MODES))
        router = draw(st.integers(0, 5)) == 0
        spare = f"spare {id}" if mode == "fallback" else None
        nodes.append(Node(id, output_mode="handoff" if router else "text", on_error=mode, fallback=spare))
        if spare is not None:
            nodes.append(Node(spare, on_error=draw(st.sampled_from(("isolate", "skip")))))
    edges = []
    defaults: set[str] = set()
    for _ in range(draw(st.integers(0, 9))):
        source, target = draw(st.sampled_from(ids)), draw(st.sampled_from(ids))
        kind = draw(st.sampled_from(("always", "when", "default")))
        if kind == "default" and source not in defaults:
            defaults.add(source)
            edges.append(Edge((source,), (target,), default=True))
        else:
            edges.append(Edge((source,), (target,), equals("say", target) if kind == "when" else None))
    made = Definition("any", tuple(nodes), tuple(edges), max_iterations=draw(st.integers(1, 4)))
    routers = {node.id for node in made.nodes if node.output_mode == "handoff"}
    targets = {id: [route.target for route in made.routes() if route.source == id] for id in routers}
    plain = [
        Node(node.id, on_error=node.on_error, fallback=node.fallback)
        if node.id in routers and not targets[node.id]
        else Node(
            node.id,
            output_mode=node.output_mode,
            default_target=targets[node.id][0] if node.id in routers else None,
            on_error=node.on_error,
            fallback=node.fallback,
        )
        for node in made.nodes
    ]
    return Definition("any", tuple(plain), tuple(edges), max_iterations=made.max_iterations)


class Course:
    """A run of a definition, in which chance says who is done next, and with what."""

    def __init__(self, definition: Definition, draw: Any) -> None:
        self.graph, self.draw = NodeGraph(definition), draw
        self.states: Mapping[str, NodeState] = {}
        self.begun = 0

    def step(self, what: str, *args: Any) -> Decision:
        before = {*self.busy()}
        scheduler = Scheduler(self.graph, self.states, {})
        holding = [find_holding(scheduler, *args)] if what == "succeed" else []
        decision: Decision = getattr(scheduler, what)(*args, *holding)
        assert not {*decision.start} & (before - {*args[:1]}), "somebody is begun who is running"
        assert len({*decision.start}) == len(decision.start)
        self.states = scheduler.states
        self.begun += len(decision.start)
        for id in decision.start:
            assert self.states[id].status == "running"
            self.check_upstream(id)
        return decision

    def check_upstream(self, id: str) -> None:
        for route in self.graph.into(id):
            if route.key not in self.graph.loop_keys and id not in self.graph.entries:
                assert self.states[route.source].status in SETTLED, "somebody before it is not done"
        assert id in self.graph.entries or id in self.graph.fallbacks or self.states[id].upstream

    def run(self) -> None:
        decision = self.step("begin")
        while not decision.done:
            running = self.busy()
            assert running, "nobody runs, and it is not over"
            decision = self.finish(self.draw(st.sampled_from(running)))

    def busy(self) -> list[str]:
        """Those that are really at work: whose place is taken only waits."""
        replaced = {state.instead_of for state in self.states.values() if state.status == "running"}
        return [id for id, state in self.states.items() if state.status == "running" and id not in replaced]

    def finish(self, id: str) -> Decision:
        node = self.graph.definition.node(id)
        match self.draw(st.sampled_from(("gives", "gives", "gives", "fails", "denied"))):
            case "fails" if node.on_error != "stop":
                return self.step("fail", id, "broken")
            case "denied":
                return self.step("deny", id, "denied")
        if node.output_mode == "handoff":
            targets = [route.target for route in self.graph.out_of(id)]
            return self.step("succeed", id, {"handoff": self.draw(st.sampled_from(targets))})
        return self.step("succeed", id, {"say": self.draw(st.sampled_from(IDS)), id: "x"})


@pytest.mark.long
@settings(max_examples=600, deadline=None)
@given(definitions(), st.data())
def test_every_run_ends_with_everybody_accounted_for(definition: Definition, data: st.DataObject) -> None:
    assert not [text for _, text in find_problems(definition)]
    course = Course(definition, data.draw)
    looped: TooManyLoops | None = None
    try:
        course.run()
    except TooManyLoops as error:
        looped = error
    assert all(state.runs <= definition.max_iterations for state in course.states.values())
    if looped is not None:
        assert course.states[looped.node].runs == definition.max_iterations
        return
    graph, states = course.graph, course.states
    assert all(states[id].status in SETTLED for id in graph.ids if id not in graph.fallbacks)
    assert all(states[id].reason for id in graph.ids if states[id].status in ("skipped", "failed"))
    assert all(states[id].status == "succeeded" for id in find_final_nodes(graph, states))
    assert compute_progress(graph, states, graph.entries[0], over=True) == 1.0


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(definitions())
def test_everybody_is_reached_from_where_a_run_begins_and_ways_that_are_not_back_make_no_circle(
    made: Definition,
) -> None:
    graph = NodeGraph(made)
    reached = set().union(*(graph.downstream(id) for id in graph.entries))
    assert reached == {*graph.ids} - graph.fallbacks
    for id in graph.ids:
        behind = graph.downstream(id)
        forward = [route for route in graph.into(id) if route.key not in graph.loop_keys]
        assert not any(route.source in behind for route in forward)
