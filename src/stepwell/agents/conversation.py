"""The conversation of an agent in the state of a run: what it hears and says is appended, never written anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stepwell.agents.messages import AgentExecutorResponse, AgentResponse, Message, conversation_key
from stepwell.engine.handler_context import HandlerContext
from stepwell.graph.context import WorkflowContext

AgentContext = WorkflowContext[AgentExecutorResponse, AgentResponse]


def conversation_of(executor_id: str, ctx: WorkflowContext[Any, Any]) -> list[Message]:
    """Everything that an agent has heard and said."""
    conversation: list[Message] = ctx.get_state(conversation_key(executor_id), [])
    return conversation


def length_of(executor_id: str, ctx: WorkflowContext[Any, Any]) -> int:
    """How many messages an agent has heard and said; cheaper than reading them."""
    assert isinstance(ctx, HandlerContext)
    return ctx.state_length(conversation_key(executor_id))


def hear(executor_id: str, messages: Sequence[Message], ctx: WorkflowContext[Any, Any]) -> None:
    """Add what is new to the conversation. Messages have ids: what was heard before is not heard again."""
    any_ids = any(message.id is not None for message in messages)
    heard = {message.id for message in conversation_of(executor_id, ctx)} if any_ids else set()
    _append(executor_id, [message for message in messages if message.id is None or message.id not in heard], ctx)


def say(executor_id: str, messages: Sequence[Message], ctx: WorkflowContext[Any, Any]) -> list[Message]:
    """Add what the agent says itself, signed; gives it as it is in the conversation."""
    signed = [replace(message, author_name=message.author_name or executor_id, id=None) for message in messages]
    return _append(executor_id, signed, ctx)


def forget(executor_id: str, ctx: WorkflowContext[Any, Any]) -> None:
    """Begin the conversation anew."""
    if ctx.get_state(conversation_key(executor_id)) is not None:
        ctx.delete_state(conversation_key(executor_id))


def _append(executor_id: str, messages: Sequence[Message], ctx: WorkflowContext[Any, Any]) -> list[Message]:
    before = length_of(executor_id, ctx)
    identified = [
        replace(message, id=message.id or f"{ctx.idempotency_key}/{before + n}") for n, message in enumerate(messages)
    ]
    ctx.append_state(conversation_key(executor_id), *identified)
    return identified


async def send_on(response: AgentExecutorResponse, ctx: AgentContext) -> None:
    """An agent has answered: its answer is an output, and goes to whoever comes after it."""
    await ctx.yield_output(response.agent_response)
    assert isinstance(ctx, HandlerContext)
    if any(response.executor_id in edge.sources for edge in ctx.scope.graph.edges):
        await ctx.send_message(response)
