"""Which nodes run next: joins, dead paths, default edges, loops. Pure: it reads what happened and says what follows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from stepwell.declarative.conditions.condition import Condition
from stepwell.declarative.definition import Definition, Edge, Node, Way

Status = Literal["waiting", "running", "succeeded", "failed", "skipped"]
SETTLED: tuple[Status, ...] = ("succeeded", "failed", "skipped")


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a node is."""

    status: Status = "waiting"
    runs: int = 0  # how often it was begun
    outputs: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""  # why it was skipped, or what it failed with
    taken: tuple[str, ...] = ()  # the ways out of it that were taken, by key
    upstream: tuple[str, ...] = ()  # the nodes that led to it when it was begun last
    instead_of: str | None = None  # the node that failed, whose place this one takes
    layer: int = 0  # of those that begin together


@dataclass(frozen=True, slots=True)
class Traversed:
    """An edge was taken."""

    source: str
    target: str
    condition: str  # in words; empty: always


@dataclass(frozen=True, slots=True)
class Skipped:
    """A node will not run, this time."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Layer:
    """The nodes that began together."""

    number: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from what happened."""

    start: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    traversed: tuple[Traversed, ...] = ()
    done: bool = False  # nothing runs any more, and nothing is to
    ended: tuple[Layer, ...] = ()  # those of which nobody runs any more

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return self != Decision()


class TooManyLoops(Exception):
    """A loop ran too often."""

    def __init__(self, node: str, limit: int, running: Iterable[str]) -> None:
        self.node, self.limit, self.running = node, limit, tuple(running)
        still = ", ".join(map(repr, self.running)) or "nobody"
        super().__init__(
            f"{node!r} has run {limit} times, as often as max_iterations allows, and is to run again; "
            f"still running: {still}"
        )


class Plan:
    """What a definition means, worked out once: which ways lead back, and what lies behind a node."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.ways = tuple(definition.ways())
        self.ids = tuple(node.id for node in definition.nodes)

    @cached_property
    def fallbacks(self) -> frozenset[str]:
        """Nodes that run only in the place of others."""
        used = {node.fallback for node in self.definition.nodes if node.fallback is not None}
        return frozenset(id for id in used if not any(way.target == id for way in self.ways))

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """Nodes that no other node leads to; of a circle that nobody outside leads to, whoever was said first."""
        found: list[str] = []
        reached: set[str] = set()
        for id in self.ids:
            if id in reached or id in self.fallbacks:
                continue
            ahead = self._reach(id, self._out)
            if self._reach(id, self._into) <= ahead:  # whoever leads to it is led to by it
                found.append(id)
                reached |= ahead
        return tuple(id for id in self.ids if id in found)

    @cached_property
    def _out(self) -> Mapping[str, list[Way]]:
        return {id: [way for way in self.ways if way.source == id] for id in self.ids}

    @cached_property
    def _into(self) -> Mapping[str, list[Way]]:
        return {id: [way for way in self.ways if way.target == id] for id in self.ids}

    def _reach(self, id: str, ways: Mapping[str, list[Way]]) -> set[str]:
        """The node, and everything that these ways connect it with."""
        found, open = {id}, [id]
        while open:
            for way in ways[open.pop()]:
                for one in (way.source, way.target):
                    if one not in found:
                        found.add(one)
                        open.append(one)
        return found

    @cached_property
    def back(self) -> frozenset[str]:
        """The keys of the ways that close a loop, seen from where the workflow begins."""
        found: set[str] = set()
        state: dict[str, Literal["open", "closed"]] = {}
        for id in (*self.entries, *self.ids):
            if id not in state:
                self._walk(id, state, found)
        return frozenset(found)

    def _walk(self, root: str, state: dict[str, Literal["open", "closed"]], found: set[str]) -> None:
        stack: list[tuple[str, Iterator[Way]]] = [(root, iter(self.out_of(root)))]
        state[root] = "open"
        while stack:
            id, ways = stack[-1]
            way = next(ways, None)
            if way is None:
                state[id] = "closed"
                stack.pop()
            elif state.get(way.target) == "open":
                found.add(way.key)
            elif way.target not in state:
                state[way.target] = "open"
                stack.append((way.target, iter(self.out_of(way.target))))

    def out_of(self, id: str) -> list[Way]:
        return self._out[id]

    def into(self, id: str) -> list[Way]:
        return self._into[id]

    def behind(self, id: str) -> set[str]:
        """The node, and everything that forward ways lead to from it."""
        found, open = {id}, [id]
        while open:
            for way in self.out_of(open.pop()):
                if way.key not in self.back and way.target not in found:
                    found.add(way.target)
                    open.append(way.target)
        return found


class Deciding:
    """One decision: begins with where the nodes are, and changes a copy of it."""

    def __init__(self, plan: Plan, stands: Mapping[str, Stand], values: Mapping[str, Any]) -> None:
        self.plan, self._values = plan, values
        self.given: dict[str, Mapping[str, Any]] = {}  # what nodes gave, as it is to be found from now on
        self.stands = {id: stands.get(id, Stand()) for id in plan.ids}
        self._start: list[str] = []
        self._skipped: list[Skipped] = []
        self._traversed: list[Traversed] = []

    def begin(self) -> Decision:
        """The workflow begins."""
        for id in self.plan.entries:
            self._run(id)
        return self._decided()

    def conditions_after(
        self, id: str, outputs: Mapping[str, Any]
    ) -> tuple[Mapping[int, Condition], Mapping[str, Any]]:
        """The conditions that decide where a node leads that has given this, by edge, and the values they are about."""
        owner = self._owner(id)
        if self.plan.definition.node(owner).output_mode == "handoff":
            return {}, {}
        edges = {way.edge: self.plan.definition.edges[way.edge] for way in self.plan.out_of(owner)}
        asked = {n: e.condition for n, e in edges.items() if e.condition is not None and _is_conditional(e)}
        given = outputs if owner == id else self._spoken_for(owner, id, outputs)
        return asked, {**self._values, **given}

    def finished(self, id: str, outputs: Mapping[str, Any], holding: Mapping[int, bool] | None = None) -> Decision:
        """A node has given something, for itself or in the place of one that failed.

        `holding` says which of `conditions_after` hold; without it they are asked here.
        """
        owner = self._owner(id)
        if holding is None:
            conditions, values = self.conditions_after(id, outputs)
            holding = {edge: condition.holds(values) for edge, condition in conditions.items()}
        self.stands[id] = replace(self.stands[id], status="succeeded", outputs=outputs, reason="", instead_of=None)
        if owner != id:
            spoken = self._spoken_for(owner, id, outputs)
            self.stands[owner] = replace(self.stands[owner], status="succeeded", outputs=spoken, reason="")
        self.given[owner] = self.stands[owner].outputs
        self._leave(owner, holding)
        return self._settle()

    def _spoken_for(self, owner: str, id: str, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """What a node gave, as if another had given it."""
        for_whom, by = self.plan.definition.node(owner), self.plan.definition.node(id)
        if for_whom.output_mode == "handoff":  # only a router can choose
            return {for_whom.gives: for_whom.default_target, "handoff": for_whom.default_target}
        return {**outputs, for_whom.gives: outputs.get(by.gives)}

    def gave_up(self, id: str, reason: str) -> Decision:
        """A node failed, and the run goes on without it."""
        node, owner = self.plan.definition.node(id), self._owner(id)
        self.stands[id] = replace(self.stands[id], status="failed", reason=reason, instead_of=None)
        if node.on_error == "fallback" and node.fallback is not None:
            self.stands[owner] = replace(self.stands[owner], status="running", reason=reason)  # until that one is done
            self._run(node.fallback, self.stands[owner].upstream)
            self.stands[node.fallback] = replace(self.stands[node.fallback], instead_of=owner)
            return self._decided()
        self.stands[owner] = replace(self.stands[owner], status="failed", reason=reason)
        if node.on_error == "skip":
            self._skip_behind(owner, f"{owner!r}, which it depends on, failed: {reason}")
        return self._settle()

    def _owner(self, id: str) -> str:
        """Whose place a node takes: its own, or that of one that failed."""
        return self.stands[id].instead_of or id

    def denied(self, id: str, reason: str) -> Decision:
        """A person did not approve what a node gave: nobody uses it."""
        for one in dict.fromkeys((id, self._owner(id))):
            self.stands[one] = replace(self.stands[one], status="skipped", reason=reason, outputs={}, instead_of=None)
            self._skipped.append(Skipped(one, reason))
        return self._settle()

    def _leave(self, id: str, holding: Mapping[int, bool]) -> None:
        """Decide which ways out of a node are taken. One that leads back has everything behind it to itself."""
        chosen = list(self._chosen(id, holding))
        back = [(way, words) for way, words in chosen if way.key in self.plan.back]
        taken = back or chosen
        self.stands[id] = replace(self.stands[id], taken=tuple(way.key for way, _ in taken))
        for way, words in taken:
            self._traversed.append(Traversed(id, way.target, words))

    def _chosen(self, id: str, holding: Mapping[int, bool]) -> Iterator[tuple[Way, str]]:
        node, outputs = self.plan.definition.node(id), self.stands[id].outputs
        values, edges = {**self._values, **outputs}, self.plan.definition.edges
        ways = self.plan.out_of(id)
        if node.output_mode == "handoff":
            for way in ways:
                if way.target == outputs.get("handoff"):
                    yield way, f"handed over to {way.target!r}"
            return
        open_ways = [way for way in ways if not edges[way.edge].default]
        chosen = [w for w in open_ways if holding.get(w.edge, True) and _is_of_type(edges[w.edge], node, values)]
        for way in chosen or [way for way in ways if edges[way.edge].default]:
            yield way, edges[way.edge].describe()

    def _go_back(self) -> bool:
        """Let the first loop begin again that has waited for whoever was still running in it."""
        for way in self.plan.ways:
            if not self._leads_back(way):
                continue
            affected = self.plan.behind(way.target)
            if not any(self.stands[one].status == "running" for one in affected):
                self._again(way.target, affected)
                return True
        return False

    def _again(self, id: str, affected: set[str]) -> None:
        """A node, and what lies behind it, has its turn again."""
        led = [way.source for way in self.plan.into(id) if self._leads_back(way)]
        for one in affected:
            self.stands[one] = replace(self.stands[one], status="waiting", taken=(), reason="")
        self._run(id, tuple(dict.fromkeys(led)))

    def _leads_back(self, way: Way) -> bool:
        return way.key in self.plan.back and way.key in self.stands[way.source].taken

    def _settle(self) -> Decision:
        """Let every node run, or be skipped, whose turn has come."""
        while any(self._next(id) for id in self.plan.ids) or self._go_back():
            pass
        return self._decided()

    def _next(self, id: str) -> bool:
        """Whether this node's turn has come, or it has none this time."""
        ways = [way for way in self.plan.into(id) if way.key not in self.plan.back]
        if self.stands[id].status != "waiting" or not ways or not all(self._is_settled(way.source) for way in ways):
            return False
        led = [way.source for way in ways if way.key in self.stands[way.source].taken]
        if led:
            self._run(id, tuple(dict.fromkeys(led)))
        else:
            self._skip(id, self._why(ways))
        return True

    def _is_settled(self, id: str) -> bool:
        """Whether it is known where a node leads. One that leads back has its turn again."""
        stand = self.stands[id]
        return stand.status in SETTLED and not any(key in self.plan.back for key in stand.taken)

    def _why(self, ways: list[Way]) -> str:
        return "; ".join(dict.fromkeys(self._dead(way) for way in ways))

    def _dead(self, way: Way) -> str:
        source = self.stands[way.source]
        match source.status:
            case "failed":
                return f"{way.source!r} failed: {source.reason}"
            case "skipped":
                return f"{way.source!r} was skipped"
        words = self.plan.definition.edges[way.edge].describe()
        return f"{way.source!r} did not lead to it" + (f" ({words})" if words else "")

    def _skip_behind(self, id: str, reason: str) -> None:
        behind = self.plan.behind(id)
        for one in self.plan.ids:
            if one != id and one in behind and self.stands[one].status == "waiting":
                self._skip(one, reason)

    def _skip(self, id: str, reason: str) -> None:
        self.stands[id] = replace(self.stands[id], status="skipped", reason=reason, taken=())
        self._skipped.append(Skipped(id, reason))

    def _run(self, id: str, upstream: tuple[str, ...] = ()) -> None:
        """Start a node. The limit is checked here because any node of a loop can be the one that runs too often."""
        runs, limit = self.stands[id].runs, self.plan.definition.max_iterations
        if runs >= limit:
            raise TooManyLoops(id, limit, (other for other in self._running() if other not in self._start))
        self.stands[id] = Stand("running", runs + 1, upstream=upstream)
        self._start.append(id)

    def _running(self) -> list[str]:
        return [id for id, stand in self.stands.items() if stand.status == "running"]

    def _decided(self) -> Decision:
        return Decision(
            tuple(self._start), tuple(self._skipped), tuple(self._traversed), not self._running() and not self._start
        )


def _is_conditional(edge: Edge) -> bool:
    """Whether an edge is taken by its condition: one with a type is taken by that, a default edge by no other."""
    return edge.type is None and not edge.default


def _is_of_type(edge: Edge, node: Node, values: Mapping[str, Any]) -> bool:
    return edge.type is None or bool(values.get(f"{node.gives}_type") == edge.type)


def last_of(plan: Plan, stands: Mapping[str, Stand]) -> tuple[str, ...]:
    """The nodes that gave something and led nowhere: what they gave is what the run comes to."""
    led_on = {owner for owner in plan.ids if stands[owner].taken}
    return tuple(
        id for id in plan.ids if stands[id].status == "succeeded" and id not in led_on and id not in plan.fallbacks
    )


def progress(plan: Plan, stands: Mapping[str, Stand], owner: str, *, over: bool) -> float:
    """The part of all nodes that is done or skipped, 0 to 1, once this one is or is not. Those that stand in for
    others count as the others."""
    counted = [id for id in plan.ids if id not in plan.fallbacks]
    settled = sum(stands[id].status in SETTLED for id in counted if id != owner)
    return (settled + over) / len(counted)


def led_by(plan: Plan, stands: Mapping[str, Stand], id: str) -> tuple[str, ...]:
    """The nodes whose outputs a node is told. A router gives none: whom it leads to is told what it was told."""
    found: dict[str, None] = {}
    seen, open = {id}, list(stands[id].upstream)
    while open:
        one = open.pop(0)
        if plan.definition.node(one).output_mode != "handoff":
            found[one] = None
        elif one not in seen:
            seen.add(one)
            open = [*stands[one].upstream, *open]
    return tuple(found)
