"""The names under which classes of this library are stored: `stepwell:Message`, wherever the class lives.

Stored data says what a value is, not which file defines it, so a module may be renamed or split without touching a
stored byte. A name in this table is part of the storage format: it is never given to another class, and never changed.
`Name=Class` gives a stored name to a class whose own name would be ambiguous or has changed.

Reading never imports a module because data says so: the modules it may load are those of this table.
"""

from __future__ import annotations

import sys

from stepwell.codec.modules import ROOT, load

_CLASSES = {
    "agents.adapters.pydantic_ai": "PydanticAIReturn=RichReturn PydanticAIToolFailure=ToolFailure",
    "agents.requests": """
        AgentInputRequest AgentInputResponse BudgetRequest BudgetResponse
        ToolApprovalRequest ToolApprovalResponse ToolOutcomeRequest ToolOutcomeResponse""",
    "agents.budget": "Budget",
    "agents.tool_call_context": "CurrentToolCall",
    "agents.executor": "OpenTurn AgentProgress",
    "agents.replies": "Answer ModelReply ToolCall",
    "agents.scripted": "Asks Calls Fails Says",
    "agents.turn": "Interrupted ToolDone",
    "agents.messages": """
        AgentExecutorRequest AgentExecutorResponse AgentResponse AgentResponseUpdate
        Message Usage UserInputRequest""",
    "errors": """
        CannotUnseal CheckpointCorrupt CheckpointMissing CodecError CommitConflict DefinitionError DurabilityError
        GraphChanged HandlerFailed HandlerTimeout InputMismatch MigrationFailed NewerFormat PrivateMissing
        RequestError RequestExpired ResponseRejected RoutingFailed RunBusy RunError StateConflict StepChanged
        StepFailed StepwellError StoreUnavailable SuperstepLimit UnknownRequest""",
    "model.event": "CheckpointInfo WorkflowErrorDetails WorkflowEventSource WorkflowRunState",
    "model.superstep": "Retention RepliedRequest=Reply",
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
    "storage.checkpoint": "WorkflowCheckpoint WorkflowMessage",
    "storage.due_runs": "DueRun",
    "storage.pending_requests": "PendingRequest",
    "storage.port": "ListedRequest=Pending ListedRun=RunEntry RunMetadata=About",
    "storage.run_list": "RunInfo",
    "graph.subworkflow": "SubWorkflowRequest SubWorkflowRequestMessage SubWorkflowResponseMessage",
    "graph.retry": "RetryPolicy",
    "admin.cancellation": "Cancelled",
    "admin.deploy_check": "Checked CheckedRun",
    "admin.diffs.json_diff": "Change",
    "admin.diffs.checkpoints": "Difference NotForked",
    "admin.report.drawing": "Progress",
    "admin.state_edits": "EditRefused",
    "admin.transfer.exporter": "Exported",
    "admin.doctor.findings": "Examined Finding",
    "admin.transfer.import_errors": "ImportRefused",
    "admin.transfer.importer": "Imported",
    "admin.retention.policy": "Keep",
    "admin.lookup": "Ambiguous NotFound",
    "admin.retention.pruner": "PruneReport",
    "admin.requests": "Question",
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
    "testing.trial": "NotTheSame",
    "workflows.workflow_agent": "AgentSession",
}
_OPTIONAL = f"{ROOT}.agents.adapters."  # loaded by programs that have the libraries they adapt, never by reading

_classes: dict[str, tuple[str, str]] = {}  # by stored name: module and class
_names: dict[tuple[str, str], str] = {}  # the other way round

for _module, _entries in _CLASSES.items():
    for _entry in _entries.split():
        _name, _, _class = _entry.partition("=")
        _place = f"{ROOT}.{_module}", _class or _name
        _classes[f"{ROOT}:{_name}"], _names[_place] = _place, f"{ROOT}:{_name}"


def is_ours(cls: type) -> bool:
    """Whether a class is defined in this library."""
    return cls.__module__.partition(".")[0] == ROOT


def stored_name(cls: type) -> str | None:
    """The name a class of ours is stored under; None if it is not stored, or is not ours."""
    return _names.get((cls.__module__, cls.__qualname__))


def find_class(name: str) -> type | None:
    """The class of a stored name, its module loaded if it must be; None if the name is not in the table."""
    if name not in _classes:
        return None
    module, cls = _classes[name]
    if module.startswith(_OPTIONAL) and module not in sys.modules:
        return None
    return getattr(load(module), cls)  # type: ignore[no-any-return]
