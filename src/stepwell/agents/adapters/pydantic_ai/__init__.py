"""Agents of pydantic-ai, in two ways.

`PydanticAIAgent` makes an agent an executor of a graph, with Stepwell's conversations, approvals and budgets;
a builder applies it to agents by itself. `StepwellDurability` is a durability engine in the sense of
`pydantic_ai.durable_exec`: an agent that has it is used as ever, inside a durable function or a handler.
"""

from stepwell.agents.adapters.pydantic_ai.agent import ADAPTED, PydanticAIAgent, RichReturn, ToolFailure
from stepwell.agents.adapters.pydantic_ai.durability import StepConfig, StepwellDurability

__all__ = ["ADAPTED", "PydanticAIAgent", "RichReturn", "StepConfig", "StepwellDurability", "ToolFailure"]
