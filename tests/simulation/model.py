"""What a plan comes to, told by a few lines that know nothing of the engine: no storage, no tasks, no time.

The only thing taken from the real run is when which answers came in: that is up to people, not to the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.plan import Edge, Graph, Node, Plan
from tests.simulation.script import Act, Due, Question, Seen, Token, acts_of, answer_to, waits_for

Answers = tuple[tuple[str, int | None], ...]
"""To which questions, by their trails, and what was said; None: what people say to that."""

Timers = tuple[tuple[str, Any], ...]
"""Of which executors, and their names; or, if the executor is a workflow of its own, the timers inside it."""

Intake = tuple[int, Answers, Timers, bool]
"""After how many supersteps answers came in, or timers were due; and whether handlers of the next one waited then."""


class TooMuch(Exception):
    """More handler calls than anybody wants to wait for."""


@dataclass
class Foretold:
    """What must come of a plan."""

    outputs: list[Token]
    state: dict[str, Any]
    effects: list[tuple[str, str]]  # of each handler call: executor and trail
    steps: list[tuple[str, int]]
    open: list[str]  # the trails of questions that nobody answered, and timers that never were due


@dataclass
class _World:
    """What all runs of a plan share."""

    most: int
    effects: list[tuple[str, str]] = field(default_factory=list)
    steps: list[tuple[str, int]] = field(default_factory=list)

    def called(self, node: Node, seen: Seen) -> None:
        self.effects.append((node.name, seen.trail))
        self.steps += [(seen.trail, n) for n in range(node.all_steps)]
        if len(self.effects) > self.most:
            raise TooMuch


@dataclass(frozen=True)
class _Asked:
    question: Question
    node: str  # of this graph
    child: _Run | None = None  # the run inside whose question it is


@dataclass(frozen=True)
class _Woken:
    child: _Run
    timers: Timers


@dataclass(frozen=True)
class _Message:
    source: str | None
    token: Any
    takers: tuple[str, ...]
    joins: tuple[Edge, ...] = ()
    reply: _Asked | None = None
    is_late: bool = False  # it came while handlers of its superstep waited


@dataclass
class _Outcome:
    sent: list[Token] = field(default_factory=list)
    asked: list[_Asked] = field(default_factory=list)


class _Run:
    def __init__(self, graph: Graph, world: _World, given: Any) -> None:
        self.graph, self.world = graph, world
        self.nodes = {node.name: node for node in graph.nodes}
        self.messages = [_Message(None, given, (graph.start.name,))]
        self.held: dict[Edge, dict[str, list[Token]]] = {}
        self.iteration = 0
        self.state: dict[str, Any] = {}
        self.counts: dict[str, int] = {}
        self.outputs: list[Token] = []
        self.open: dict[str, _Asked] = {}
        self.timers: dict[tuple[str, str], None] = {}
        self.inside: list[tuple[str, _Run]] = []  # by node

    def every_timer(self) -> list[Timers]:
        """Each timer that is set, those inside included, as it is fired alone."""
        own: list[Timers] = [((node, name),) for node, name in self.timers]
        return own + [((node, timers),) for node, child in self.inside for timers in child.every_timer()]

    def has(self, timers: Timers) -> bool:
        every = self.every_timer()
        return all((timer,) in every or self._has_inside(*timer) for timer in timers)

    def _has_inside(self, node: str, name: Any) -> bool:
        return isinstance(name, tuple) and any(where == node and child.has(name) for where, child in self.inside)

    def to_rest(self) -> None:
        while self.messages:
            self.superstep()

    def take_in(self, answers: Answers, *, is_late: bool = False) -> None:
        for trail, said in answers:
            asked = self.open.pop(trail)
            answer = answer_to(asked.question, self._asker(asked)) if said is None else said
            self.messages.append(_Message(None, answer, (asked.node,), reply=asked, is_late=is_late))

    def fire(self, timers: Timers, *, is_late: bool) -> None:
        for node, name in timers:
            given: Due | _Woken
            if isinstance(name, tuple):
                given = _Woken(next(c for where, c in self.inside if where == node and c.has(name)), name)
            else:
                given = Due(name)
                del self.timers[node, name]
            self.messages.append(_Message(None, given, (node,), is_late=is_late))

    def _asker(self, asked: _Asked) -> Node:
        return next(node for node in self.graph.every_node() if node.name == asked.question.asker)

    def superstep(self) -> None:
        self.iteration += 1
        calls = list(self._calls())
        own: dict[str, list[str]] = {}  # what each node has appended in this superstep
        before, lists = list(self.state.get("log", ())), list[str]()
        self.messages = []
        for node, given, reply in calls:
            mine = own.setdefault(node.name, [])
            outcome = self._call(node, given, reply, before, mine, lists)
            self.messages += [self._routed(node.name, token) for token in outcome.sent]
            self.open.update({asked.question.trail: asked for asked in outcome.asked})
        self.messages = [one for one in self.messages if one.takers or one.joins]
        if lists:
            self.state["log"] = before + lists

    def _calls(self) -> Iterator[tuple[Node, Any, _Asked | None]]:
        for message in self.messages:
            if not message.is_late:
                yield from ((self.nodes[taker], message.token, message.reply) for taker in message.takers)
            for edge in message.joins:
                assert message.source is not None
                self.held.setdefault(edge, {}).setdefault(message.source, []).append(message.token)
        for edge in self.graph.edges:
            held = self.held.get(edge, {})
            if edge.kind == "fan in" and all(held.get(source) for source in edge.sources):
                del self.held[edge]
                yield self.nodes[edge.targets[0]], [t for s in edge.sources for t in held[s]], None
        for message in self.messages:
            if message.is_late:
                yield from ((self.nodes[taker], message.token, message.reply) for taker in message.takers)

    def _call(
        self, node: Node, given: Any, reply: _Asked | None, before: list[str], mine: list[str], lists: list[str]
    ) -> _Outcome:
        if node.child is not None:
            return self._call_child(node, node.child, given, reply)
        seen = Seen.of(node, given, reply.question if reply else None)
        seen.count = self.counts[node.name] = self.counts.get(node.name, 0) + 1
        seen.listed = len(before) + len(mine)
        seen.kept = f"last {node.name}" in self.state
        if (question := waits_for(node, seen)) is not None:
            seen.heard = answer_to(question, node)
        self.world.called(node, seen)
        outcome = _Outcome()
        for act in acts_of(node, seen, self.graph.sends(node.name)):
            self._do(node, act, outcome, mine, lists)
        return outcome

    def _do(self, node: Node, act: Act, outcome: _Outcome, mine: list[str], lists: list[str]) -> None:
        match act.kind:
            case "send":
                outcome.sent.append(act.value)
            case "yield":
                self.outputs.append(act.value)
            case "ask":
                outcome.asked.append(_Asked(act.value, node.name))
            case "remind":
                self.timers[node.name, act.value] = None
            case "append":
                mine.append(act.value)
                lists.append(act.value)
            case "set":
                self.state[f"last {node.name}"] = act.value
            case "delete":
                del self.state[f"last {node.name}"]
            case "add":
                self.state["sum"] = self.state.get("sum", 0) + act.value

    def _call_child(self, node: Node, graph: Graph, given: Any, reply: _Asked | None) -> _Outcome:
        if isinstance(given, _Woken):
            child = given.child
            told, known = len(child.outputs), set(child.open)
            child.fire(given.timers, is_late=False)
        elif reply is None:
            child, told, known = _Run(graph, self.world, given), 0, set[str]()
            self.inside.append((node.name, child))
        else:
            assert reply.child is not None
            child, told, known = reply.child, len(reply.child.outputs), set(reply.child.open)
            child.take_in(((reply.question.trail, given),))
        child.to_rest()
        new = [asked for trail, asked in child.open.items() if trail not in known]
        outcome = _Outcome(asked=[_Asked(asked.question, node.name, child) for asked in new])
        if self.graph.sends(node.name):
            outcome.sent = child.outputs[told:]
        else:
            self.outputs += child.outputs[told:]
        return outcome

    def _routed(self, source: str, token: Token) -> _Message:
        takers: list[str] = []
        joins: list[Edge] = []
        for edge in self.graph.edges:
            if source in edge.sources:
                if edge.kind == "fan in":
                    joins.append(edge)
                else:
                    takers += takers_of(edge, token)
        return _Message(source, token, tuple(takers), tuple(joins))


def takers_of(edge: Edge, token: Token) -> Sequence[str]:
    match edge.kind:
        case "when":
            return edge.targets if edge.says_yes(token.trail, token.hops) else ()
        case "switch":
            return (edge.targets[edge.case(token.trail)],)
        case "select":
            return edge.selected(token.trail)
    return edge.targets


def foretold(plan: Plan, intakes: Sequence[Intake] | None = None, most: int = 10_000) -> Foretold | None:
    """What must come of a plan; None if that is too much. Without intakes each question is answered in turn."""
    world = _World(most)
    run = _Run(plan.graph, world, first_token(plan))
    try:
        if intakes is None:
            run.to_rest()
            while run.open or run.every_timer():
                if run.open:
                    run.take_in(((next(iter(run.open)), None),))
                else:
                    run.fire(run.every_timer()[0], is_late=False)
                run.to_rest()
        else:
            _replay(run, list(intakes))
    except TooMuch:
        return None
    left = [*run.open, *(f"the timer {timers}" for timers in run.every_timer())]
    return Foretold(run.outputs, run.state, sorted(world.effects), sorted(world.steps), left)


def _replay(run: _Run, intakes: list[Intake]) -> None:
    while run.messages or intakes:
        early: dict[str, int | None] = {}  # to questions of the superstep in which they came
        while intakes and intakes[0][0] == run.iteration:
            _, answers, timers, is_late = intakes.pop(0)
            early |= {trail: said for trail, said in answers if is_late and trail not in run.open}
            run.take_in(tuple(answer for answer in answers if answer[0] not in early), is_late=is_late)
            run.fire(timers, is_late=is_late)
        if not run.messages:
            break
        run.superstep()
        run.take_in(tuple((trail, early[trail]) for trail in run.open if trail in early))
    assert not intakes, f"answers came in where the run never was: {intakes}"


def first_token(plan: Plan) -> Token:
    """What a run of a plan begins with."""
    return Token("first", plan.hops)
