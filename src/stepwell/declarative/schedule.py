"""Which nodes run next: joins, dead paths, default edges, loops. Pure: it reads what happened and says what follows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from stepwell.declarative.conditions.condition import Condition
from stepwell.declarative.definition import Definition, Edge, Node, Route

Status = Literal["waiting", "running", "succeeded", "failed", "skipped"]
SETTLED: tuple[Status, ...] = ("succeeded", "failed", "skipped")


@dataclass(frozen=True, slots=True)
class NodeState:
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
class EdgeTraversed:
    """An edge was taken."""

    source: str
    target: str
    condition: str  # in words; empty: always


@dataclass(frozen=True, slots=True)
class NodeSkipped:
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
    skipped: tuple[NodeSkipped, ...] = ()
    traversed: tuple[EdgeTraversed, ...] = ()
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


class NodeGraph:
    """What a definition means, worked out once: which ways lead back, and what lies behind a node."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.routes = tuple(definition.routes())
        self.ids = tuple(node.id for node in definition.nodes)

    @cached_property
    def fallbacks(self) -> frozenset[str]:
        """Nodes that run only in the place of others."""
        used = {node.fallback for node in self.definition.nodes if node.fallback is not None}
        return frozenset(id for id in used if not any(route.target == id for route in self.routes))

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """Nodes that no other node leads to; of a circle that nobody outside leads to, whoever was said first."""
        entries: list[str] = []
        reached: set[str] = set()
        for id in self.ids:
            if id in reached or id in self.fallbacks:
                continue
            ahead = self._reach(id, self._routes_out)
            if self._reach(id, self._routes_in) <= ahead:  # whoever leads to it is led to by it
                entries.append(id)
                reached |= ahead
        return tuple(id for id in self.ids if id in entries)

    @cached_property
    def _routes_out(self) -> Mapping[str, list[Route]]:
        return {id: [route for route in self.routes if route.source == id] for id in self.ids}

    @cached_property
    def _routes_in(self) -> Mapping[str, list[Route]]:
        return {id: [route for route in self.routes if route.target == id] for id in self.ids}

    def _reach(self, id: str, routes: Mapping[str, list[Route]]) -> set[str]:
        """The node, and everything that these ways connect it with."""
        reached, open = {id}, [id]
        while open:
            for route in routes[open.pop()]:
                for end in (route.source, route.target):
                    if end not in reached:
                        reached.add(end)
                        open.append(end)
        return reached

    @cached_property
    def loop_keys(self) -> frozenset[str]:
        """The keys of the ways that close a loop, seen from where the workflow begins."""
        keys: set[str] = set()
        marks: dict[str, Literal["open", "closed"]] = {}
        for id in (*self.entries, *self.ids):
            if id not in marks:
                self._find_loops(id, marks, keys)
        return frozenset(keys)

    def _find_loops(self, root: str, marks: dict[str, Literal["open", "closed"]], keys: set[str]) -> None:
        stack: list[tuple[str, Iterator[Route]]] = [(root, iter(self.out_of(root)))]
        marks[root] = "open"
        while stack:
            id, routes = stack[-1]
            route = next(routes, None)
            if route is None:
                marks[id] = "closed"
                stack.pop()
            elif marks.get(route.target) == "open":
                keys.add(route.key)
            elif route.target not in marks:
                marks[route.target] = "open"
                stack.append((route.target, iter(self.out_of(route.target))))

    def out_of(self, id: str) -> list[Route]:
        return self._routes_out[id]

    def into(self, id: str) -> list[Route]:
        return self._routes_in[id]

    def downstream(self, id: str) -> set[str]:
        """The node, and everything that forward ways lead to from it."""
        reached, open = {id}, [id]
        while open:
            for route in self.out_of(open.pop()):
                if route.key not in self.loop_keys and route.target not in reached:
                    reached.add(route.target)
                    open.append(route.target)
        return reached


class Scheduler:
    """One decision: begins with where the nodes are, and changes a copy of it."""

    def __init__(self, graph: NodeGraph, states: Mapping[str, NodeState], values: Mapping[str, Any]) -> None:
        self.graph, self._values = graph, values
        self.new_values: dict[str, Mapping[str, Any]] = {}  # what nodes gave, as it is to be found from now on
        self.states = {id: states.get(id, NodeState()) for id in graph.ids}
        self._start: list[str] = []
        self._skipped: list[NodeSkipped] = []
        self._traversed: list[EdgeTraversed] = []

    def begin(self) -> Decision:
        """The workflow begins."""
        for id in self.graph.entries:
            self._run(id)
        return self._decide()

    def conditions_after(
        self, id: str, outputs: Mapping[str, Any]
    ) -> tuple[Mapping[int, Condition], Mapping[str, Any]]:
        """The conditions that decide where a node leads that has given this, by edge, and the values they are about."""
        owner = self._owner(id)
        if self.graph.definition.node(owner).output_mode == "handoff":
            return {}, {}
        edges = {route.edge: self.graph.definition.edges[route.edge] for route in self.graph.out_of(owner)}
        conditions = {n: e.condition for n, e in edges.items() if e.condition is not None and _is_conditional(e)}
        values = outputs if owner == id else self._outputs_for(owner, id, outputs)
        return conditions, {**self._values, **values}

    def succeed(self, id: str, outputs: Mapping[str, Any], holding: Mapping[int, bool] | None = None) -> Decision:
        """A node has given something, for itself or in the place of one that failed.

        `holding` says which of `conditions_after` hold; without it they are asked here.
        """
        owner = self._owner(id)
        if holding is None:
            conditions, values = self.conditions_after(id, outputs)
            holding = {edge: condition.holds(values) for edge, condition in conditions.items()}
        self.states[id] = replace(self.states[id], status="succeeded", outputs=outputs, reason="", instead_of=None)
        if owner != id:
            owner_outputs = self._outputs_for(owner, id, outputs)
            self.states[owner] = replace(self.states[owner], status="succeeded", outputs=owner_outputs, reason="")
        self.new_values[owner] = self.states[owner].outputs
        self._leave(owner, holding)
        return self._settle()

    def _outputs_for(self, owner: str, id: str, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """What a node gave, as if another had given it."""
        for_whom, by = self.graph.definition.node(owner), self.graph.definition.node(id)
        if for_whom.output_mode == "handoff":  # only a router can choose
            return {for_whom.gives: for_whom.default_target, "handoff": for_whom.default_target}
        return {**outputs, for_whom.gives: outputs.get(by.gives)}

    def fail(self, id: str, reason: str) -> Decision:
        """A node failed, and the run goes on without it."""
        node, owner = self.graph.definition.node(id), self._owner(id)
        self.states[id] = replace(self.states[id], status="failed", reason=reason, instead_of=None)
        if node.on_error == "fallback" and node.fallback is not None:
            self.states[owner] = replace(self.states[owner], status="running", reason=reason)  # until that one is done
            self._run(node.fallback, self.states[owner].upstream)
            self.states[node.fallback] = replace(self.states[node.fallback], instead_of=owner)
            return self._decide()
        self.states[owner] = replace(self.states[owner], status="failed", reason=reason)
        if node.on_error == "skip":
            self._skip_downstream(owner, f"{owner!r}, which it depends on, failed: {reason}")
        return self._settle()

    def _owner(self, id: str) -> str:
        """Whose place a node takes: its own, or that of one that failed."""
        return self.states[id].instead_of or id

    def deny(self, id: str, reason: str) -> Decision:
        """A person did not approve what a node gave: nobody uses it."""
        for node_id in dict.fromkeys((id, self._owner(id))):
            self.states[node_id] = replace(
                self.states[node_id], status="skipped", reason=reason, outputs={}, instead_of=None
            )
            self._skipped.append(NodeSkipped(node_id, reason))
        return self._settle()

    def _leave(self, id: str, holding: Mapping[int, bool]) -> None:
        """Decide which ways out of a node are taken. One that leads back has everything behind it to itself."""
        chosen = list(self._choose_routes(id, holding))
        back = [(route, words) for route, words in chosen if route.key in self.graph.loop_keys]
        taken = back or chosen
        self.states[id] = replace(self.states[id], taken=tuple(route.key for route, _ in taken))
        for route, words in taken:
            self._traversed.append(EdgeTraversed(id, route.target, words))

    def _choose_routes(self, id: str, holding: Mapping[int, bool]) -> Iterator[tuple[Route, str]]:
        node, outputs = self.graph.definition.node(id), self.states[id].outputs
        values, edges = {**self._values, **outputs}, self.graph.definition.edges
        routes = self.graph.out_of(id)
        if node.output_mode == "handoff":
            for route in routes:
                if route.target == outputs.get("handoff"):
                    yield route, f"handed over to {route.target!r}"
            return
        regular = [route for route in routes if not edges[route.edge].default]
        chosen = [w for w in regular if holding.get(w.edge, True) and _is_of_type(edges[w.edge], node, values)]
        for route in chosen or [route for route in routes if edges[route.edge].default]:
            yield route, edges[route.edge].describe()

    def _start_loop_again(self) -> bool:
        """Let the first loop begin again that has waited for whoever was still running in it."""
        for route in self.graph.routes:
            if not self._leads_back(route):
                continue
            affected = self.graph.downstream(route.target)
            if not any(self.states[node_id].status == "running" for node_id in affected):
                self._restart(route.target, affected)
                return True
        return False

    def _restart(self, id: str, affected: set[str]) -> None:
        """A node, and what lies behind it, has its turn again."""
        sources = [route.source for route in self.graph.into(id) if self._leads_back(route)]
        for node_id in affected:
            self.states[node_id] = replace(self.states[node_id], status="waiting", taken=(), reason="")
        self._run(id, tuple(dict.fromkeys(sources)))

    def _leads_back(self, route: Route) -> bool:
        return route.key in self.graph.loop_keys and route.key in self.states[route.source].taken

    def _settle(self) -> Decision:
        """Let every node run, or be skipped, whose turn has come."""
        while any(self._advance(id) for id in self.graph.ids) or self._start_loop_again():
            pass
        return self._decide()

    def _advance(self, id: str) -> bool:
        """Whether this node's turn has come, or it has none this time."""
        routes = [route for route in self.graph.into(id) if route.key not in self.graph.loop_keys]
        if (
            self.states[id].status != "waiting"
            or not routes
            or not all(self._is_settled(route.source) for route in routes)
        ):
            return False
        sources = [route.source for route in routes if route.key in self.states[route.source].taken]
        if sources:
            self._run(id, tuple(dict.fromkeys(sources)))
        else:
            self._skip(id, self._explain_skip(routes))
        return True

    def _is_settled(self, id: str) -> bool:
        """Whether it is known where a node leads. One that leads back has its turn again."""
        state = self.states[id]
        return state.status in SETTLED and not any(key in self.graph.loop_keys for key in state.taken)

    def _explain_skip(self, routes: list[Route]) -> str:
        return "; ".join(dict.fromkeys(self._explain_dead_route(route) for route in routes))

    def _explain_dead_route(self, route: Route) -> str:
        source = self.states[route.source]
        match source.status:
            case "failed":
                return f"{route.source!r} failed: {source.reason}"
            case "skipped":
                return f"{route.source!r} was skipped"
        words = self.graph.definition.edges[route.edge].describe()
        return f"{route.source!r} did not lead to it" + (f" ({words})" if words else "")

    def _skip_downstream(self, id: str, reason: str) -> None:
        downstream = self.graph.downstream(id)
        for other in self.graph.ids:
            if other != id and other in downstream and self.states[other].status == "waiting":
                self._skip(other, reason)

    def _skip(self, id: str, reason: str) -> None:
        self.states[id] = replace(self.states[id], status="skipped", reason=reason, taken=())
        self._skipped.append(NodeSkipped(id, reason))

    def _run(self, id: str, upstream: tuple[str, ...] = ()) -> None:
        """Start a node. The limit is checked here because any node of a loop can be the one that runs too often."""
        runs, limit = self.states[id].runs, self.graph.definition.max_iterations
        if runs >= limit:
            raise TooManyLoops(id, limit, (other for other in self._running() if other not in self._start))
        self.states[id] = NodeState("running", runs + 1, upstream=upstream)
        self._start.append(id)

    def _running(self) -> list[str]:
        return [id for id, state in self.states.items() if state.status == "running"]

    def _decide(self) -> Decision:
        return Decision(
            tuple(self._start), tuple(self._skipped), tuple(self._traversed), not self._running() and not self._start
        )


def _is_conditional(edge: Edge) -> bool:
    """Whether an edge is taken by its condition: one with a type is taken by that, a default edge by no other."""
    return edge.type is None and not edge.default


def _is_of_type(edge: Edge, node: Node, values: Mapping[str, Any]) -> bool:
    return edge.type is None or bool(values.get(f"{node.gives}_type") == edge.type)


def find_final_nodes(graph: NodeGraph, states: Mapping[str, NodeState]) -> tuple[str, ...]:
    """The nodes that gave something and led nowhere: what they gave is what the run comes to."""
    with_successors = {owner for owner in graph.ids if states[owner].taken}
    return tuple(
        id
        for id in graph.ids
        if states[id].status == "succeeded" and id not in with_successors and id not in graph.fallbacks
    )


def compute_progress(graph: NodeGraph, states: Mapping[str, NodeState], owner: str, *, over: bool) -> float:
    """The part of all nodes that is done or skipped, 0 to 1, once this one is or is not. Those that stand in for
    others count as the others."""
    counted = [id for id in graph.ids if id not in graph.fallbacks]
    settled = sum(states[id].status in SETTLED for id in counted if id != owner)
    return (settled + over) / len(counted)


def find_sources(graph: NodeGraph, states: Mapping[str, NodeState], id: str) -> tuple[str, ...]:
    """The nodes whose outputs a node is told. A router gives none: whom it leads to is told what it was told."""
    sources: dict[str, None] = {}
    seen, open = {id}, list(states[id].upstream)
    while open:
        source = open.pop(0)
        if graph.definition.node(source).output_mode != "handoff":
            sources[source] = None
        elif source not in seen:
            seen.add(source)
            open = [*states[source].upstream, *open]
    return tuple(sources)
