"""What a plan comes to if nothing in it depends on the order of things: told by recursion, without supersteps.

The only thing taken from the real run is which answers its handlers got: that is up to people and to deadlines.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.growing import plan_of
from tests.simulation.model import first_token, takers_of
from tests.simulation.plan import Edge, Fault, Graph, Node, Plan, chance
from tests.simulation.script import Act, Due, Question, Seen, Token, acts_of, twin_of, waits_for

_MOST_CALLS = 16  # of handlers in one plan


def crowded_plan_of(seed: int) -> Plan:
    """The plan that a seed stands for, if no order matters in it, and people answer and cancel whenever they like."""
    plan, dice = plan_of(seed), random.Random(f"crowd {seed}")
    faults = list(plan.faults)
    for _ in range(dice.randrange(6)):
        kind = dice.choices(("cancel", "answer"), (1, 3))[0]
        faults.insert(dice.randrange(len(faults) + 1), Fault(kind, dice.randrange(60)))  # type: ignore[arg-type]
    plan = replace(plan, graph=_unordered(plan.graph), faults=tuple(faults), durability="sync", crowded=True)
    while plan.hops > 1 and len(foretold_in_any_order(plan, _Answered(), most=_MOST_CALLS).effects) > _MOST_CALLS:
        plan = replace(plan, hops=plan.hops - 1)
    return plan


class _Answered(dict[str, int]):
    """Each question has an answer."""

    def __contains__(self, question: object) -> bool:
        return True

    def __missing__(self, question: str) -> int:
        return chance(question)


def _unordered(graph: Graph) -> Graph:
    edges: list[Edge] = []
    for edge in graph.edges:  # what comes together at a fan-in depends on what came first
        parts = [replace(edge, kind="direct", sources=(s,)) for s in edge.sources] if edge.kind == "fan in" else [edge]
        edges += parts
    return replace(graph, nodes=tuple(map(_asking, graph.nodes)), edges=tuple(edges))


def _asking(node: Node) -> Node:
    asks = chance("asks", node.name, node.ticks) % 2 == 0
    deadline = (0, 0, 20, 3000)[chance("deadline", node.name, node.sleep) % 4]
    waits = node.child is None and chance("waits", node.name, node.ticks, node.steps) % 3 == 0
    return replace(
        node,
        counts=False,
        reads=False,
        sets=False,
        asks=asks,
        waits=waits,
        deadline=deadline,
        withdraws=asks and chance("withdraws", node.name, node.backoff) % 2 == 0,
        sleep=0 if waits and node.sleep > 1000 else node.sleep,
        child=node.child and _unordered(node.child),
    )


@dataclass
class Unordered:
    """What must come of a plan, in any order."""

    answers: Mapping[str, int]
    most: int  # calls that anybody wants to wait for
    outputs: list[Token] = field(default_factory=list)
    effects: list[tuple[str, str]] = field(default_factory=list)
    steps: list[tuple[str, int]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    sum: int = 0
    open: list[str] = field(default_factory=list)


Output = Callable[[Token], Any]


def foretold_in_any_order(plan: Plan, answers: Mapping[str, int], most: int = 10_000) -> Unordered:
    """What must come of a plan in which handlers got these answers, by the trails of the questions."""
    told = Unordered(answers, most)
    _Calls(told, plan.graph, told.outputs.append, is_top=True).call(plan.graph.start, first_token(plan))
    return told


@dataclass
class _Calls:
    """The handler calls of one run."""

    told: Unordered
    graph: Graph
    output: Output
    is_top: bool = False

    def call(self, node: Node, given: Any, question: Question | None = None) -> None:
        if len(self.told.effects) > self.told.most:
            return
        if node.child is not None:
            sends = self.graph.sends(node.name)
            passed_on = (lambda token: self.send(node, token)) if sends else self.output
            _Calls(self.told, node.child, passed_on).call(node.child.start, given)
            return
        seen = Seen.of(node, given, question)
        self.told.effects.append((node.name, seen.trail))
        self.told.steps += [(seen.trail, n) for n in range(node.all_steps)]
        if (asked := waits_for(node, seen)) is not None:
            if asked.trail not in self.told.answers:
                self.told.open.append(asked.trail)
                return
            seen.heard = self.told.answers[asked.trail]
        for act in acts_of(node, seen, self.graph.sends(node.name)):
            self._do(node, act)

    def send(self, node: Node, token: Token) -> None:
        nodes = {each.name: each for each in self.graph.nodes}
        for edge in self.graph.edges:
            if node.name in edge.sources:
                for taker in takers_of(edge, token):
                    self.call(nodes[taker], token)

    def _do(self, node: Node, act: Act) -> None:
        match act.kind:
            case "send":
                self.send(node, act.value)
            case "yield":
                self.output(act.value)
            case "remind":
                self.call(node, Due(act.value))
            case "ask":
                self._ask(node, act.value)
            case "append" if self.is_top:
                self.told.log.append(act.value)
            case "add" if self.is_top:
                self.told.sum += act.value

    def _ask(self, node: Node, question: Question) -> None:
        answers = self.told.answers
        if question.trail in answers:
            self.call(node, answers[question.trail], question)
        elif not (node.withdraws and twin_of(question).trail in answers):
            self.told.open.append(question.trail)
