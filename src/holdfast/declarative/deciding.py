"""Which nodes run next: joins, dead paths, default edges, loops. Pure: it reads what happened and says what follows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from .definition import Definition, Edge, Node, Way

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
class Decision:
    """What follows from what happened."""

    start: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    traversed: tuple[Traversed, ...] = ()
    done: bool = False  # nothing runs any more, and nothing is to


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
        """Nodes that no other node leads to."""
        led_to = {way.target for way in self.ways if way.source != way.target}
        found = tuple(id for id in self.ids if id not in led_to and id not in self.fallbacks)
        return found or self.ids[:1]  # in a circle, whoever was said first begins

    @cached_property
    def exits(self) -> tuple[str, ...]:
        """Nodes that lead to no other node."""
        leading = {way.source for way in self.ways if way.source != way.target}
        return tuple(id for id in self.ids if id not in leading and id not in self.fallbacks)

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
        return [way for way in self.ways if way.source == id]

    def into(self, id: str) -> list[Way]:
        return [way for way in self.ways if way.target == id]

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

    def finished(self, id: str, outputs: Mapping[str, Any]) -> Decision:
        """A node has given something, for itself or in the place of one that failed."""
        node, owner = self.plan.definition.node(id), self._owner(id)
        self.stands[id] = replace(self.stands[id], status="succeeded", outputs=outputs, reason="", instead_of=None)
        if owner != id:
            spoken = {**outputs, self.plan.definition.node(owner).gives: outputs.get(node.gives)}
            self.stands[owner] = replace(self.stands[owner], status="succeeded", outputs=spoken, reason="")
        self.given[owner] = self.stands[owner].outputs
        self._leave(owner)
        return self._settle()

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
        self.stands[id] = replace(self.stands[id], status="skipped", reason=reason, outputs={})
        self._skipped.append(Skipped(id, reason))
        return self._settle()

    def _leave(self, id: str) -> None:
        """Decide which ways out of a node are taken."""
        taken = list(self._taken(id))
        self.stands[id] = replace(self.stands[id], taken=tuple(way.key for way, _ in taken))
        for way, words in taken:
            self._traversed.append(Traversed(id, way.target, words))
        for way, _ in taken:
            if way.key in self.plan.back:
                self._again(way)

    def _taken(self, id: str) -> Iterator[tuple[Way, str]]:
        node, values = self.plan.definition.node(id), {**self._values, **self.stands[id].outputs}
        ways = self.plan.out_of(id)
        edges = self.plan.definition.edges
        chosen = [way for way in ways if not edges[way.edge].default and _holds(edges[way.edge], node, way, values)]
        if not chosen:
            chosen = [way for way in ways if edges[way.edge].default]
        for way in chosen:
            yield way, _words(edges[way.edge], node, way)

    def _again(self, way: Way) -> None:
        """A loop leads back to a node: it, and what lies behind it, has its turn again."""
        id, limit = way.target, self.plan.definition.max_iterations
        if self.stands[id].runs >= limit:
            raise TooManyLoops(id, limit, self._running())
        for one in self.plan.behind(id):
            stand = self.stands[one]
            if stand.status in SETTLED:
                self.stands[one] = replace(stand, status="waiting", taken=(), reason="")
        self._run(id, (way.source,))

    def _settle(self) -> Decision:
        """Let every node run, or be skipped, whose turn has come."""
        moved = True
        while moved:
            moved = False
            for id in self.plan.ids:
                if self.stands[id].status != "waiting" or id in self.plan.fallbacks:
                    continue
                ways = [way for way in self.plan.into(id) if way.key not in self.plan.back]
                if not ways or not all(self.stands[way.source].status in SETTLED for way in ways):
                    continue
                led = [way.source for way in ways if way.key in self.stands[way.source].taken]
                if led:
                    self._run(id, tuple(dict.fromkeys(led)))
                else:
                    self._skip(id, self._why(ways))
                moved = True
        return self._decided()

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
        for one in self.plan.behind(id) - {id}:
            if self.stands[one].status == "waiting":
                self._skip(one, reason)

    def _skip(self, id: str, reason: str) -> None:
        self.stands[id] = replace(self.stands[id], status="skipped", reason=reason, taken=())
        self._skipped.append(Skipped(id, reason))

    def _run(self, id: str, upstream: tuple[str, ...] = ()) -> None:
        begun = self.stands[id].runs + 1
        self.stands[id] = Stand("running", begun, upstream=upstream)
        self._start.append(id)

    def _running(self) -> list[str]:
        return [id for id, stand in self.stands.items() if stand.status == "running"]

    def _decided(self) -> Decision:
        return Decision(
            tuple(self._start), tuple(self._skipped), tuple(self._traversed), not self._running() and not self._start
        )


def _holds(edge: Edge, node: Node, way: Way, values: Mapping[str, Any]) -> bool:
    if node.output_mode == "handoff" and values.get("handoff") is not None:
        return bool(values["handoff"] == way.target)
    if edge.type is not None:
        return bool(values.get(f"{node.gives}_type") == edge.type)
    return edge.condition is None or edge.condition.holds(values)


def _words(edge: Edge, node: Node, way: Way) -> str:
    return f"handed over to {way.target!r}" if node.output_mode == "handoff" else edge.describe()
