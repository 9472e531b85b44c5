"""Compiled graphs of LangGraph."""

from stepwell.agents.adapters.langgraph.graph import adapted

__all__ = ["adapted"]
