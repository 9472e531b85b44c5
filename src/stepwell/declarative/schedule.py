"""Decide which nodes run next: joins, dead paths, default edges, fallbacks and loops. Pure.

A node runs when all nodes that lead to it are settled (succeeded, failed or skipped) and at least
one of them took a route to it. If none did, the node is skipped, and that settles it in turn: a
join never waits for a dead path. Routes that close a loop are left out of this rule. When one is
taken, the node it leads to and everything downstream of it wait for a new turn, once nothing of the
old round is running.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from stepwell.declarative.conditions.condition import Condition
from stepwell.declarative.definition import Route
from stepwell.declarative.node_graph import NodeGraph

Status = Literal["waiting", "running", "succeeded", "failed", "skipped"]
SETTLED: tuple[Status, ...] = ("succeeded", "failed", "skipped")


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state of a node. Stored in runs, one value for each node."""

    status: Status = "waiting"
    runs: int = 0  # how often it was started
    outputs: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""  # why it was skipped, or the error it failed with
    taken: tuple[str, ...] = ()  # keys of the routes it took
    upstream: tuple[str, ...] = ()  # the nodes that led to its last start
    instead_of: str | None = None  # the failed node that this one replaces as a fallback
    layer: int = 0  # number of the layer it started in


@dataclass(frozen=True, slots=True)
class EdgeTraversed:
    """An edge was taken."""

    source: str
    target: str
    condition: str  # in words; empty: none


@dataclass(frozen=True, slots=True)
class NodeSkipped:
    """A node was skipped, in this round of its loop."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Layer:
    """The nodes that were started in one superstep."""

    number: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from the result of a node."""

    start: tuple[str, ...] = ()
    skipped: tuple[NodeSkipped, ...] = ()
    traversed: tuple[EdgeTraversed, ...] = ()
    done: bool = False  # the run is complete: nothing is running and nothing starts
    ended: tuple[Layer, ...] = ()  # layers that have no running node any more; set by the conductor

    def __bool__(self) -> bool:
        """Whether the decision contains anything to emit."""
        return self != Decision()


class TooManyLoops(Exception):
    """A node of a loop was to run more often than `max_iterations` allows."""

    def __init__(self, node: str, limit: int, running: Iterable[str]) -> None:
        self.node, self.running = node, tuple(running)
        still_running = ", ".join(map(repr, self.running)) or "none"
        super().__init__(
            f"{node!r} has run {limit} times, the maximum set by max_iterations, and would run again; "
            f"still running: {still_running}"
        )


class Scheduler:
    """Makes one decision, on a copy of the node states. Call exactly one of its public methods.

    Afterwards `states` and `new_values` hold what is to be stored.
    """

    def __init__(self, graph: NodeGraph, states: Mapping[str, NodeState], values: Mapping[str, Any]) -> None:
        self.graph, self._values = graph, values
        self.new_values: Mapping[str, Any] = {}  # values to store
        self.states = {id: states.get(id, NodeState()) for id in graph.ids}
        self._start: list[str] = []
        self._skipped: list[NodeSkipped] = []
        self._traversed: list[EdgeTraversed] = []

    def begin(self) -> Decision:
        """Start the entry nodes."""
        for id in self.graph.entries:
            self._run(id)
        return self._decide()

    def conditions_after(
        self, id: str, outputs: Mapping[str, Any]
    ) -> tuple[Mapping[int, Condition], Mapping[str, Any]]:
        """Return the conditions to evaluate after a node has succeeded, and the values for them.

        The conditions are by the number of their edge.
        """
        owner = self._owner(id)
        # A router has chosen its target; conditions on its edges do not apply.
        if self.graph.definition.node(owner).output_mode == "handoff":
            return {}, {}
        edges = {route.edge: self.graph.definition.edges[route.edge] for route in self.graph.out_of(owner)}
        # The condition of a typed edge or a default edge decides nothing.
        conditions = {
            number: edge.condition
            for number, edge in edges.items()
            if edge.condition is not None and edge.type is None and not edge.default
        }
        values = outputs if owner == id else self._outputs_for(owner, id, outputs)
        return conditions, {**self._values, **values}

    def succeed(self, id: str, outputs: Mapping[str, Any], holding: Mapping[int, bool]) -> Decision:
        """A node has succeeded, for itself or as a fallback; `holding` says which of `conditions_after` hold."""
        owner = self._owner(id)
        self.states[id] = replace(self.states[id], status="succeeded", outputs=outputs, reason="", instead_of=None)
        if owner != id:
            owner_outputs = self._outputs_for(owner, id, outputs)
            self.states[owner] = replace(self.states[owner], status="succeeded", outputs=owner_outputs, reason="")
        self.new_values = self.states[owner].outputs
        # A route that leads back wins over forward ones: the nodes those lead to have their turn
        # when the loop has ended.
        chosen = self._choose_routes(owner, holding)
        taken = [(route, text) for route, text in chosen if route.key in self.graph.loop_keys] or chosen
        self.states[owner] = replace(self.states[owner], taken=tuple(route.key for route, _ in taken))
        self._traversed += [EdgeTraversed(owner, route.target, text) for route, text in taken]
        return self._settle()

    def _outputs_for(self, owner: str, id: str, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of a fallback as outputs of the node it replaces."""
        replaced, fallback = self.graph.definition.node(owner), self.graph.definition.node(id)
        # A fallback has no handoff tools, so a router that failed leads to its default target.
        if replaced.output_mode == "handoff":
            return {replaced.value_key: replaced.default_target, "handoff": replaced.default_target}
        return {**outputs, replaced.value_key: outputs.get(fallback.value_key)}

    def fail(self, id: str, reason: str) -> Decision:
        """A node has failed without stopping the run: start its fallback, or settle it as failed."""
        node, owner = self.graph.definition.node(id), self._owner(id)
        self.states[id] = replace(self.states[id], status="failed", reason=reason, instead_of=None)
        if node.on_error == "fallback" and node.fallback is not None:
            # The owner counts as running until its fallback is done. Fallbacks can have fallbacks,
            # so the owner need not be this node.
            self.states[owner] = replace(self.states[owner], status="running", reason=reason)
            self._run(node.fallback, self.states[owner].upstream)
            self.states[node.fallback] = replace(self.states[node.fallback], instead_of=owner)
            return self._decide()
        self.states[owner] = replace(self.states[owner], status="failed", reason=reason)
        downstream = self.graph.downstream(owner) - {owner} if node.on_error == "skip" else ()
        for other in self.graph.ids:
            if other in downstream and self.states[other].status == "waiting":
                self._skip(other, f"{owner!r}, which it depends on, failed: {reason}")
        return self._settle()

    def _owner(self, id: str) -> str:
        """Return the node that the result of `id` counts for: itself, or the one it replaces."""
        return self.states[id].instead_of or id

    def deny(self, id: str, reason: str) -> Decision:
        """A person denied the output of a node: the node counts as skipped."""
        for node_id in dict.fromkeys((id, self._owner(id))):
            self.states[node_id] = replace(
                self.states[node_id], status="skipped", reason=reason, outputs={}, instead_of=None
            )
            self._skipped.append(NodeSkipped(node_id, reason))
        return self._settle()

    def _choose_routes(self, id: str, holding: Mapping[int, bool]) -> list[tuple[Route, str]]:
        """Return the routes whose conditions hold, or else the default ones, with a description."""
        node, outputs, edges = self.graph.definition.node(id), self.states[id].outputs, self.graph.definition.edges
        routes = self.graph.out_of(id)
        if node.output_mode == "handoff":
            target = outputs.get("handoff")
            return [(route, f"handed over to {target!r}") for route in routes if route.target == target]
        regular = [route for route in routes if not edges[route.edge].default]
        type_name = {**self._values, **outputs}.get(f"{node.value_key}_type")
        chosen = [r for r in regular if holding.get(r.edge, True) and edges[r.edge].type in (None, type_name)]
        defaults = [route for route in routes if edges[route.edge].default]
        return [(route, edges[route.edge].describe()) for route in chosen or defaults]

    def _start_loop_again(self) -> bool:
        """Restart the first loop that is due and in which no node is running any more."""
        for route in filter(self._leads_back, self.graph.routes):
            affected = self.graph.downstream(route.target)
            # Wait for nodes of the old round, so that none of its results ends up in the new one.
            if any(self.states[id].status == "running" for id in affected):
                continue
            # Read before the reset below clears `taken`.
            sources = [back.source for back in self.graph.into(route.target) if self._leads_back(back)]
            for id in affected:
                self.states[id] = replace(self.states[id], status="waiting", taken=(), reason="")
            self._run(route.target, tuple(dict.fromkeys(sources)))
            return True
        return False

    def _leads_back(self, route: Route) -> bool:
        """Whether this route closes a loop and was taken."""
        return route.key in self.graph.loop_keys and route.key in self.states[route.source].taken

    def _settle(self) -> Decision:
        """Start or skip every node whose turn has come, until nothing changes."""
        # Skipping a node settles it, which may decide others. Loops restart only when forward
        # routes have nothing left to decide.
        while any(self._advance(id) for id in self.graph.ids) or self._start_loop_again():
            pass
        return self._decide()

    def _advance(self, id: str) -> bool:
        """Start or skip a node if all nodes that lead to it are settled; return whether it was."""
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
            self._skip(id, "; ".join(dict.fromkeys(map(self._explain_dead_route, routes))))
        return True

    def _is_settled(self, id: str) -> bool:
        """Whether a node is settled for this round. One that took a route back will run again."""
        state = self.states[id]
        return state.status in SETTLED and not any(key in self.graph.loop_keys for key in state.taken)

    def _explain_dead_route(self, route: Route) -> str:
        source = self.states[route.source]
        if source.status == "failed":
            return f"{route.source!r} failed: {source.reason}"
        if source.status == "skipped":
            return f"{route.source!r} was skipped"
        condition = self.graph.definition.edges[route.edge].describe()
        return f"{route.source!r} did not lead to it" + (f" ({condition})" if condition else "")

    def _skip(self, id: str, reason: str) -> None:
        self.states[id] = replace(self.states[id], status="skipped", reason=reason, taken=())
        self._skipped.append(NodeSkipped(id, reason))

    def _run(self, id: str, upstream: tuple[str, ...] = ()) -> None:
        """Start a node. The limit is checked here because any node of a loop can exceed it."""
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


def find_final_nodes(graph: NodeGraph, states: Mapping[str, NodeState]) -> tuple[str, ...]:
    """Return the nodes that succeeded and led nowhere: their outputs are the output of the run."""
    return tuple(
        id
        for id in graph.ids
        if states[id].status == "succeeded" and not states[id].taken and id not in graph.fallbacks
    )


def compute_progress(graph: NodeGraph, states: Mapping[str, NodeState], owner: str, *, over: bool) -> float:
    """Return the share of nodes that are settled, 0 to 1; `over` says whether `owner` is.

    A node and its fallback count as one.
    """
    counted = [id for id in graph.ids if id not in graph.fallbacks]
    settled = sum(states[id].status in SETTLED for id in counted if id != owner)
    return (settled + over) / len(counted)


def find_sources(graph: NodeGraph, states: Mapping[str, NodeState], id: str) -> tuple[str, ...]:
    """Return the nodes whose outputs are the input of a node.

    A router only chooses: the node it leads to gets the router's own input.
    """
    sources: dict[str, None] = {}
    # Routers can lead to each other in a circle, so each is followed once.
    seen, pending = {id}, list(states[id].upstream)
    while pending:
        source = pending.pop(0)
        if graph.definition.node(source).output_mode != "handoff":
            sources[source] = None
        elif source not in seen:
            seen.add(source)
            pending = [*states[source].upstream, *pending]
    return tuple(sources)
