"""Teams of agents in well-known shapes, each built into a plain workflow."""

from .concurrent import ConcurrentBuilder
from .participants import DEFAULT_TEAM_ITERATIONS, Participant, participants_of
from .reviewing import AgentRequestInfoResponse
from .sequential import SequentialBuilder

__all__ = [
    "DEFAULT_TEAM_ITERATIONS",
    "AgentRequestInfoResponse",
    "ConcurrentBuilder",
    "Participant",
    "SequentialBuilder",
    "participants_of",
]
