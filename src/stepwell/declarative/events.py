"""What is told of a run of named agents: nine kinds of events, read from what the engine tells of its commits."""

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
    workflow: str
    run_id: str
    nodes: int
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class WorkflowCompletedEvent:
    """The run is over, or has stopped: `success` says whether it came to its end."""

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
    agent: str
    layer: int
    run: int  # how often it has run, this time included


@dataclass(frozen=True, slots=True)
class WorkflowAgentCompletedEvent:
    agent: str
    success: bool
    seconds: float
    progress: float  # the part of all agents that is done or skipped, 0 to 1
    outputs: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class WorkflowAgentSkippedEvent:
    agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkflowEdgeTraversedEvent:
    source: str
    target: str
    condition: str  # in words; empty: always


@dataclass(frozen=True, slots=True)
class WorkflowLayerStartedEvent:
    layer: int
    agents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkflowLayerCompletedEvent:
    layer: int
    agents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkflowDiagnosticEvent:
    """Something worth knowing: a warning, an attempt that failed and is made again, a run that sleeps."""

    level: Literal["debug", "info", "warning", "error"]
    source: str
    message: str


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """Something an agent of the workflow says or does right now, or takes back."""

    chain: tuple[str, ...]  # whom it belongs to: the workflow, the node, and whatever is inside
    update: AgentResponseUpdate | None  # None: what was told of this turn is withdrawn
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRequestedEvent:
    """A person is asked: answer by the id."""

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
    """Reads the events of the engine, in order, and says what they mean for the agents."""

    def __init__(self, definition: Definition, run_id: str, *, checkpoints: bool = False) -> None:
        self._workflow, self._id = definition.name, run_id
        self._nodes = len(definition.nodes)
        standing_in = {node.fallback for node in definition.nodes}
        self._counted = sum(node.id not in standing_in for node in definition.nodes)
        self._replaced = {node.id for node in definition.nodes if node.fallback is not None}
        self._checkpoints, self._resumed = checkpoints, False
        self._begun: list[RunNode] = []  # in this superstep
        self._ended: list[Layer] = []
        self._over: AgentWorkflowOutcome | None = None
        self._done = 0
        self._statuses: dict[str, str] = {}  # of the nodes, as far as it is known here
        self._progress = 0.0
        self.outcome: AgentWorkflowOutcome | None = None

    def restore(self, statuses: Mapping[str, str]) -> None:
        """Where the nodes were of a run that was stored before, and goes on."""
        self._statuses |= statuses
        self._resumed = True

    def translate(self, event: WorkflowEvent) -> Iterator[NamedEvent]:
        """What an event of the engine means here; nothing, if it means nothing."""
        if event.type in ("update", "withdrawn"):
            yield self._make_agent_event(event)
            return
        if event.path:
            return  # of a workflow inside a node: its agents' events are passed on, its progress is its own
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
                if event.replayed:  # it was over before
                    yield self._make_completed_event(event.data)
            case "request_info":
                yield ApprovalRequestedEvent(event.request_id, node_of(event.executor_id or ""), event.data)
            case "warning":
                source = node_of(event.executor_id) if event.executor_id else self._workflow
                yield WorkflowDiagnosticEvent("warning", source, str(event.data))
            case "sleeping":
                yield WorkflowDiagnosticEvent("info", self._workflow, f"sleeps until {event.data}")
            case "executor_failed" if event.details is not None and event.executor_id != CONDUCTOR:
                yield self._make_agent_failed_event(event.details)
            case "failed" if event.details is not None:
                yield self._make_failed_event(event.details)
            case "checkpoint" if self._checkpoints:
                yield event

    def _read_message(self, message: Any) -> Iterator[NamedEvent]:
        match message:
            case RunNode(decided=decided):
                self._begun.append(message)
                if decided is not None:
                    yield from self._read_decision(decided)
            case NodesDecided(decision=decision):
                yield from self._read_decision(decision)
            case NodeDone():
                yield self._make_agent_completed_event(message)
            case AgentWorkflowOutcome():
                self._over = message
                yield from self._read_decision(message.decided)

    def _read_decision(self, decision: Decision) -> Iterator[NamedEvent]:
        self._ended += decision.ended
        for route in decision.traversed:
            yield WorkflowEdgeTraversedEvent(route.source, route.target, route.condition)
        for skipped in decision.skipped:
            self._statuses[skipped.node] = "skipped"
            yield WorkflowAgentSkippedEvent(skipped.node, skipped.reason)

    def _read_layers(self) -> Iterator[NamedEvent]:
        """A superstep is over: what was decided in it, together, is what a layer is."""
        for layer in self._ended:
            yield WorkflowLayerCompletedEvent(layer.number, layer.nodes)
        if self._begun:
            yield WorkflowLayerStartedEvent(self._begun[0].layer, tuple(message.node for message in self._begun))
        for message in self._begun:
            self._statuses[message.node] = "running"
            yield WorkflowAgentStartedEvent(message.node, message.layer, message.run)
        if self._over is not None:
            yield self._make_completed_event(self._over)
        self._begun, self._ended, self._over, self._done = [], [], None, 0

    def _make_completed_event(self, outcome: AgentWorkflowOutcome) -> WorkflowCompletedEvent:
        counts = len(outcome.succeeded), len(outcome.failed), len(outcome.skipped)
        return WorkflowCompletedEvent(self._workflow, self._id, True, outcome.seconds, *counts, outcome.output)

    def _make_agent_completed_event(self, done: NodeDone) -> WorkflowAgentCompletedEvent:
        success = done.outcome == "succeeded"
        self._progress = min(done.progress + self._done / self._counted, 1.0)  # those beside it did not know of it
        self._done += success or done.node not in self._replaced
        if done.outcome != "denied":  # that is told as skipped
            self._statuses[done.node] = done.outcome
        error = None if success else done.reason
        outputs = dict(done.outputs)
        return WorkflowAgentCompletedEvent(done.node, success, done.seconds, self._progress, outputs, error)

    def _make_agent_event(self, event: WorkflowEvent) -> AgentEvent:
        chain = (self._workflow, *map(node_of, (*event.path, event.executor_id or "")))
        return AgentEvent(chain, event.data if event.type == "update" else None, event.attempt)

    def _make_agent_failed_event(self, details: WorkflowErrorDetails) -> WorkflowAgentCompletedEvent:
        agent = node_of(str(details.executor_id))
        self._statuses[agent] = "failed"
        return WorkflowAgentCompletedEvent(agent, False, 0.0, self._progress, error=_describe(details))

    def _make_failed_event(self, details: WorkflowErrorDetails) -> WorkflowCompletedEvent:
        counts = Counter(self._statuses.values())
        totals = counts["succeeded"], counts["failed"], counts["skipped"]
        return WorkflowCompletedEvent(self._workflow, self._id, False, 0.0, *totals, error=_describe(details))


def _describe(details: WorkflowErrorDetails) -> str:
    return f"{details.error_type}: {details.message}"
