"""Agents of the OpenAI Agents SDK as agents of a workflow."""

from stepwell.agents.adapters.openai_agents.agent import OpenAIAgent, adapt

__all__ = ["OpenAIAgent", "adapt"]
