"""Agent Framework's teams, whose workflows Stepwell runs."""

from __future__ import annotations

import agent_framework_orchestrations as _orchestrations
from agent_framework_orchestrations import (
    MAGENTIC_MANAGER_NAME,
    ORCH_MSG_KIND_INSTRUCTION,
    ORCH_MSG_KIND_NOTICE,
    ORCH_MSG_KIND_TASK_LEDGER,
    ORCH_MSG_KIND_USER_TASK,
    AgentBasedGroupChatOrchestrator,
    AgentOrchestrationOutput,
    AgentRequestInfoResponse,
    BaseGroupChatOrchestrator,
    GroupChatOrchestrator,
    GroupChatRequestMessage,
    GroupChatRequestSentEvent,
    GroupChatResponseReceivedEvent,
    GroupChatSelectionFunction,
    GroupChatState,
    HandoffAgentExecutor,
    HandoffAgentUserRequest,
    HandoffConfiguration,
    HandoffSentEvent,
    MagenticAgentExecutor,
    MagenticContext,
    MagenticManagerBase,
    MagenticOrchestrator,
    MagenticOrchestratorEvent,
    MagenticOrchestratorEventType,
    MagenticPlanReviewRequest,
    MagenticPlanReviewResponse,
    MagenticProgressLedger,
    MagenticProgressLedgerItem,
    MagenticResetSignal,
    OrchestrationState,
    StandardMagenticManager,
    TerminationCondition,
    clean_conversation_for_handoff,
    create_completion_message,
)

from stepwell.compat.agent_framework.adopted_workflow import AdoptingBuilder


class SequentialBuilder(AdoptingBuilder, _orchestrations.SequentialBuilder):
    """A team whose participants work one after the other."""


class ConcurrentBuilder(AdoptingBuilder, _orchestrations.ConcurrentBuilder):
    """A team whose participants work at the same time."""


class GroupChatBuilder(AdoptingBuilder, _orchestrations.GroupChatBuilder):
    """A team whose orchestrator chooses who speaks next."""


class HandoffBuilder(AdoptingBuilder, _orchestrations.HandoffBuilder):
    """A team whose agents hand the conversation over to each other."""


class MagenticBuilder(AdoptingBuilder, _orchestrations.MagenticBuilder):
    """A team whose manager plans, assigns and reviews the work."""


__all__ = [
    "MAGENTIC_MANAGER_NAME",
    "ORCH_MSG_KIND_INSTRUCTION",
    "ORCH_MSG_KIND_NOTICE",
    "ORCH_MSG_KIND_TASK_LEDGER",
    "ORCH_MSG_KIND_USER_TASK",
    "AgentBasedGroupChatOrchestrator",
    "AgentOrchestrationOutput",
    "AgentRequestInfoResponse",
    "BaseGroupChatOrchestrator",
    "ConcurrentBuilder",
    "GroupChatBuilder",
    "GroupChatOrchestrator",
    "GroupChatRequestMessage",
    "GroupChatRequestSentEvent",
    "GroupChatResponseReceivedEvent",
    "GroupChatSelectionFunction",
    "GroupChatState",
    "HandoffAgentExecutor",
    "HandoffAgentUserRequest",
    "HandoffBuilder",
    "HandoffConfiguration",
    "HandoffSentEvent",
    "MagenticAgentExecutor",
    "MagenticBuilder",
    "MagenticContext",
    "MagenticManagerBase",
    "MagenticOrchestrator",
    "MagenticOrchestratorEvent",
    "MagenticOrchestratorEventType",
    "MagenticPlanReviewRequest",
    "MagenticPlanReviewResponse",
    "MagenticProgressLedger",
    "MagenticProgressLedgerItem",
    "MagenticResetSignal",
    "OrchestrationState",
    "SequentialBuilder",
    "StandardMagenticManager",
    "TerminationCondition",
    "clean_conversation_for_handoff",
    "create_completion_message",
]
