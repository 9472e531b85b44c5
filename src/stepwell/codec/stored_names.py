"""The names under which classes of this library are stored, such as `stepwell:Message`.

Stored data says what a value is, not which file defines it, so that a module can be renamed or
split without touching a stored byte. A name in this table is part of the storage format: it never
changes and is never given to another class. `Name=Class` gives a stored name to a class whose own
name would be ambiguous or has changed.

Reading imports only modules of this table, whatever the data names. The table names modules of
higher layers as strings, because their classes are stored but not needed here.
"""

from __future__ import annotations

import sys

from stepwell.codec.modules import ROOT, load

_TABLE = {
    "agents.adapters.pydantic_ai.agent": "PydanticAIReturn=RichReturn PydanticAIToolFailure=ToolFailure",
    "agents.requests": """
        AgentInputRequest AgentInputResponse BudgetRequest BudgetResponse
        ToolApprovalRequest ToolApprovalResponse ToolOutcomeRequest ToolOutcomeResponse""",
    "agents.turn_input": "Budget",
    "agents.executor": "OpenTurn AgentProgress",
    "agents.scripted": "Asks Calls Fails Says",
    "agents.turn": "Interrupted",
    "agents.turn_steps": "ToolDone",
    "agents.messages": """
        AgentExecutorRequest AgentExecutorResponse AgentResponse AgentResponseUpdate Answer
        CurrentToolCall Message ModelReply ToolCall Usage UserInputRequest""",
    "errors": """
        CannotUnseal CheckpointCorrupt CheckpointMissing CodecError CommitConflict DefinitionError DurabilityError
        GraphChanged HandlerFailed HandlerTimeout InputMismatch MigrationFailed NewerFormat PrivateMissing
        RequestError RequestExpired ResponseRejected RoutingFailed RunBusy RunError RunSetAside StateConflict
        StepChanged StepFailed StepwellError StoreUnavailable SuperstepLimit UnknownRequest""",
    "model.event": "CheckpointInfo WorkflowErrorDetails WorkflowEventSource WorkflowRunState",
    "model.checkpoint": "Retention",
    "model.message": "RepliedRequest=Reply",
    "model.timing": "CallTime",
    "declarative.conditions.condition": "ConditionFailed",
    "declarative.conductor": "WorkflowBegun",
    "declarative.schedule": """
        EdgeTraversed NodeLayer=Layer NodeProgress=NodeState NodeSkipped NodesDecision=Decision""",
    "declarative.definition": "Approval Definition Edge Node Retries",
    "declarative.errors": "LoopLimit MissingInput OutputRejected WorkflowTimeout",
    "declarative.events": """
        AgentEvent ApprovalRequestedEvent WorkflowAgentCompletedEvent WorkflowAgentSkippedEvent
        WorkflowAgentStartedEvent WorkflowCompletedEvent WorkflowDiagnosticEvent WorkflowEdgeTraversedEvent
        WorkflowLayerCompletedEvent WorkflowLayerStartedEvent WorkflowStartedEvent""",
    "declarative.instance": "AgentWorkflowResult",
    "declarative.messages": """
        BeginWorkflow NodesDecided NodeDone RunNode
        NodeApprovalRequest NodeApprovalResponse NodeOutcome=AgentWorkflowOutcome""",
    "declarative.node": "NodeWork",
    "storage.answers": "PendingAnswer",
    "storage.checkpoint": "WorkflowCheckpoint WorkflowMessage",
    "storage.lease": "LeaseOwner=Owner RunLease=Lease",
    "storage.pending_requests": "PendingRequest",
    "storage.stored_values": "ListedRequest=RequestEntry ListedRun=RunEntry RunMetadata",
    "storage.run_list": "RunInfo",
    "graph.subworkflow": "SubWorkflowRequest SubWorkflowRequestMessage SubWorkflowResponseMessage",
    "graph.retry": "RetryPolicy",
    "admin.cancellation": "Cancelled",
    "admin.deploy_check": "Checked CheckedRun",
    "admin.diffs.json_diff": "Change",
    "admin.diffs.checkpoints": "Difference NotForked",
    "viz.diagram": "Diagram DiagramArrow=Arrow DiagramNode",
    "viz.progress": "Progress",
    "admin.state_edits": "EditRefused",
    "admin.transfer.exporter": "Exported",
    "admin.doctor.findings": "Examined Finding",
    "admin.transfer.container": "ImportRefused",
    "admin.transfer.importer": "Imported",
    "admin.retention.policy": "Keep",
    "admin.lookup": "Ambiguous NotFound",
    "admin.retention.pruner": "PruneReport",
    "admin.retries": "RetryReport",
    "admin.requests": "OpenRequest",
    "admin.run_search": "Holding",
    "orchestrations.group_chat.values": """
        AgentOrchestrationOutput GroupChatParticipantMessage GroupChatProgress GroupChatRequestMessage
        GroupChatRequestSentEvent GroupChatResponseMessage GroupChatResponseReceivedEvent GroupChatState
        NotADecision""",
    "orchestrations.handoff.agents": "HandoffAgentUserRequest HandoffSentEvent",
    "orchestrations.magentic.managers": "MagenticContext",
    "orchestrations.magentic.values": """
        MagenticContinue MagenticOrchestratorEvent MagenticOrchestratorEventType
        MagenticPlanReviewRequest MagenticPlanReviewResponse MagenticProgress MagenticProgressLedger
        MagenticProgressLedgerItem MagenticTaskLedger""",
    "orchestrations.review": "AgentRequestInfoResponse",
    "testing.faults.crash": "Crash",
    "testing.crash_runs": "CrashReport",
    "testing.crash_trial": "NotTheSame",
    "workflows.workflow_agent": "AgentSession",
}

# An adapter imports the library that it adapts, which may not be installed. Reading a value must not
# import it, so classes of adapters are found only once the program itself has loaded the adapter.
_OPTIONAL = f"{ROOT}.agents.adapters."


# Both directions of the table, each class as its module and its name there. Computed once, because
# every value written or read asks.
_ENTRIES = [(module, entry.partition("=")) for module, entries in _TABLE.items() for entry in entries.split()]
_PLACES = {f"{ROOT}:{name}": (f"{ROOT}.{module}", cls or name) for module, (name, _, cls) in _ENTRIES}
_NAMES = {place: name for name, place in _PLACES.items()}


def is_ours(cls: type) -> bool:
    """Return whether a class is defined in this library."""
    return cls.__module__.partition(".")[0] == ROOT


def stored_name(cls: type) -> str | None:
    """Return the name one of our classes is stored under; None if it is never stored, or is not ours."""
    return _NAMES.get((cls.__module__, cls.__qualname__))


def find_class(name: str) -> type | None:
    """Return the class of a stored name, loading its module if necessary; None for an unknown name."""
    if name not in _PLACES:
        return None
    module, cls = _PLACES[name]
    if module.startswith(_OPTIONAL) and module not in sys.modules:
        return None
    return getattr(load(module), cls)  # type: ignore[no-any-return]
