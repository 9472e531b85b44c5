"""Agents of the OpenAI Agents SDK."""

from .agent import OpenAIAgent, adapted

__all__ = ["OpenAIAgent", "adapted"]
