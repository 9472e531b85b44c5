"""What is asked of a person while an agent works, and what the person can say to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ToolApprovalResponse:
    """What is to become of a tool call: it is made (perhaps with other arguments), refused, or answered instead."""

    decision: Literal["approve", "deny", "answer"]
    arguments: dict[str, Any] | None = None  # instead of those that were asked about
    reason: str = ""  # of a denial; the agent is told
    result: Any = None  # what the agent is told the tool gave


@dataclass(frozen=True, slots=True)
class ToolApprovalRequest:
    """May this agent call this tool with these arguments? The answer holds for this very call, once."""

    agent: str
    tool: str
    arguments: dict[str, Any]
    tool_call_id: str
    description: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)  # the JSON schema of the arguments: a form for editing

    def approve(self, arguments: dict[str, Any] | None = None) -> ToolApprovalResponse:
        """Yes; with `arguments`, yes but with these."""
        return ToolApprovalResponse("approve", arguments=arguments)

    def deny(self, reason: str = "") -> ToolApprovalResponse:
        """No; the agent goes on and is told why."""
        return ToolApprovalResponse("deny", reason=reason)

    def answer(self, result: Any) -> ToolApprovalResponse:
        """The tool is not called; the agent is told it gave this."""
        return ToolApprovalResponse("answer", result=result)


@dataclass(frozen=True, slots=True)
class ToolOutcomeResponse:
    """What became of a tool call whose result was lost."""

    happened: Literal["ran", "did not run", "retry"]
    result: Any = None


@dataclass(frozen=True, slots=True)
class ToolOutcomeRequest:
    """A tool that must not be repeated had been called, and then the process died or the tool failed: did it run?"""

    agent: str
    tool: str
    arguments: dict[str, Any]
    tool_call_id: str
    idempotency_key: str  # what the tool was given: look it up where the tool acts

    def ran(self, result: Any = None) -> ToolOutcomeResponse:
        """It ran, and gave this."""
        return ToolOutcomeResponse("ran", result)

    def did_not_run(self) -> ToolOutcomeResponse:
        """It did not run: it is called now."""
        return ToolOutcomeResponse("did not run")

    def retry(self) -> ToolOutcomeResponse:
        """Nobody knows; call it again all the same."""
        return ToolOutcomeResponse("retry")


BudgetKind = Literal["tokens", "calls", "cost", "seconds"]


@dataclass(frozen=True, slots=True)
class BudgetResponse:
    """The new limit. If it is not above what was spent, the question is asked again."""

    limit: float


@dataclass(frozen=True, slots=True)
class BudgetRequest:
    """A budget is used up, and the run has stopped where it was: how far may it go?"""

    agent: str
    budget: BudgetKind
    limit: float
    spent: float
    whole_run: bool  # counted over all agents of the run, or for this one alone

    def raise_to(self, limit: float) -> BudgetResponse:
        """Go on up to this limit."""
        return BudgetResponse(limit)


@dataclass(frozen=True, slots=True)
class AgentInputResponse:
    """The answer to what an agent asked."""

    value: Any


@dataclass(frozen=True, slots=True)
class AgentInputRequest:
    """An agent asks something of its own."""

    agent: str
    data: Any
    response_schema: dict[str, Any] = field(default_factory=dict)  # JSON schema of the value it wants
    problem: str = ""  # why an earlier answer would not do

    def answer(self, value: Any) -> AgentInputResponse:
        """Here it is."""
        return AgentInputResponse(value)


Question = ToolApprovalRequest | ToolOutcomeRequest | BudgetRequest | AgentInputRequest
Reply = ToolApprovalResponse | ToolOutcomeResponse | BudgetResponse | AgentInputResponse

ANSWERED_BY: dict[type, type] = {
    ToolApprovalRequest: ToolApprovalResponse,
    ToolOutcomeRequest: ToolOutcomeResponse,
    BudgetRequest: BudgetResponse,
    AgentInputRequest: AgentInputResponse,
}
