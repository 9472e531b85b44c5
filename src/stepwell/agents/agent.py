"""What an agent must look like: one method, which is given a turn and comes to an answer."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from stepwell.agents.replies import Answer
from stepwell.agents.turn import Turn


@runtime_checkable
class Agent(Protocol):
    """Whatever has a name and can take a turn.

    `take_turn` reads the turn (what was said, what it left behind at its last turn), lets its model and its tools be
    called through the turn, so that each call is made once, and gives its answer. It may be called again for
    the same turn, after a crash or once a person has answered: what was done is then recalled, not repeated.
    """

    @property
    def name(self) -> str | None: ...

    async def take_turn(self, turn: Turn) -> Answer: ...
