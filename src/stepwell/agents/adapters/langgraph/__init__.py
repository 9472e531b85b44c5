"""Compiled graphs of LangGraph."""

from stepwell.agents.adapters.langgraph.graph import adapt

__all__ = ["adapt"]
