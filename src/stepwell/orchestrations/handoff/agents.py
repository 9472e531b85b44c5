"""The executor of an agent in a handoff team: after each answer it hands over, continues, or asks the user."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from stepwell.agents.conversation import conversation_of, length_of
from stepwell.agents.executor import AgentExecutor
from stepwell.agents.messages import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Message,
    MessagesLike,
    messages_of,
)
from stepwell.errors import RunError
from stepwell.graph.context import WorkflowContext
from stepwell.graph.handler import response_handler
from stepwell.model.event import WorkflowEvent
from stepwell.orchestrations.participants import TerminationCondition, is_content

_Context = WorkflowContext[Any, AgentResponse]


@dataclass(frozen=True, slots=True)
class HandoffAgentUserRequest:
    """An agent has answered without handing over: what does the user reply?"""

    agent_response: AgentResponse

    @staticmethod
    def create_response(response: MessagesLike) -> list[Message]:
        """Reply with these messages. Raises ValueError if there are none; to end the chat, use `terminate`."""
        if not (messages := messages_of(response)):
            raise ValueError("the response is empty: pass a string or messages, or end the chat with terminate()")
        return messages

    @staticmethod
    def terminate() -> list[Message]:
        """End the conversation."""
        return []


@dataclass(frozen=True, slots=True)
class HandoffSentEvent:
    """The data of a `handoff_sent` event: one agent has handed over to another."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class HandoffRoutes:
    """Where an agent's handoffs and the user's replies lead, and when the conversation is over."""

    start: str  # the agent that receives the user's first message
    tools: Mapping[str, str] = field(default_factory=dict)  # target of each handoff tool
    returns_to_previous: bool = False  # the user's replies go to this agent, not to the start agent
    is_over: TerminationCondition | None = None
    prompt: str = ""  # sent to the agent in autonomous mode instead of a reply of the user
    turn_limit: int = 0  # autonomous turns in a row


class HandoffAgentExecutor(AgentExecutor):
    """An agent with handoff tools. The agent that takes over receives the whole conversation."""

    _state_key_patterns = (*AgentExecutor._state_key_patterns, "handoff/{id}/")
    routes: HandoffRoutes

    @classmethod
    def of(cls, agent: AgentExecutor, routes: HandoffRoutes, offers: Mapping[str, str]) -> Self:
        """Return the same agent under the same id; `offers` describes its handoff tools by name."""
        # Without __init__: the agent was validated when it was made, and takes its options with it.
        clone = cls.__new__(cls)
        vars(clone).update(vars(agent.clone()))
        clone.routes, clone.handoffs = routes, dict(offers)
        return clone

    async def respond(self, ctx: _Context) -> None:
        if not await self._is_over(ctx):
            await super().respond(ctx)

    async def send_response(self, response: AgentExecutorResponse, ctx: _Context) -> None:
        await ctx.yield_output(response.agent_response)
        if await self._is_over(ctx):
            return
        turns: int = ctx.get_state(self._turns_key, 0)
        if response.agent_response.handoff is not None:
            await self._hand_over(response.agent_response.handoff, response, ctx)
        elif turns < self.routes.turn_limit:
            # The agent prompts itself by a message, so that each autonomous turn is a superstep.
            ctx.set_state(self._turns_key, turns + 1)
            await ctx.send_message(AgentExecutorRequest([Message("user", self.routes.prompt)]), self.id)
            return
        else:
            await ctx.request_info(HandoffAgentUserRequest(response.agent_response), list[Message])
        # The user or another agent is next: the row of autonomous turns ends here.
        if turns:
            ctx.delete_state(self._turns_key)

    @response_handler
    async def receive_user_messages(
        self, request: HandoffAgentUserRequest, messages: list[Message], ctx: _Context
    ) -> None:
        # No messages: the user ended the conversation with `terminate()`.
        if not messages:
            return
        self.hear(messages, ctx)
        if self.routes.returns_to_previous or self.id == self.routes.start:
            await self.respond(ctx)
        else:
            # A response without an answer: the receiver reads the whole conversation from it.
            so_far = AgentExecutorResponse(self.id, AgentResponse(), length_of(self.id, ctx))
            await ctx.send_message(so_far, self.routes.start)

    async def _hand_over(self, tool: str, response: AgentExecutorResponse, ctx: _Context) -> None:
        target = self.routes.tools.get(tool)
        if target is None:
            names = ", ".join(map(repr, self.routes.tools)) or "none"
            raise RunError(
                f"{self.id!r} in run {ctx.run_id!r} called the handoff tool {tool!r}, which it does not have; "
                f"its handoff tools are: {names}",
                run_id=ctx.run_id,
            )
        await ctx.send_message(response, target)
        await ctx.add_event(WorkflowEvent("handoff_sent", HandoffSentEvent(self.id, target)))

    def _from_other(self, response: AgentExecutorResponse, ctx: _Context) -> Sequence[Message]:
        """Return the whole conversation of another agent, without results of tools and empty messages."""
        # From outside the team, which is another run: its state cannot be read here.
        if not ctx.source_executor_ids:
            return response.agent_response.messages
        return list(filter(is_content, response.full_conversation(ctx)))

    async def _is_over(self, ctx: _Context) -> bool:
        condition = self.routes.is_over
        # A step, because a condition may ask a model, or not be deterministic.
        return condition is not None and bool(
            await ctx.step("is it over?", _asked, condition, conversation_of(self.id, ctx))
        )

    @property
    def _turns_key(self) -> str:
        return f"handoff/{self.id}/turns"


async def _asked(condition: TerminationCondition, conversation: list[Message]) -> bool:
    # The name of this function is stored with the step. Renaming it would make stored runs refuse the
    # step as another call.
    answer: Any = condition(conversation)
    return bool(await answer if inspect.isawaitable(answer) else answer)
