"""Agents in workflows: the agent protocol, the executor that runs agents, adapters for other libraries."""

from stepwell.agents.agent_types import Agent, FunctionAgent, agent_of, is_agent
from stepwell.agents.executor import AgentExecutor
from stepwell.agents.messages import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    AgentResponseUpdate,
    Answer,
    CurrentToolCall,
    Message,
    ModelReply,
    ToolCall,
    Usage,
    UserInputRequest,
    conversation_key,
    current_tool_call,
    messages_of,
    usage_in,
)
from stepwell.agents.requests import (
    AgentInputRequest,
    AgentInputResponse,
    BudgetRequest,
    BudgetResponse,
    ToolApprovalRequest,
    ToolApprovalResponse,
    ToolOutcomeRequest,
    ToolOutcomeResponse,
)
from stepwell.agents.scripted import Asks, Calls, Fails, Says, ScriptedAgent
from stepwell.agents.turn import Interrupted, Turn
from stepwell.agents.turn_input import Budget

__all__ = [
    "Agent",
    "AgentExecutor",
    "AgentExecutorRequest",
    "AgentExecutorResponse",
    "AgentInputRequest",
    "AgentInputResponse",
    "AgentResponse",
    "AgentResponseUpdate",
    "Answer",
    "Asks",
    "Budget",
    "BudgetRequest",
    "BudgetResponse",
    "Calls",
    "CurrentToolCall",
    "Fails",
    "FunctionAgent",
    "Interrupted",
    "Message",
    "ModelReply",
    "Says",
    "ScriptedAgent",
    "ToolApprovalRequest",
    "ToolApprovalResponse",
    "ToolCall",
    "ToolOutcomeRequest",
    "ToolOutcomeResponse",
    "Turn",
    "Usage",
    "UserInputRequest",
    "agent_of",
    "conversation_key",
    "current_tool_call",
    "is_agent",
    "messages_of",
    "usage_in",
]
