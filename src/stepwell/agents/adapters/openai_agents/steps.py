"""State shared by the copied agents, models and tools of a turn, and the part of the turn under way."""

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
    """Carries an error of Stepwell through the SDK.

    It is not an Exception, because the SDK would report that to the model and continue.
    """

    def __init__(self, error: StepwellError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(eq=False)
class Steps:
    """The shared state of a turn."""

    turn: Turn
    calls: dict[str, ToolCall] = field(default_factory=dict)  # requested by models in this turn, by id
    last_input: list[Any] = field(default_factory=list)  # of the latest model call
    decisions: dict[str, ToolApprovalResponse] = field(default_factory=dict)  # on calls the SDK held back
    # Arguments of calls of agents used as tools that wait for an approval inside.
    paused: dict[str, dict[str, Any]] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)  # by the part of the turn

    def add_usage(self, part: str, usage: Usage) -> None:
        self.usage[part] = self.usage.get(part, Usage()) + usage

    async def usage_within(self, part: str) -> Usage:
        """Return the usage of a part of the turn and of the parts inside it, as of the first call."""
        # A step, so that the usage of a part that is recalled as a whole is recalled with it.

        async def add_up() -> Usage:
            return total(usage for at, usage in self.usage.items() if f"{at}/".startswith(f"{part}/"))

        usage: Usage = await self.turn.step(f"used in {part}", add_up, within="")
        return usage


PLACE: ContextVar[tuple[Steps, str] | None] = ContextVar("stepwell_openai_agents_place", default=None)
"""The turn and its part under way; None outside turns, and inside a tool, whose call is one step."""


@contextmanager
def at_place(steps: Steps | None, part: str = "") -> Iterator[None]:
    """Make the calls in this block part of the turn itself (""), or of an agent used as a tool.

    Without `steps`, they stay out of the turn.
    """
    token = PLACE.set(None if steps is None else (steps, part))
    try:
        yield
    finally:
        PLACE.reset(token)


class Invoker:
    """The `on_invoke_tool` of a copied tool."""

    def __init__(self, tool: FunctionTool, steps: Steps) -> None:
        self.tool, self.steps = tool, steps

    @property
    def always_asks(self) -> bool:
        """Whether every call needs approval, as opposed to those that a function picks."""
        return self.tool.needs_approval is True


def id_in(part: str, call_id: str) -> str:
    """Return a call id that is unique in the whole turn, not only in its part."""
    return f"{part}/{call_id}" if part else call_id
