"""Compiled LangGraph graphs as agents."""

from stepwell.agents.adapters.langgraph.graph import ADAPTED

__all__ = ["ADAPTED"]
