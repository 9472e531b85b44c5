"""Compiled LangGraph graphs as agents."""

from stepwell.agents.adapters.langgraph.graph import adapt

__all__ = ["adapt"]
