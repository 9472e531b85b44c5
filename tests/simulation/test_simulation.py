"""Thousands of worlds, each made from a number: whatever goes wrong, the run comes to what the model foretells."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.simulation.crowd_model import crowded_plan_of
from tests.simulation.growing import plan_of
from tests.simulation.loop import simulated_loop
from tests.simulation.plan import Edge, Fault, Graph, Node, Plan, shown
from tests.simulation.shrink import smallest
from tests.simulation.world import Broken, run_plan

SEEDS = 2000
CROWDED_SEEDS = 120  # they take longer: each answer is a program of its own
_CROWDED_SHARES = 6
_SHARES = 40  # so many tests, for several processes to take from


@pytest.fixture(autouse=True)
def _chance_is_ours() -> object:
    """The worlds seed the one source of chance that the engine has; nobody else should notice."""
    before = random.getstate()
    yield
    random.setstate(before)


@pytest.mark.parametrize("share", range(_SHARES))
def test_every_promise_is_kept(share: int) -> None:
    each = SEEDS // _SHARES
    with simulated_loop() as loop:
        for seed in range(share * each, (share + 1) * each):
            try:
                run_plan(loop, plan_of(seed))
            except Broken as broken:
                pytest.fail(
                    f"{broken}\nsmaller, but broken too:\n{shown(smallest(broken.plan, most=150))}", pytrace=False
                )


@pytest.mark.parametrize("share", range(_CROWDED_SHARES))
def test_every_promise_is_kept_to_a_crowd(share: int) -> None:
    each = CROWDED_SEEDS // _CROWDED_SHARES
    with simulated_loop() as loop:
        for seed in range(share * each, (share + 1) * each):
            try:
                run_plan(loop, crowded_plan_of(seed))
            except Broken as broken:
                small = shown(smallest(broken.plan, most=100))
                pytest.fail(f"{broken}\nsmaller, but broken too:\n{small}", pytrace=False)


def test_the_crowded_worlds_have_everything_in_them() -> None:
    plans = [crowded_plan_of(seed) for seed in range(CROWDED_SEEDS)]
    inside = [node for plan in plans for node in plan.graph.every_node() if node not in plan.graph.nodes]
    for what in ("asks", "waits", "deadline", "withdraws", "sleep", "reminds"):
        assert sum(bool(getattr(node, what)) for node in inside) > 5, what
    faults = Counter(fault.kind for plan in plans for fault in plan.faults)
    assert min(faults[kind] for kind in ("die", "rival", "stall", "cancel", "answer")) > 10, faults


def test_a_seed_makes_the_same_history_each_time() -> None:
    for seed in (3, 10, 17, 28, 40):
        assert history(plan_of(seed)) == history(plan_of(seed))


def history(plan: Plan) -> list[str]:
    lines: list[str] = []
    with simulated_loop() as loop:
        run_plan(loop, plan, lines)
    return lines


def test_the_worlds_have_everything_in_them() -> None:
    plans = [plan_of(seed) for seed in range(SEEDS)]
    nodes = [node for plan in plans for node in plan.graph.every_node()]
    for what in (
        "plain",
        "strict",
        "asks",
        "deadline",
        "waits",
        "reminds",
        "counts",
        "appends",
        "sets",
        "adds",
        "reads",
        "steps",
        "sleep",
        "fails",
        "child",
    ):
        assert sum(bool(getattr(node, what)) for node in nodes) > 50, what
    inside = [node for plan in plans for node in plan.graph.every_node() if node not in plan.graph.nodes]
    assert sum(node.reminds > 0 for node in inside) > 50
    edges = Counter(edge.kind for plan in plans for edge in plan.graph.edges)
    assert min(edges[kind] for kind in ("direct", "when", "fan out", "fan in", "switch", "select")) > 100
    faults = Counter(fault.kind for plan in plans for fault in plan.faults)
    assert min(faults[kind] for kind in ("die", "refuse", "leave", "stop", "rival", "stall", "hasty", "again")) > 100
    assert {plan.durability for plan in plans} == {"sync", "async", "exit"}
    deep = [
        node for plan in plans for node in plan.graph.nodes if node.child and any(n.child for n in node.child.nodes)
    ]
    assert len(deep) > 10


def test_what_goes_of_runs_inside_goes_although_it_was_begun_before_a_crash() -> None:
    """The caller of a run inside dies after that run has let go of what was superseded, and before it does itself."""
    innermost = Graph(
        "w0.0.",
        (Node("w0.0.0", sends=2, appends=True), Node("w0.0.2", asks=True, reads=True)),
        (Edge("direct", ("w0.0.0",), ("w0.0.2",)),),
    )
    inside = Graph(
        "w0.", (Node("w0.0", child=innermost), Node("w0.1")), (Edge("when", ("w0.0",), ("w0.1",), salt=654),)
    )
    with simulated_loop() as loop:
        for at in range(1, 25):
            for after in (False, True):
                faults = (Fault("rival", 1, True), Fault("die", at, after), Fault("die", 1, after))
                graph = Graph("w", (Node("w0", child=inside),))
                run_plan(loop, Plan(1794892212, graph, hops=3, faults=faults, latest_only=True, busy=0))
