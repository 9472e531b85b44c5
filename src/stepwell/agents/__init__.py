"""Agents in workflows: what an agent must look like, an agent as an executor, agents of other libraries."""

from .adapting import agent_of, is_agent
from .asking import (
    AgentInputRequest,
    AgentInputResponse,
    BudgetRequest,
    BudgetResponse,
    ToolApprovalRequest,
    ToolApprovalResponse,
    ToolOutcomeRequest,
    ToolOutcomeResponse,
)
from .budget import Budget
from .calling import CurrentToolCall, current_tool_call
from .executor import AgentExecutor
from .function import FunctionAgent
from .protocol import Agent
from .replies import Answer, ModelReply, ToolCall
from .scripted import Asks, Calls, Fails, Says, ScriptedAgent
from .turn import Interrupted, Turn
from .values import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    AgentResponseUpdate,
    Message,
    Usage,
    UserInputRequest,
    conversation_key,
    messages_of,
    usage_in,
)

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
