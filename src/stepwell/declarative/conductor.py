"""The conductor: receives the result of each node and starts the nodes that follow.

It keeps the state of each node in the state of the run. The pure functions of `schedule` decide what
follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from stepwell.declarative.conditions.condition import evaluate
from stepwell.declarative.definition import Definition
from stepwell.declarative.diagram import diagram_of_nodes
from stepwell.declarative.errors import LoopLimit, WorkflowTimeout
from stepwell.declarative.messages import AgentWorkflowOutcome, BeginWorkflow, NodeDone, NodesDecided, RunNode
from stepwell.declarative.node_graph import NodeGraph
from stepwell.declarative.schedule import Decision, Layer, NodeState, Scheduler, TooManyLoops, find_final_nodes
from stepwell.engine.handler.internal_context import internal
from stepwell.errors import GraphChanged
from stepwell.graph.context import WorkflowContext
from stepwell.graph.executor import Executor
from stepwell.graph.handler import handler
from stepwell.model.payload import Payload
from stepwell.storage import clock
from stepwell.viz.diagram import Diagram

# Executor id and state keys. They are stored in runs and must not change.
CONDUCTOR = "conductor"
VALUES = "values/"
NODES = "nodes/"


@dataclass(frozen=True, slots=True)
class WorkflowBegun:
    """When a run started, in which session, and which layers are running."""

    session: str
    # Times and places may differ between a run and the same run with a crash in it, so they do not
    # take part in comparisons.
    at: str = field(compare=False)
    ways: tuple[str, ...] = ()  # keys of the routes the run started with (see `check_routes`)
    layer: int = 0  # number of the newest layer
    place: str = field(default="", compare=False)  # place of the superstep that started it
    layers: tuple[Layer, ...] = ()  # layers with nodes that still run


ConductorContext = WorkflowContext[RunNode | NodesDecided, AgentWorkflowOutcome]


class RunValues(Mapping[str, Any]):
    """A view of the values of a run by key. Each is decoded only when it is read."""

    def __init__(self, ctx: WorkflowContext[Any, Any]) -> None:
        self._ctx = internal(ctx)

    def __getitem__(self, key: str) -> Any:
        if VALUES + key not in self._ctx.state_keys():
            raise KeyError(key)
        return self._ctx.get_state(VALUES + key)

    def __iter__(self) -> Iterator[str]:
        return (key.removeprefix(VALUES) for key in self._ctx.state_keys() if key.startswith(VALUES))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def read_states(graph: NodeGraph, ctx: WorkflowContext[Any, Any]) -> dict[str, NodeState]:
    """Read the states of all nodes of a run by id."""
    return {id: ctx.get_state(NODES + id, NodeState()) for id in graph.ids}


def check_routes(routes: Sequence[str], graph: NodeGraph, run_id: str) -> None:
    """Raise GraphChanged if a run started with other edges.

    The stored states of nodes name routes by key. With other edges the same state would mean
    something else, and the run could take a path that neither version has.
    """
    if changed := _find_route_differences(routes, graph):
        raise GraphChanged(
            f"run {run_id!r} started with other edges: {'; '.join(changed)}. "
            f"Resume it with AgentWorkflow.of_run(...), which loads the edges it started with",
            differences=changed,
        )


def _find_route_differences(routes: Sequence[str], graph: NodeGraph) -> list[str]:
    now = [route.key for route in graph.routes]
    gone = [f"edge {key!r} is gone" for key in routes if key not in now]
    new = [f"edge {key!r} is new" for key in now if key not in routes]
    return gone + new if gone or new or list(routes) == now else ["the edges are in another order"]


class Conductor(Executor):
    """Keeps the state of each node under its own key, and starts the nodes whose turn it is."""

    def __init__(self, graph: NodeGraph) -> None:
        super().__init__(CONDUCTOR)
        self.graph = graph

    def objections(self, state: Mapping[str, Payload]) -> list[str]:
        """List why this graph cannot continue a run with that state: its edges differ."""
        return _find_route_differences(state["begun"].open().ways, self.graph) if "begun" in state else []

    def diagram(self) -> Diagram:
        """Return what a drawing of the workflow shows: the nodes and their conditions, not this executor."""
        return diagram_of_nodes(self.graph)

    @handler
    async def begin(self, message: BeginWorkflow, ctx: ConductorContext) -> None:
        """Store the input and the definition, and start the entry nodes."""
        routes = tuple(route.key for route in self.graph.routes)
        ctx.set_state("definition", message.definition)
        ctx.set_state("begun", WorkflowBegun(message.session, clock.now().isoformat(), routes))
        ctx.set_state(VALUES + "input", message.input)
        scheduler = self._make_scheduler(ctx)
        await self._apply(scheduler.begin(), scheduler, ctx)

    @handler
    async def advance(self, message: NodeDone, ctx: ConductorContext) -> None:
        """Apply the result of a node and start what follows from it."""
        check_routes(ctx.get_state("begun").ways, self.graph, ctx.run_id)
        left = remaining_time(self.graph.definition, ctx)
        if left is not None and left < 0:
            raise make_timeout_error(self.graph, ctx)
        scheduler = self._make_scheduler(ctx)
        try:
            match message.outcome:
                case "succeeded":
                    # Evaluated here, not in the scheduler, because a pattern may need a thread.
                    conditions, values = scheduler.conditions_after(message.node, message.outputs)
                    holding = {edge: await evaluate(condition, values) for edge, condition in conditions.items()}
                    decision = scheduler.succeed(message.node, message.outputs, holding)
                case "failed":
                    decision = scheduler.fail(message.node, message.reason)
                case "denied":
                    decision = scheduler.deny(message.node, message.reason)
        except TooManyLoops as error:
            name = self.graph.definition.name
            raise LoopLimit(f"run {ctx.run_id!r} of {name!r}: {error}", run_id=ctx.run_id) from error
        for key, value in scheduler.new_values.items():
            ctx.set_state(VALUES + key, value)
        await self._apply(decision, scheduler, ctx)

    @handler
    async def ignore_decision(self, message: NodesDecided, ctx: ConductorContext) -> None:
        """Do nothing: the message only carries a decision from which events were computed."""

    def _make_scheduler(self, ctx: WorkflowContext[Any, Any]) -> Scheduler:
        return Scheduler(self.graph, read_states(self.graph, ctx), dict(RunValues(ctx)))

    async def _apply(self, decision: Decision, scheduler: Scheduler, ctx: ConductorContext) -> None:
        """Write the changed states, start nodes, and yield the outcome if the run is complete."""
        layer, ended = self._update_layers(decision, scheduler, ctx)
        decision = replace(decision, ended=ended)
        # Only what changed is written: the cost of a step must not grow with the number of nodes.
        for id, state in scheduler.states.items():
            if state != ctx.get_state(NODES + id, NodeState()):
                ctx.set_state(NODES + id, state)
        # The decision travels exactly once: with the first node that starts, with the outcome, or
        # else in a message of its own.
        for number, id in enumerate(decision.start):
            state = scheduler.states[id]
            decided = decision if number == 0 else None
            await ctx.send_message(
                RunNode(id, state.runs, layer, state.upstream, state.instead_of, decided), target_id=id
            )
        if decision.done:
            await ctx.yield_output(self._make_outcome(decision, scheduler, ctx))
        elif decision and not decision.start:
            await ctx.send_message(NodesDecided(decision), target_id=CONDUCTOR)

    def _update_layers(
        self, decision: Decision, scheduler: Scheduler, ctx: WorkflowContext[Any, Any]
    ) -> tuple[int, tuple[Layer, ...]]:
        """Return the number of the layer that starts in this superstep, and those that ended."""
        begun: WorkflowBegun = ctx.get_state("begun")
        # A delivery id is "place.index". The conductor may be called several times in one
        # superstep; what those calls start together is one layer, so the place tells whether to
        # open a new one.
        place, now, states = internal(ctx).delivery.id.partition(".")[0], begun, scheduler.states
        if decision.start:
            if place != begun.place:
                now = replace(now, layer=now.layer + 1, place=place, layers=(*now.layers, Layer(now.layer + 1, ())))
            *before, last = now.layers
            now = replace(now, layers=(*before, replace(last, nodes=(*last.nodes, *decision.start))))
            for id in decision.start:
                states[id] = replace(states[id], layer=now.layer)
        running = {state.layer for state in states.values() if state.status == "running"}
        ended = tuple(layer for layer in now.layers if layer.number not in running)
        now = replace(now, layers=tuple(layer for layer in now.layers if layer.number in running))
        if now != begun:
            ctx.set_state("begun", now)
        return now.layer, ended

    def _make_outcome(
        self, decision: Decision, scheduler: Scheduler, ctx: WorkflowContext[Any, Any]
    ) -> AgentWorkflowOutcome:
        states = scheduler.states
        last = {id: states[id] for id in find_final_nodes(self.graph, states)}
        outputs = {id: state.outputs.get(self.graph.definition.node(id).value_key) for id, state in last.items()}
        begun: WorkflowBegun = ctx.get_state("begun")
        return AgentWorkflowOutcome(
            next(iter(outputs.values())) if len(outputs) == 1 else outputs,
            dict(RunValues(ctx)),
            succeeded=tuple(id for id, state in states.items() if state.status == "succeeded"),
            failed={id: state.reason for id, state in states.items() if state.status == "failed"},
            skipped={id: state.reason for id, state in states.items() if state.status == "skipped"},
            decided=decision,
            seconds=(clock.now() - datetime.fromisoformat(begun.at)).total_seconds(),
        )


def remaining_time(definition: Definition, ctx: WorkflowContext[Any, Any]) -> float | None:
    """Return how many seconds a run may still take; None if it has no timeout."""
    if definition.timeout is None:
        return None
    begun: WorkflowBegun = ctx.get_state("begun")
    return definition.timeout - (clock.now() - datetime.fromisoformat(begun.at)).total_seconds()


def make_timeout_error(graph: NodeGraph, ctx: WorkflowContext[Any, Any]) -> WorkflowTimeout:
    """Make the error of a run whose time is up. It names the nodes that were running."""
    running = [id for id, state in read_states(graph, ctx).items() if state.status == "running"]
    return WorkflowTimeout(
        f"run {ctx.run_id!r} of {graph.definition.name!r} took longer than {graph.definition.timeout:g} s; running: "
        f"{', '.join(running)}. To continue, raise with_timeout(...) and resume the run",
        run_id=ctx.run_id,
    )
