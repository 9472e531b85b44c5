"""Make a plan that breaks a promise smaller, by leaving things out as long as it still does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from stepwell import DefinitionError
from tests.simulation.loop import simulated_loop
from tests.simulation.plan import Edge, Graph, Node, Plan
from tests.simulation.world import Broken, run_plan

_MOST_TRIALS = 600


def broken_by(plan: Plan) -> Broken | None:
    """What a plan breaks, in a world of its own; None if it breaks nothing."""
    with simulated_loop() as loop:
        try:
            run_plan(loop, plan)
        except Broken as broken:
            return broken
        except DefinitionError:  # too much was left out
            return None
    return None


def smallest(plan: Plan, breaks: Callable[[Plan], Broken | None] = broken_by, most: int = _MOST_TRIALS) -> Plan:
    """The smallest plan found that still breaks something."""
    trials = 0
    found = True
    while found:
        found = False
        for smaller in _smaller(plan):
            trials += 1
            if trials > most:
                return plan
            if breaks(smaller) is not None:
                plan, found = smaller, True
                break
    return plan


def _with(plan: Plan, field: str, value: Any) -> Plan:
    return replace(plan, **{field: value})


def _smaller(plan: Plan) -> Iterator[Plan]:
    """A plan with something left out, one thing after the other; the largest first."""
    for n in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:n] + plan.faults[n + 1 :])
    for graph in _smaller_graphs(plan.graph):
        yield replace(plan, graph=graph)
    if plan.hops > 1:
        yield replace(plan, hops=plan.hops - 1)
    for name, calm in (("repeated", False), ("batch", False), ("rebuilt", False), ("latest_only", False), ("busy", 0)):
        if getattr(plan, name) != calm:
            yield _with(plan, name, calm)
    for name, usual in (("durability", "sync"), ("streaming", True)):
        if getattr(plan, name) != usual:
            yield _with(plan, name, usual)
    for n, fault in enumerate(plan.faults):
        if fault.at > 1:
            sooner = replace(fault, at=fault.at - 1)
            yield replace(plan, faults=(*plan.faults[:n], sooner, *plan.faults[n + 1 :]))


def _smaller_graphs(graph: Graph) -> Iterator[Graph]:
    for node in graph.nodes[1:]:
        yield _without(graph, node.name)
    for edge in graph.edges:
        yield replace(graph, edges=tuple(one for one in graph.edges if one is not edge))
    for n, node in enumerate(graph.nodes):
        for simpler in _simpler(node):
            yield replace(graph, nodes=(*graph.nodes[:n], simpler, *graph.nodes[n + 1 :]))


def _without(graph: Graph, name: str) -> Graph:
    """Without a node, and without the ends of edges at it."""
    nodes = tuple(node for node in graph.nodes if node.name != name)
    edges = (_cut(edge, name) for edge in graph.edges)
    return replace(graph, nodes=nodes, edges=tuple(edge for edge in edges if edge.sources and edge.targets))


def _cut(edge: Edge, name: str) -> Edge:
    sources = tuple(one for one in edge.sources if one != name)
    targets = tuple(one for one in edge.targets if one != name)
    if edge.kind == "switch" and len(targets) == 1:  # a switch has a case and a default
        return Edge("direct", sources, targets)
    return replace(edge, sources=sources, targets=targets)


def _simpler(node: Node) -> Iterator[Node]:
    if node.child is not None:
        yield Node(node.name)
        for graph in _smaller_graphs(node.child):
            yield replace(node, child=graph)
        return
    usual = Node(node.name)
    for name in Node.__dataclass_fields__:
        if getattr(node, name) != getattr(usual, name):
            yield replace(node, **{name: getattr(usual, name)})
