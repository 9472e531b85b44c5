"""Teams of agents in well-known shapes, each built into a plain workflow."""

from .concurrent import ConcurrentBuilder
from .group_chat import GroupChatBuilder
from .group_chat_orchestrator import GroupChatOrchestrator
from .group_chat_values import (
    AgentOrchestrationOutput,
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatRequestSentEvent,
    GroupChatResponseMessage,
    GroupChatResponseReceivedEvent,
    GroupChatState,
)
from .handoff import HandoffBuilder
from .handoff_agents import HandoffAgentUserRequest, HandoffSentEvent
from .magentic import MagenticBuilder
from .magentic_managers import MagenticContext, MagenticManagerBase, StandardMagenticManager
from .magentic_orchestrator import MagenticOrchestrator
from .magentic_values import (
    MagenticOrchestratorEvent,
    MagenticOrchestratorEventType,
    MagenticPlanReviewRequest,
    MagenticPlanReviewResponse,
    MagenticProgressLedger,
    MagenticProgressLedgerItem,
    MagenticTaskLedger,
)
from .participants import DEFAULT_TEAM_ITERATIONS, Participant, participants_of
from .reviewing import AgentRequestInfoResponse
from .sequential import SequentialBuilder

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
