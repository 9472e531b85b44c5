"""`current_tool_call`: lets a tool find out which call of a run it is serving."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CurrentToolCall:
    """The tool call that is being made."""

    run_id: str
    executor_id: str
    tool: str
    tool_call_id: str
    idempotency_key: str  # the same whenever this call is repeated, and different from every other call


# A context variable, not an argument: tools are functions of the user's, called through agent libraries.
_CURRENT: ContextVar[CurrentToolCall] = ContextVar("stepwell_tool_call")


def current_tool_call() -> CurrentToolCall:
    """Return the tool call being made. Raises RuntimeError outside a tool called by an agent of a run."""
    try:
        return _CURRENT.get()
    except LookupError:
        raise RuntimeError("current_tool_call() was called outside a tool that an agent of a run calls") from None
