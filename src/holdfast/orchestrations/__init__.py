"""Teams of agents in well-known shapes, each built into a plain workflow."""

from .participants import DEFAULT_TEAM_ITERATIONS, Participant, participants_of

__all__ = [
    "DEFAULT_TEAM_ITERATIONS",
    "Participant",
    "participants_of",
]
