"""Builders for teams of agents in well-known patterns; each team becomes an ordinary workflow."""

from stepwell.orchestrations.concurrent import ConcurrentBuilder
from stepwell.orchestrations.group_chat.builder import GroupChatBuilder
from stepwell.orchestrations.group_chat.orchestrator import GroupChatOrchestrator
from stepwell.orchestrations.group_chat.values import (
    AgentOrchestrationOutput,
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatRequestSentEvent,
    GroupChatResponseMessage,
    GroupChatResponseReceivedEvent,
    GroupChatState,
)
from stepwell.orchestrations.handoff.agents import HandoffAgentUserRequest, HandoffSentEvent
from stepwell.orchestrations.handoff.builder import HandoffBuilder
from stepwell.orchestrations.magentic.builder import MagenticBuilder
from stepwell.orchestrations.magentic.managers import MagenticContext, MagenticManagerBase, StandardMagenticManager
from stepwell.orchestrations.magentic.orchestrator import MagenticOrchestrator
from stepwell.orchestrations.magentic.values import (
    MagenticOrchestratorEvent,
    MagenticOrchestratorEventType,
    MagenticPlanReviewRequest,
    MagenticPlanReviewResponse,
    MagenticProgressLedger,
    MagenticProgressLedgerItem,
    MagenticTaskLedger,
)
from stepwell.orchestrations.participants import DEFAULT_TEAM_ITERATIONS, Participant, participants_of
from stepwell.orchestrations.review import AgentRequestInfoResponse
from stepwell.orchestrations.sequential import SequentialBuilder

__all__ = [
    "DEFAULT_TEAM_ITERATIONS",
    "AgentOrchestrationOutput",
    "AgentRequestInfoResponse",
    "ConcurrentBuilder",
    "GroupChatBuilder",
    "GroupChatOrchestrator",
    "GroupChatParticipantMessage",
    "GroupChatRequestMessage",
    "GroupChatRequestSentEvent",
    "GroupChatResponseMessage",
    "GroupChatResponseReceivedEvent",
    "GroupChatState",
    "HandoffAgentUserRequest",
    "HandoffBuilder",
    "HandoffSentEvent",
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
    "MagenticTaskLedger",
    "Participant",
    "SequentialBuilder",
    "StandardMagenticManager",
    "participants_of",
]
