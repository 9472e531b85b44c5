"""The names under which classes of this library are stored: `stepwell:Message`, wherever the class lives.

Stored data says what a value is, not which file defines it, so a module may be renamed or split without touching a
stored byte. A name in this table is part of the storage format: it is never given to another class, and never changed.
`Name=Class` gives a stored name to a class whose own name would be ambiguous or has changed.

Reading never imports a module because data says so: the modules it may load are those of this table.
"""

from __future__ import annotations

import sys

from stepwell.durable.modules import ROOT, load

_CLASSES = {
    "agents.adapters.pydantic_ai": "PydanticAIReturn=RichReturn PydanticAIToolFailure=ToolFailure",
    "agents.asking": """
        AgentInputRequest AgentInputResponse BudgetRequest BudgetResponse
        ToolApprovalRequest ToolApprovalResponse ToolOutcomeRequest ToolOutcomeResponse""",
    "agents.budget": "Budget",
    "agents.calling": "CurrentToolCall",
    "agents.executor": "OpenTurn AgentProgress=Stand",
    "agents.replies": "Answer ModelReply ToolCall",
    "agents.scripted": "Asks Calls Fails Says",
    "agents.turn": "Interrupted ToolDone",
    "agents.values": """
        AgentExecutorRequest AgentExecutorResponse AgentResponse AgentResponseUpdate
        Message Usage UserInputRequest""",
    "core.errors": """
        CannotUnseal CheckpointCorrupt CheckpointMissing CodecError CommitConflict DefinitionError DurabilityError
        GraphChanged HandlerFailed HandlerTimeout InputMismatch MigrationFailed NewerFormat PrivateMissing
        RequestError RequestExpired ResponseRejected RoutingFailed RunBusy RunError StateConflict StepChanged
        StepFailed StepwellError StoreUnavailable SuperstepLimit UnknownRequest""",
    "core.events": "CheckpointInfo WorkflowErrorDetails WorkflowEventSource WorkflowRunState",
    "core.model": "Retention RepliedRequest=Reply",
    "declarative.conditions": "ConditionFailed",
    "declarative.conductor": "WorkflowBegun=Begun",
    "declarative.deciding": """
        EdgeTraversed=Traversed NodeLayer=Layer NodeProgress=Stand NodeSkipped=Skipped NodesDecision=Decision""",
    "declarative.definition": "Approval Definition Edge Node Retries",
    "declarative.errors": "LoopLimit MissingInput OutputRejected WorkflowTimeout",
    "declarative.events": """
        AgentEvent ApprovalRequestedEvent WorkflowAgentCompletedEvent WorkflowAgentSkippedEvent
        WorkflowAgentStartedEvent WorkflowCompletedEvent WorkflowDiagnosticEvent WorkflowEdgeTraversedEvent
        WorkflowLayerCompletedEvent WorkflowLayerStartedEvent WorkflowStartedEvent""",
    "declarative.instance": "AgentWorkflowResult",
    "declarative.messages": """
        BeginWorkflow=Begin NodesDecided=Decided NodeDone=Done RunNode=Go
        NodeApprovalRequest NodeApprovalResponse NodeOutcome=Outcome""",
    "declarative.node": "NodeWork=Working",
    "durable.checkpoint": "WorkflowCheckpoint WorkflowMessage",
    "durable.due": "DueRun",
    "durable.pending": "PendingRequest",
    "durable.ports": "ListedRequest=Pending ListedRun=RunEntry RunMetadata=About",
    "durable.runs": "RunInfo",
    "graph.nested": "SubWorkflowRequest SubWorkflowRequestMessage SubWorkflowResponseMessage",
    "graph.policy": "RetryPolicy",
    "operating.cancelling": "Cancelled",
    "operating.checking": "Checked CheckedRun",
    "operating.comparing": "Change",
    "operating.differing": "Difference NotForked",
    "operating.drawing": "Progress",
    "operating.editing": "EditRefused",
    "operating.exporting": "Exported",
    "operating.findings": "Examined Finding",
    "operating.import_errors": "ImportRefused",
    "operating.importing": "Imported",
    "operating.keeping": "Keep",
    "operating.naming": "Ambiguous NotFound",
    "operating.pruning": "PruneReport",
    "operating.questions": "Question",
    "operating.searching": "Holding",
    "orchestrations.group_chat_values": """
        AgentOrchestrationOutput GroupChatParticipantMessage GroupChatProgress GroupChatRequestMessage
        GroupChatRequestSentEvent GroupChatResponseMessage GroupChatResponseReceivedEvent GroupChatState
        NotADecision""",
    "orchestrations.handoff_agents": "HandoffAgentUserRequest HandoffSentEvent",
    "orchestrations.magentic_managers": "MagenticContext",
    "orchestrations.magentic_values": """
        MagenticContinue=MagenticGoOn MagenticOrchestratorEvent MagenticOrchestratorEventType
        MagenticPlanReviewRequest MagenticPlanReviewResponse MagenticProgress=MagenticStand MagenticProgressLedger
        MagenticProgressLedgerItem MagenticTaskLedger""",
    "orchestrations.reviewing": "AgentRequestInfoResponse",
    "testing.crashing": "Crash",
    "testing.everywhere": "CrashReport",
    "testing.trial": "NotTheSame",
    "workflow.agent": "AgentSession",
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
