"""Whatever the edges, and whatever comes of each agent: a run ends, and everybody in it is accounted for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.declarative.conditions.condition import equals
from stepwell.declarative.definition import Definition, Edge, ErrorMode, Node
from stepwell.declarative.schedule import SETTLED, Deciding, Decision, Plan, Stand, TooManyLoops, last_of, progress
from stepwell.declarative.validation import find_problems

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
    targets = {id: [way.target for way in made.ways() if way.source == id] for id in routers}
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
        self.plan, self.draw = Plan(definition), draw
        self.stands: Mapping[str, Stand] = {}
        self.begun = 0

    def step(self, what: str, *args: Any) -> Decision:
        before = {*self.busy()}
        deciding = Deciding(self.plan, self.stands, {})
        decision: Decision = getattr(deciding, what)(*args)
        assert not {*decision.start} & (before - {*args[:1]}), "somebody is begun who is running"
        assert len({*decision.start}) == len(decision.start)
        self.stands = deciding.stands
        self.begun += len(decision.start)
        for id in decision.start:
            assert self.stands[id].status == "running"
            self.check_upstream(id)
        return decision

    def check_upstream(self, id: str) -> None:
        for way in self.plan.into(id):
            if way.key not in self.plan.back and id not in self.plan.entries:
                assert self.stands[way.source].status in SETTLED, "somebody before it is not done"
        assert id in self.plan.entries or id in self.plan.fallbacks or self.stands[id].upstream

    def run(self) -> None:
        decision = self.step("begin")
        while not decision.done:
            running = self.busy()
            assert running, "nobody runs, and it is not over"
            decision = self.finish(self.draw(st.sampled_from(running)))

    def busy(self) -> list[str]:
        """Those that are really at work: whose place is taken only waits."""
        replaced = {stand.instead_of for stand in self.stands.values() if stand.status == "running"}
        return [id for id, stand in self.stands.items() if stand.status == "running" and id not in replaced]

    def finish(self, id: str) -> Decision:
        node = self.plan.definition.node(id)
        match self.draw(st.sampled_from(("gives", "gives", "gives", "fails", "denied"))):
            case "fails" if node.on_error != "stop":
                return self.step("gave_up", id, "broken")
            case "denied":
                return self.step("denied", id, "denied")
        if node.output_mode == "handoff":
            targets = [way.target for way in self.plan.out_of(id)]
            return self.step("finished", id, {"handoff": self.draw(st.sampled_from(targets))})
        return self.step("finished", id, {"say": self.draw(st.sampled_from(IDS)), id: "x"})


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
    assert all(stand.runs <= definition.max_iterations for stand in course.stands.values())
    if looped is not None:
        assert course.stands[looped.node].runs == definition.max_iterations
        return
    plan, stands = course.plan, course.stands
    assert all(stands[id].status in SETTLED for id in plan.ids if id not in plan.fallbacks)
    assert all(stands[id].reason for id in plan.ids if stands[id].status in ("skipped", "failed"))
    assert all(stands[id].status == "succeeded" for id in last_of(plan, stands))
    assert progress(plan, stands, plan.entries[0], over=True) == 1.0


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(definitions())
def test_everybody_is_reached_from_where_a_run_begins_and_ways_that_are_not_back_make_no_circle(
    made: Definition,
) -> None:
    plan = Plan(made)
    reached = set().union(*(plan.behind(id) for id in plan.entries))
    assert reached == {*plan.ids} - plan.fallbacks
    for id in plan.ids:
        behind = plan.behind(id)
        forward = [way for way in plan.into(id) if way.key not in plan.back]
        assert not any(way.source in behind for way in forward)
