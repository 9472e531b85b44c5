"""Teams of agents in well-known shapes, each built into a plain workflow."""

from .concurrent import ConcurrentBuilder
from .handoff import HandoffBuilder
from .handoff_agents import HandoffAgentUserRequest, HandoffSentEvent
from .participants import DEFAULT_TEAM_ITERATIONS, Participant, participants_of
from .reviewing import AgentRequestInfoResponse
from .sequential import SequentialBuilder

__all__ = [
    "DEFAULT_TEAM_ITERATIONS",
    "AgentRequestInfoResponse",
    "ConcurrentBuilder",
    "HandoffAgentUserRequest",
    "HandoffBuilder",
    "HandoffSentEvent",
    "Participant",
    "SequentialBuilder",
    "participants_of",
]
