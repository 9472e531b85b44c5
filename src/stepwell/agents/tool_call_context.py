"""The tool call that is being made, for the tool itself."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CurrentToolCall:
    """Which call of a tool this is."""

    run_id: str
    executor_id: str
    tool: str
    tool_call_id: str
    idempotency_key: str  # the same whenever this very call is made again, and for no other call anywhere


_CURRENT: ContextVar[CurrentToolCall] = ContextVar("stepwell_tool_call")


def current_tool_call() -> CurrentToolCall:
    """Inside a tool that an agent of a run calls: which call it is. Raises RuntimeError anywhere else."""
    try:
        return _CURRENT.get()
    except LookupError:
        raise RuntimeError("current_tool_call was asked outside a tool that an agent of a run calls") from None
