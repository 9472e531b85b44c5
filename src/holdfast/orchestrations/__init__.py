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
    "Participant",
    "SequentialBuilder",
    "participants_of",
]
