"""Plans from seeds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.model import foretold
from tests.simulation.plan import Edge, Fault, Graph, Node, Plan, chance

_MOST_CALLS = 14  # of handlers in one plan
_DEPTH = 2  # of workflows in workflows
_SLEEPS = (0.5, 5, 50, 90, 4000)
_WAYS = ("direct", "direct", "when", "fan out", "diamond", "switch", "select", "loop")


def plan_of(seed: int) -> Plan:
    """The plan that a seed stands for."""
    dice = random.Random(seed)
    graph = _graph(dice, "w", dice.randrange(1, 7), depth=_DEPTH)
    plan = Plan(
        seed,
        graph,
        hops=dice.randrange(2, 7),
        faults=_faults(dice),
        durability=dice.choices(("sync", "async", "exit"), (8, 1, 1))[0],
        latest_only=dice.random() < 0.2,
        streaming=dice.random() < 0.7,
        busy=dice.choice((0, 1, 3, 8)),
        batch=dice.random() < 0.3,
        repeated=dice.random() < 0.4,
        rebuilt=dice.random() < 0.05,
    )
    return _of_fair_size(_settled_questions(plan))


def _faults(dice: random.Random) -> tuple[Fault, ...]:
    kinds = ("die", "refuse", "leave", "stop", "rival", "stall", "hasty", "again")
    found = []
    for _ in range(dice.choice((0, 1, 1, 2, 2, 3, 4, 6, 9))):
        kind = dice.choices(kinds, (10, 2, 2, 2, 3, 3, 1, 1))[0]
        at = dice.randrange(1, dice.choice((4, 8, 16))) if kind in ("die", "refuse") else dice.randrange(60)
        found.append(Fault(kind, at, dice.random() < 0.5))  # type: ignore[arg-type]
    return tuple(found)


def _settled_questions(plan: Plan) -> Plan:
    """What comes at the same time as something else comes in an order that only a run of one level can tell us."""
    inside = [node for node in plan.graph.every_node() if node not in plan.graph.nodes]
    if any(node.asks for node in inside):
        plan = replace(plan, graph=_changed(plan.graph, lambda node: replace(node, deadline=0)), batch=False)
    if any(node.reminds for node in inside):
        # A run inside that sleeps in the middle of a superstep could be woken by two messages at once.
        awake = _changed(
            plan.graph, lambda node: replace(node, sleep=min(node.sleep, 50), backoff=min(node.backoff, 2))
        )
        plan = replace(plan, graph=awake)
    return plan


def _awake(node: Node) -> Node:
    return replace(node, sleep=min(node.sleep, 50), backoff=min(node.backoff, 2))


def _changed(graph: Graph, change: Callable[[Node], Node]) -> Graph:
    nodes = (replace(change(n), child=n.child and _changed(n.child, change)) for n in graph.nodes)
    return replace(graph, nodes=tuple(nodes))


def _of_fair_size(plan: Plan) -> Plan:
    """Messages go less far in a plan in which they would become too many."""
    while plan.hops > 1 and foretold(plan, most=_MOST_CALLS) is None:
        plan = replace(plan, hops=plan.hops - 1)
    return plan


@dataclass
class _Growing:
    dice: random.Random
    name: str
    depth: int
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def node(self) -> str:
        name = f"{self.name}{len(self.nodes)}"
        self.nodes.append(_node(self.dice, name, self.depth))
        return name

    def edge(self, kind: Any, sources: list[str], targets: list[str]) -> None:
        pairs = {(s, t) for edge in self.edges for s in edge.sources for t in edge.targets}
        if not any((s, t) in pairs for s in sources for t in targets):  # one message comes to one node once
            slow = self.dice.random() < 0.1
            self.edges.append(Edge(kind, tuple(sources), tuple(targets), self.dice.randrange(1000), slow))

    def grow(self, way: str) -> None:
        source = self.dice.choice(self.nodes).name
        few = self.dice.randrange(2, 4)
        if way in ("direct", "when"):
            self.edge(way, [source], [self.node()])
        elif way in ("fan out", "switch", "select"):
            self.edge(way, [source], [self.node() for _ in range(few)])
        elif way == "diamond":
            middle = [self.node() for _ in range(few)]
            self.edge("fan out", [source], middle)
            self.edge("fan in", middle, [self.node()])
        else:
            self.edge("when", [source], [self.dice.choice(self.nodes).name])


def _graph(dice: random.Random, name: str, size: int, depth: int) -> Graph:
    growing = _Growing(dice, name, depth)
    growing.node()
    while len(growing.nodes) < size:
        growing.grow(dice.choice(_WAYS))
    return Graph(name, tuple(growing.nodes), tuple(growing.edges))


def _node(dice: random.Random, name: str, depth: int) -> Node:
    def often(share: float) -> bool:
        return dice.random() < share

    if depth and often(0.12):
        return Node(name, child=_graph(dice, f"{name}.", dice.randrange(1, 4), depth - 1))
    fails = dice.choice((*[0] * 14, 1, 2))
    node = Node(
        name,
        plain=often(0.2),
        sends=dice.choice((1, 1, 1, 2)),
        yields=often(0.3),
        asks=often(0.3),
        deadline=dice.choice((0, 0, 30, 500)),
        counts=often(0.4),
        appends=often(0.5),
        sets=often(0.3),
        adds=often(0.3),
        reads=often(0.4),
        steps=dice.choice((0, 0, 0, 1, 2)),
        branches=dice.choice((1, 1, 2, 3)),
        plain_steps=often(0.3),
        step_fails=dice.choice((*[0] * 9, 1)),
        sleep=dice.choice(_SLEEPS) if often(0.2) else 0,
        fails=fails,
        attempts=dice.choice((1, 2, 3)) if fails else 1,
        backoff=dice.choice((0, 2, 100)),
        ticks=dice.choice((0, 1, 3, 10)),
    )
    # Not from the dice: all else stays as the seed made it.
    top = depth == _DEPTH  # what waits inside another run is answered in an order that only that run can tell us
    waits = top and chance("waits", node) % 5 == 0
    return replace(
        node,
        strict=chance("strict", node) % 2 == 0,
        waits=waits,
        # It would be reached while the others work, and nobody answers then.
        deadline=0 if waits else node.deadline,
        reminds=(30, 300, 7000)[chance("after", node) % 3] if chance("reminds", node) % 5 == 0 else 0,
    )
