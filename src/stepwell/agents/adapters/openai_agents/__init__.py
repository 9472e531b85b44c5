"""Agents of the OpenAI Agents SDK."""

from stepwell.agents.adapters.openai_agents.agent import OpenAIAgent, adapted

__all__ = ["OpenAIAgent", "adapted"]
