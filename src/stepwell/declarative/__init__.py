"""Workflows declared from named agents, as data that can be stored: `AgentWorkflow`.

A definition (`definition`) lists nodes and edges. `binding` turns it into a plain workflow with a
conductor in the middle and one node executor for each agent; `schedule` decides which nodes run
next; `instance` starts and resumes runs; `events` translates the engine's events. Definitions are
read from and written to JSON and YAML in `files/`; conditions on edges live in `conditions/`.
"""

from stepwell.declarative.builder import AgentWorkflow
from stepwell.declarative.conditions.condition import (
    CallableCondition,
    Condition,
    ConditionFailed,
    all_of,
    any_of,
    at_least,
    at_most,
    contains,
    contains_all,
    contains_any,
    empty,
    ends_with,
    equals,
    exists,
    greater,
    less,
    matches,
    not_,
    not_empty,
    not_equals,
    not_exists,
    starts_with,
)
from stepwell.declarative.definition import Approval, Definition, Edge, Node, Retries
from stepwell.declarative.diagram import to_mermaid
from stepwell.declarative.errors import LoopLimit, MissingInput, OutputRejected, WorkflowTimeout
from stepwell.declarative.events import (
    AgentEvent,
    ApprovalRequestedEvent,
    WorkflowAgentCompletedEvent,
    WorkflowAgentSkippedEvent,
    WorkflowAgentStartedEvent,
    WorkflowCompletedEvent,
    WorkflowDiagnosticEvent,
    WorkflowEdgeTraversedEvent,
    WorkflowLayerCompletedEvent,
    WorkflowLayerStartedEvent,
    WorkflowStartedEvent,
)
from stepwell.declarative.files.reader import from_data, from_json, from_yaml
from stepwell.declarative.files.schema import schema
from stepwell.declarative.files.writer import to_data, to_json, to_yaml
from stepwell.declarative.instance import AgentWorkflowInstance, AgentWorkflowResult, AgentWorkflowStream
from stepwell.declarative.messages import AgentWorkflowOutcome, NodeApprovalRequest, NodeApprovalResponse
from stepwell.declarative.transcripts import InMemoryTranscriptStore, JsonTranscriptStore, TranscriptStore

__all__ = [
    "AgentEvent",
    "AgentWorkflow",
    "AgentWorkflowInstance",
    "AgentWorkflowOutcome",
    "AgentWorkflowResult",
    "AgentWorkflowStream",
    "Approval",
    "ApprovalRequestedEvent",
    "CallableCondition",
    "Condition",
    "ConditionFailed",
    "Definition",
    "Edge",
    "InMemoryTranscriptStore",
    "JsonTranscriptStore",
    "LoopLimit",
    "MissingInput",
    "Node",
    "NodeApprovalRequest",
    "NodeApprovalResponse",
    "OutputRejected",
    "Retries",
    "TranscriptStore",
    "WorkflowAgentCompletedEvent",
    "WorkflowAgentSkippedEvent",
    "WorkflowAgentStartedEvent",
    "WorkflowCompletedEvent",
    "WorkflowDiagnosticEvent",
    "WorkflowEdgeTraversedEvent",
    "WorkflowLayerCompletedEvent",
    "WorkflowLayerStartedEvent",
    "WorkflowStartedEvent",
    "WorkflowTimeout",
    "all_of",
    "any_of",
    "at_least",
    "at_most",
    "contains",
    "contains_all",
    "contains_any",
    "empty",
    "ends_with",
    "equals",
    "exists",
    "from_data",
    "from_json",
    "from_yaml",
    "greater",
    "less",
    "matches",
    "not_",
    "not_empty",
    "not_equals",
    "not_exists",
    "schema",
    "starts_with",
    "to_data",
    "to_json",
    "to_mermaid",
    "to_yaml",
]
