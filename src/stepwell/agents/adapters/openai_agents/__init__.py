"""Agents of the OpenAI Agents SDK as agents of a workflow."""

from stepwell.agents.adapters.openai_agents.agent import ADAPTED, OpenAIAgent

__all__ = ["ADAPTED", "OpenAIAgent"]
