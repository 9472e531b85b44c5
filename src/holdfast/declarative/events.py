"""What is told of a run of named agents: nine kinds of events, read from what the engine tells of its commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..agents.values import AgentResponseUpdate
from ..core.events import WorkflowErrorDetails, WorkflowEvent
from .conductor import CONDUCTOR
from .deciding import Decision
from .definition import Definition
from .messages import Done, Go, Outcome


@dataclass(frozen=True, slots=True)
class WorkflowStartedEvent:
    workflow: str
    execution_id: str
    nodes: int
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class WorkflowCompletedEvent:
    """The run is over, or has stopped: `success` says whether it came to its end."""

    workflow: str
    execution_id: str
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


class Teller:
    """Reads the events of the engine, in order, and says what they mean for the agents."""

    def __init__(
        self, definition: Definition, execution_id: str, *, checkpoints: bool = False, resumed: bool = False
    ) -> None:
        self._workflow, self._nodes, self._id = definition.name, len(definition.nodes), execution_id
        self._checkpoints, self._resumed = checkpoints, resumed
        self._layer: tuple[str, ...] = ()
        self._number = 0
        self._counts = {"succeeded": 0, "failed": 0, "skipped": 0}  # as far as it was told here
        self._progress = 0.0
        self.outcome: Outcome | None = None

    def told(self, event: WorkflowEvent) -> Iterator[NamedEvent]:
        """What an event of the engine means here; nothing, if it means nothing."""
        if event.type in ("update", "withdrawn"):
            yield self._of_agent(event)
            return
        if event.path:
            return  # of a workflow inside a node: its agents' events are passed on, its progress is its own
        match event.type:
            case "started":
                yield WorkflowStartedEvent(self._workflow, self._id, self._nodes, self._resumed)
            case "executor_completed":
                for said in event.data or ():
                    yield from self._said(said)
            case "output" if isinstance(event.data, Outcome):
                self.outcome = event.data
            case "request_info":
                yield ApprovalRequestedEvent(event.request_id, event.executor_id or "", event.data)
            case "warning":
                yield WorkflowDiagnosticEvent("warning", event.executor_id or self._workflow, str(event.data))
            case "sleeping":
                yield WorkflowDiagnosticEvent("info", self._workflow, f"sleeps until {event.data}")
            case "failed" if event.details is not None:
                yield from self._failure(event.details)
            case "checkpoint" if self._checkpoints:
                yield event

    def _said(self, said: Any) -> Iterator[NamedEvent]:
        match said:
            case Go():
                if said.decided is not None:
                    yield from self._decided(said.decided, said.layer)
                yield WorkflowAgentStartedEvent(said.node, said.layer, said.run)
            case Done():
                yield self._done(said)
            case Outcome():
                yield from self._decided(said.decided, said.layer)
                counts = len(said.succeeded), len(said.failed), len(said.skipped)
                yield WorkflowCompletedEvent(self._workflow, self._id, True, said.seconds, *counts, said.output)

    def _decided(self, decided: Decision, layer: int) -> Iterator[NamedEvent]:
        for way in decided.traversed:
            yield WorkflowEdgeTraversedEvent(way.source, way.target, way.condition)
        for one in decided.skipped:
            self._counts["skipped"] += 1
            yield WorkflowAgentSkippedEvent(one.node, one.reason)
        if self._layer and (layer != self._number or decided.done):
            yield WorkflowLayerCompletedEvent(self._number, self._layer)
            self._layer = ()
        if decided.start:
            self._layer = (*self._layer, *decided.start)
            self._number = layer
            yield WorkflowLayerStartedEvent(layer, decided.start)

    def _done(self, done: Done) -> WorkflowAgentCompletedEvent:
        success = done.outcome == "succeeded"
        self._progress = done.progress
        if done.outcome != "denied":  # that is told as skipped
            self._counts[done.outcome] += 1
        error = None if success else done.reason
        return WorkflowAgentCompletedEvent(done.node, success, done.seconds, done.progress, dict(done.outputs), error)

    def _of_agent(self, event: WorkflowEvent) -> AgentEvent:
        chain = (self._workflow, *event.path, event.executor_id or "")
        return AgentEvent(chain, event.data if event.type == "update" else None, event.attempt)

    def _failure(self, details: WorkflowErrorDetails) -> Iterator[NamedEvent]:
        words = f"{details.error_type}: {details.message}"
        if details.executor_id not in (None, CONDUCTOR):
            self._counts["failed"] += 1
            yield WorkflowAgentCompletedEvent(str(details.executor_id), False, 0.0, self._progress, error=words)
        counts = self._counts["succeeded"], self._counts["failed"], self._counts["skipped"]
        yield WorkflowCompletedEvent(self._workflow, self._id, False, 0.0, *counts, error=words)
