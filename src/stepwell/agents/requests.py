"""What people are asked while an agent works, and how they can respond."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ToolApprovalResponse:
    """The decision about a tool call: make it (perhaps with other arguments), deny it, or supply its result."""

    decision: Literal["approve", "deny", "answer"]
    arguments: dict[str, Any] | None = None  # replace the requested ones
    reason: str = ""  # of a denial; shown to the agent
    result: Any = None  # shown to the agent as the result of the tool


@dataclass(frozen=True, slots=True)
class ToolApprovalRequest:
    """May this agent call this tool with these arguments? The response holds for this one call."""

    agent: str
    tool: str
    arguments: dict[str, Any]
    tool_call_id: str
    description: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)  # JSON schema of the arguments, for an edit form

    def approve(self, arguments: dict[str, Any] | None = None) -> ToolApprovalResponse:
        """Allow the call, with `arguments` in place of the requested ones if given."""
        return ToolApprovalResponse("approve", arguments=arguments)

    def deny(self, reason: str = "") -> ToolApprovalResponse:
        """Refuse the call; the agent sees the reason and continues."""
        return ToolApprovalResponse("deny", reason=reason)

    def answer(self, result: Any) -> ToolApprovalResponse:
        """Return `result` to the agent without calling the tool."""
        return ToolApprovalResponse("answer", result=result)


@dataclass(frozen=True, slots=True)
class ToolOutcomeResponse:
    """What became of a tool call whose result was lost."""

    happened: Literal["ran", "did not run", "retry"]
    result: Any = None


@dataclass(frozen=True, slots=True)
class ToolOutcomeRequest:
    """Did this tool run? It must not be repeated, and the process died or the tool failed during the call."""

    agent: str
    tool: str
    arguments: dict[str, Any]
    tool_call_id: str
    idempotency_key: str  # the key the tool was called with: look it up in the system the tool acts on

    def ran(self, result: Any = None) -> ToolOutcomeResponse:
        """Confirm that it ran, with this result."""
        return ToolOutcomeResponse("ran", result)

    def did_not_run(self) -> ToolOutcomeResponse:
        """Confirm that it did not run, so that it is called now."""
        return ToolOutcomeResponse("did not run")

    def retry(self) -> ToolOutcomeResponse:
        """Call it again although nobody knows whether it ran."""
        return ToolOutcomeResponse("retry")


BudgetKind = Literal["tokens", "calls", "cost", "seconds"]


@dataclass(frozen=True, slots=True)
class BudgetResponse:
    """The new limit. If it does not exceed what was spent, the request is repeated."""

    limit: float


@dataclass(frozen=True, slots=True)
class BudgetRequest:
    """A budget is exhausted and the agent has stopped: what is the new limit?"""

    agent: str
    budget: BudgetKind
    limit: float
    spent: float
    whole_run: bool  # whether all agents of the run count, or this one alone

    def raise_to(self, limit: float) -> BudgetResponse:
        """Let the agent continue up to this limit."""
        return BudgetResponse(limit)


@dataclass(frozen=True, slots=True)
class AgentInputResponse:
    """The response to a question an agent asked."""

    value: Any


@dataclass(frozen=True, slots=True)
class AgentInputRequest:
    """A question that the agent itself asks."""

    agent: str
    data: Any
    response_schema: dict[str, Any] = field(default_factory=dict)  # JSON schema of the expected value
    problem: str = ""  # why an earlier response was rejected

    def answer(self, value: Any) -> AgentInputResponse:
        """Respond with `value`."""
        return AgentInputResponse(value)


TurnRequest = ToolApprovalRequest | ToolOutcomeRequest | BudgetRequest | AgentInputRequest
TurnResponse = ToolApprovalResponse | ToolOutcomeResponse | BudgetResponse | AgentInputResponse

RESPONSE_TYPES: dict[type, type] = {
    ToolApprovalRequest: ToolApprovalResponse,
    ToolOutcomeRequest: ToolOutcomeResponse,
    BudgetRequest: BudgetResponse,
    AgentInputRequest: AgentInputResponse,
}


def denial(reason: str) -> str:
    """Return the result that an agent sees for a tool call that was denied."""
    return f"The call was denied: {reason}" if reason else "The call was denied."
