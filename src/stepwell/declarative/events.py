"""Events of a run of named agents, translated from the engine's events.

Durable events are computed from the messages in commits, not recorded separately: after a resume
they continue exactly where they stopped. `AgentEvent` and diagnostics are live progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stepwell.agents.messages import AgentResponseUpdate
from stepwell.declarative.conductor import CONDUCTOR
from stepwell.declarative.definition import Definition
from stepwell.declarative.messages import AgentWorkflowOutcome, NodeDone, NodesDecided, RunNode
from stepwell.declarative.schedule import Decision, Layer
from stepwell.declarative.workflow_node import node_of
from stepwell.model.event import WorkflowErrorDetails, WorkflowEvent


@dataclass(frozen=True, slots=True)
class WorkflowStartedEvent:
    """A run has started, or was resumed."""

    workflow: str
    run_id: str
    nodes: int
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class WorkflowCompletedEvent:
    """The run has completed (`success`) or failed."""

    workflow: str
    run_id: str
    success: bool
    seconds: float
    succeeded: int
    failed: int
    skipped: int
    output: Any = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class WorkflowAgentStartedEvent:
    """A node has started."""

    agent: str
    layer: int
    run: int  # how often it has run, this run included


@dataclass(frozen=True, slots=True)
class WorkflowAgentCompletedEvent:
    """A node has succeeded, failed or was denied."""

    agent: str
    success: bool
    seconds: float
    progress: float  # the share of agents that are settled, 0 to 1
    outputs: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class WorkflowAgentSkippedEvent:
    """A node will not run, because no edge to it was taken or its output was denied."""

    agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkflowEdgeTraversedEvent:
    """An edge was taken."""

    source: str
    target: str
    condition: str  # in words; empty: none


@dataclass(frozen=True, slots=True)
class WorkflowLayerStartedEvent:
    """Nodes have started together."""

    layer: int
    agents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkflowLayerCompletedEvent:
    """No node of the layer is running any more."""

    layer: int
    agents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkflowDiagnosticEvent:
    """A diagnostic message: a warning, a failed attempt that is retried, a run that sleeps."""

    level: Literal["debug", "info", "warning", "error"]
    source: str
    message: str


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """Live output of an agent, or its withdrawal. Never stored."""

    chain: tuple[str, ...]  # workflow, node, and the executors of a workflow inside the node
    update: AgentResponseUpdate | None  # None: the updates of this turn so far are withdrawn
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRequestedEvent:
    """The run waits for a person: respond to `request_id`."""

    request_id: str
    agent: str
    data: Any


NamedEvent = (
    WorkflowStartedEvent
    | WorkflowCompletedEvent
    | WorkflowAgentStartedEvent
    | WorkflowAgentCompletedEvent
    | WorkflowAgentSkippedEvent
    | WorkflowEdgeTraversedEvent
    | WorkflowLayerStartedEvent
    | WorkflowLayerCompletedEvent
    | WorkflowDiagnosticEvent
    | AgentEvent
    | ApprovalRequestedEvent
    | WorkflowEvent
)


class EventTranslator:
    """Translates the events of one run, in order, from the engine's terms into those of agents."""

    def __init__(self, definition: Definition, run_id: str, *, checkpoints: bool = False) -> None:
        self._workflow, self._id = definition.name, run_id
        self._nodes = len(definition.nodes)
        # Progress counts a node and its fallback as one.
        fallbacks = {node.fallback for node in definition.nodes}
        self._counted = sum(node.id not in fallbacks for node in definition.nodes)
        self._with_fallback = {node.id for node in definition.nodes if node.fallback is not None}
        self._checkpoints, self._resumed = checkpoints, False
        # Collected during a superstep and emitted when it is committed, so that a layer is
        # complete.
        self._started: list[RunNode] = []
        self._ended_layers: list[Layer] = []
        self._final: AgentWorkflowOutcome | None = None
        self._done = 0
        # The engine's failure event does not count nodes, so their statuses are tracked here.
        self._statuses: dict[str, str] = {}
        self._progress = 0.0
        self.outcome: AgentWorkflowOutcome | None = None

    @property
    def statuses(self) -> Mapping[str, str]:
        """The status of each node that something is known of."""
        return self._statuses

    def restore(self, statuses: Mapping[str, str]) -> None:
        """Set the node statuses of a stored run that is resumed."""
        self._statuses |= statuses
        self._resumed = True

    def translate(self, event: WorkflowEvent) -> Iterator[NamedEvent]:
        """Yield the events that follow from an event of the engine, possibly none."""
        if event.type in ("update", "withdrawn"):
            chain = (self._workflow, *map(node_of, (*event.path, event.executor_id or "")))
            yield AgentEvent(chain, event.data if event.type == "update" else None, event.attempt)
            return
        # An event with a path comes from a workflow inside a node. Output of its agents is passed
        # on above; its progress is not this workflow's.
        if event.path:
            return
        match event.type:
            case "started":
                yield WorkflowStartedEvent(self._workflow, self._id, self._nodes, self._resumed)
            case "executor_completed":
                for message in event.data or ():
                    yield from self._read_message(message)
            case "superstep_completed":
                yield from self._read_layers()
            case "output" if isinstance(event.data, AgentWorkflowOutcome):
                self.outcome = event.data
                # Live, the completion is emitted with its superstep. A run that had completed
                # before has no superstep to come: its replayed output is all there is.
                if event.replayed:
                    yield self._make_completed_event(event.data)
            case "request_info":
                yield ApprovalRequestedEvent(event.request_id, node_of(event.executor_id or ""), event.data)
            case "warning":
                source = node_of(event.executor_id) if event.executor_id else self._workflow
                yield WorkflowDiagnosticEvent("warning", source, str(event.data))
            case "sleeping":
                yield WorkflowDiagnosticEvent("info", self._workflow, f"sleeping until {event.data}")
            # A failure of the conductor, such as LoopLimit, is not a failure of an agent.
            case "executor_failed" if event.details is not None and event.executor_id != CONDUCTOR:
                agent = node_of(str(event.details.executor_id))
                self._statuses[agent] = "failed"
                error = _describe(event.details)
                seconds = 0.0 if event.time is None else event.time.seconds
                yield WorkflowAgentCompletedEvent(agent, False, seconds, self._progress, error=error)
            case "failed" if event.details is not None:
                counts = Counter(self._statuses.values())
                totals = counts["succeeded"], counts["failed"], counts["skipped"]
                error = _describe(event.details)
                yield WorkflowCompletedEvent(self._workflow, self._id, False, 0.0, *totals, error=error)
            case "checkpoint" if self._checkpoints:
                yield event

    def _read_message(self, message: Any) -> Iterator[NamedEvent]:
        match message:
            case RunNode(decided=decided):
                self._started.append(message)
                if decided is not None:
                    yield from self._read_decision(decided)
            case NodesDecided(decision=decision):
                yield from self._read_decision(decision)
            case NodeDone():
                yield self._complete_agent(message)
            case AgentWorkflowOutcome():
                self._final = message
                yield from self._read_decision(message.decided)

    def _read_decision(self, decision: Decision) -> Iterator[NamedEvent]:
        self._ended_layers += decision.ended
        for route in decision.traversed:
            yield WorkflowEdgeTraversedEvent(route.source, route.target, route.condition)
        for skipped in decision.skipped:
            self._statuses[skipped.node] = "skipped"
            yield WorkflowAgentSkippedEvent(skipped.node, skipped.reason)

    def _read_layers(self) -> Iterator[NamedEvent]:
        """Yield the layer events of a superstep: layers that ended, then the one that started."""
        for layer in self._ended_layers:
            yield WorkflowLayerCompletedEvent(layer.number, layer.nodes)
        if self._started:
            yield WorkflowLayerStartedEvent(self._started[0].layer, tuple(message.node for message in self._started))
        for message in self._started:
            self._statuses[message.node] = "running"
            yield WorkflowAgentStartedEvent(message.node, message.layer, message.run)
        if self._final is not None:
            yield self._make_completed_event(self._final)
        self._started, self._ended_layers, self._final, self._done = [], [], None, 0

    def _make_completed_event(self, outcome: AgentWorkflowOutcome) -> WorkflowCompletedEvent:
        counts = len(outcome.succeeded), len(outcome.failed), len(outcome.skipped)
        return WorkflowCompletedEvent(self._workflow, self._id, True, outcome.seconds, *counts, output=outcome.output)

    def _complete_agent(self, done: NodeDone) -> WorkflowAgentCompletedEvent:
        success = done.outcome == "succeeded"
        # Each node computed its progress from the last commit, without its siblings in this
        # superstep.
        self._progress = min(done.progress + self._done / self._counted, 1.0)
        # A failed node whose fallback runs next is not settled yet.
        self._done += success or done.node not in self._with_fallback
        # The conductor reports a denied node as skipped, in its next decision.
        if done.outcome != "denied":
            self._statuses[done.node] = done.outcome
        error = None if success else done.reason
        return WorkflowAgentCompletedEvent(done.node, success, done.seconds, self._progress, dict(done.outputs), error)


def _describe(details: WorkflowErrorDetails) -> str:
    return f"{details.error_type}: {details.message}"
