"""How Agent Framework's own values are stored: messages and their contents, answers of agents, requests."""

from __future__ import annotations

from agent_framework import (
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    Message,
    WorkflowEvent,
)

from stepwell.codec.attributes import register_attributes

# What a service's library returned, and the class that an answer is parsed as: objects of a process, not data.
_OF_THIS_PROCESS = dict.fromkeys(("raw_representation", "_response_format"))


def register_types() -> None:
    """Let every codec of this process store the framework's values, by their attributes."""
    for cls in (AgentResponse, AgentResponseUpdate, ChatResponse, ChatResponseUpdate, Content, Message):
        register_attributes(cls, omitted=_OF_THIS_PROCESS)
    register_attributes(AgentSession)
    # A request of a sub-workflow travels in a message of its caller. The classes it names are found again by its
    # executor, which checks the response.
    register_attributes(WorkflowEvent, omitted={"_request_type": object, "_response_type": object})
