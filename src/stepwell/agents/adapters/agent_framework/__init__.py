"""Agents of Agent Framework."""

from stepwell.agents.adapters.agent_framework.agent import ADAPTED, AgentFrameworkAgent, RunnableAgent

__all__ = ["ADAPTED", "AgentFrameworkAgent", "RunnableAgent"]
