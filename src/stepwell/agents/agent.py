"""The `Agent` protocol: what an object must offer to take part in a workflow."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from stepwell.agents.replies import Answer
from stepwell.agents.turn import Turn


@runtime_checkable
class Agent(Protocol):
    """Anything with a name that can take a turn.

    `take_turn` reads the turn (the messages to answer, the state its last turn left behind), calls
    its model and its tools through the turn, so that no call is repeated after a crash, and returns its answer.
    It may be called again for the same turn, after a crash or once a person has responded: calls
    that were already made then return their stored results.
    """

    @property
    def name(self) -> str | None: ...

    async def take_turn(self, turn: Turn) -> Answer: ...
