"""The conversation of an agent, kept in the state of the run.

Messages are only ever appended, so a commit stores what is new and not the whole conversation again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stepwell.agents.messages import AgentExecutorResponse, AgentResponse, Message, conversation_key
from stepwell.engine.handler.internal_context import internal
from stepwell.graph.context import WorkflowContext

AgentContext = WorkflowContext[AgentExecutorResponse, AgentResponse]


def conversation_of(executor_id: str, ctx: WorkflowContext[Any, Any]) -> list[Message]:
    """Return all messages of an agent's conversation, its own answers included."""
    conversation: list[Message] = ctx.get_state(conversation_key(executor_id), [])
    return conversation


def length_of(executor_id: str, ctx: WorkflowContext[Any, Any]) -> int:
    """Count the messages of an agent's conversation without decoding them."""
    return internal(ctx).state_length(conversation_key(executor_id))


def hear(executor_id: str, messages: Sequence[Message], ctx: WorkflowContext[Any, Any]) -> None:
    """Append messages to the conversation, except those whose id is already in it."""
    # The conversation is decoded only if an id could be in it: a message from outside has none yet.
    any_ids = any(message.id is not None for message in messages)
    heard = {message.id for message in conversation_of(executor_id, ctx)} if any_ids else set()
    _append(executor_id, [message for message in messages if message.id is None or message.id not in heard], ctx)


def say(executor_id: str, messages: Sequence[Message], ctx: WorkflowContext[Any, Any]) -> list[Message]:
    """Append the agent's own messages, with it as their author, and return them as they were stored."""
    # An agent may return a message it was sent; as its own message it needs an id of its own.
    signed = [replace(message, author_name=message.author_name or executor_id, id=None) for message in messages]
    return _append(executor_id, signed, ctx)


def forget(executor_id: str, ctx: WorkflowContext[Any, Any]) -> None:
    """Delete the conversation."""
    if ctx.get_state(conversation_key(executor_id)) is not None:
        ctx.delete_state(conversation_key(executor_id))


def _append(executor_id: str, messages: Sequence[Message], ctx: WorkflowContext[Any, Any]) -> list[Message]:
    before = length_of(executor_id, ctx)
    # Ids are derived from the delivery, not random: a repeated handler call assigns the same ones.
    identified = [
        replace(message, id=message.id or f"{ctx.idempotency_key}/{before + n}") for n, message in enumerate(messages)
    ]
    ctx.append_state(conversation_key(executor_id), *identified)
    return identified


async def send_on(response: AgentExecutorResponse, ctx: AgentContext) -> None:
    """Yield an agent's answer as an output, and send it to the executors after the agent, if any."""
    await ctx.yield_output(response.agent_response)
    # An agent at the end of a graph has no edge, and sending without one would fail the run.
    if any(response.executor_id in edge.sources for edge in internal(ctx).scope.graph.edges):
        await ctx.send_message(response)
