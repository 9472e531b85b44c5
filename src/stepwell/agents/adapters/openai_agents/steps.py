"""What the copies of the agents of a turn have in common, and which part of the turn is under way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from agents import FunctionTool

from stepwell.agents.messages import Usage, total
from stepwell.agents.replies import ToolCall
from stepwell.agents.requests import ToolApprovalResponse
from stepwell.agents.turn import Turn
from stepwell.errors import StepwellError


class TurnAborted(BaseException):
    """A promise of Stepwell cannot be kept. Not an Exception: the SDK would tell the model of it, and carry on."""

    def __init__(self, error: StepwellError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(eq=False)
class Steps:
    """What the copies of a turn have in common."""

    turn: Turn
    calls: dict[str, ToolCall] = field(default_factory=dict)  # that models wanted in this turn, by id
    last_input: list[Any] = field(default_factory=list)  # what the model was asked last
    decisions: dict[str, ToolApprovalResponse] = field(default_factory=dict)  # about calls that the SDK held back
    paused: dict[str, dict[str, Any]] = field(default_factory=dict)  # calls in whose middle the SDK had to wait
    usage: dict[str, Usage] = field(default_factory=dict)  # by the part of the turn

    def count(self, part: str, usage: Usage) -> None:
        self.usage[part] = self.usage.get(part, Usage()) + usage

    async def usage_in(self, part: str) -> Usage:
        """What was used up in a part of the turn, and in the parts of that; once it is over, it stays the same."""

        async def add_up() -> Usage:
            return total(usage for at, usage in self.usage.items() if f"{at}/".startswith(f"{part}/"))

        usage: Usage = await self.turn.step(f"used in {part}", add_up, within="")
        return usage

    @contextmanager
    def within(self, part: str) -> Iterator[None]:
        """What is called in this block belongs to a part of the turn: the turn itself, or an agent used as a tool."""
        token = PLACE.set((self, part))
        try:
            yield
        finally:
            PLACE.reset(token)


PLACE: ContextVar[tuple[Steps, str] | None] = ContextVar("stepwell_openai_agents_place", default=None)
"""Where we are; None outside of turns, and within a tool, whose call is one step whatever it does."""


@contextmanager
def outside() -> Iterator[None]:
    token = PLACE.set(None)
    try:
        yield
    finally:
        PLACE.reset(token)


class Invoker:
    """What calls the copy of a tool."""

    def __init__(self, tool: FunctionTool, steps: Steps) -> None:
        self.tool, self.steps = tool, steps

    @property
    def always_asks(self) -> bool:
        """Whether each call is asked about, because the tool says so and not a function that decides."""
        return self.tool.needs_approval is True


def id_in(part: str, call_id: str) -> str:
    return f"{part}/{call_id}" if part else call_id
