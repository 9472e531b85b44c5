"""A run of an agent that thinks, calls a tool with and without approval, and answers."""

from __future__ import annotations

from typing import Any

from stepwell import Workflow, WorkflowBuilder
from stepwell.agents import AgentExecutor, Budget, Usage
from stepwell.agents.scripted import Calls, ScriptedAgent

LONG = "x" * 5000


def look_up(order: int) -> dict[str, Any]:
    return {"order": order, "price": 900, "note": LONG}


def refund(order: int, amount: int) -> str:
    return f"refunded {amount}"


def price(usage: Usage) -> float:
    return usage.tokens * 0.001


def clerking(storage: Any, *, budget: Budget | None = None, tools: dict[str, Any] | None = None) -> Workflow:
    """Looks an order up, refunds it if a person approves, and says so."""
    clerk = ScriptedAgent(
        "clerk",
        [
            Calls(("look_up", {"order": 7}), text="let me see"),
            Calls(("refund", {"order": 7, "amount": 900})),
            "it is refunded",
        ],
        tools=tools or {"look_up": look_up, "refund": refund},
        approve=["refund"],
    )
    agent = AgentExecutor(clerk, budget=budget, price=price)
    return WorkflowBuilder(name="clerking", start_executor=agent, checkpoint_storage=storage).build()
