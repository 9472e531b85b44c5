"""An agent of a handoff team: it hands over to others, goes on by itself, or asks the user."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
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

TerminationCondition = Callable[[list[Message]], bool | Awaitable[bool]]
"""Whether a conversation is over."""

_Context = WorkflowContext[Any, AgentResponse]


@dataclass(frozen=True, slots=True)
class HandoffAgentUserRequest:
    """An agent has answered and hands over to nobody: what does the user say?"""

    agent_response: AgentResponse

    @staticmethod
    def create_response(said: MessagesLike) -> list[Message]:
        """The user says this. Raises ValueError if it is nothing: `terminate()` ends the conversation."""
        if not (messages := messages_of(said)):
            raise ValueError("the user says nothing: give a text or messages, or end the conversation with terminate()")
        return messages

    @staticmethod
    def terminate() -> list[Message]:
        """The user has nothing more to say: the conversation is over."""
        return []


@dataclass(frozen=True, slots=True)
class HandoffSentEvent:
    """One agent has handed over to another: the data of a `handoff_sent` event."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class HandoffRoutes:
    """Where an agent's answers lead."""

    start: str  # who hears the user
    tools: Mapping[str, str] = field(default_factory=dict)  # whom each of its handoff tools means
    returns_to_previous: bool = False  # it hears the user's answers itself, not the start agent
    is_over: TerminationCondition | None = None
    prompt: str = ""  # what makes it go on by itself,
    turn_limit: int = 0  # at most so many times in a row


class HandoffAgentExecutor(AgentExecutor):
    """An agent with tools to hand over. Whoever is handed over to hears the whole conversation."""

    keeps_under = (*AgentExecutor.keeps_under, "handoff/{id}/")
    routes: HandoffRoutes

    @classmethod
    def of(cls, agent: AgentExecutor, routes: HandoffRoutes, offers: Mapping[str, str]) -> Self:
        """The same agent under the same id; `offers` are its handoff tools with their descriptions."""
        twin = cls.__new__(cls)
        vars(twin).update(vars(agent.clone()))
        twin.routes, twin.handoffs = routes, dict(offers)
        return twin

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
            ctx.set_state(self._turns_key, turns + 1)
            await ctx.send_message(AgentExecutorRequest([Message("user", self.routes.prompt)]), self.id)
            return
        else:
            await ctx.request_info(HandoffAgentUserRequest(response.agent_response), list[Message])
        if turns:
            ctx.delete_state(self._turns_key)

    @response_handler
    async def receive_user_messages(
        self, request: HandoffAgentUserRequest, messages: list[Message], ctx: _Context
    ) -> None:
        if not messages:
            return
        self.hear(messages, ctx)
        if self.routes.returns_to_previous or self.id == self.routes.start:
            await self.respond(ctx)
        else:
            await ctx.send_message(self._conversation_so_far(ctx), self.routes.start)

    async def _hand_over(self, tool: str, response: AgentExecutorResponse, ctx: _Context) -> None:
        target = self.routes.tools.get(tool)
        if target is None:
            names = ", ".join(map(repr, self.routes.tools)) or "none"
            raise RunError(
                f"{self.id!r} in run {ctx.run_id!r} hands over with {tool!r}, which it was not offered; "
                f"its handoff tools are: {names}",
                run_id=ctx.run_id,
            )
        await ctx.send_message(response, target)
        await ctx.add_event(WorkflowEvent("handoff_sent", HandoffSentEvent(self.id, target)))

    def _conversation_so_far(self, ctx: _Context) -> AgentExecutorResponse:
        """The conversation as it is, without an answer to it."""
        return AgentExecutorResponse(self.id, AgentResponse(), length_of(self.id, ctx))

    def _from_other(self, response: AgentExecutorResponse, ctx: _Context) -> Sequence[Message]:
        """Everything that was said. What tools gave is for the agent that called them."""
        if not ctx.source_executor_ids:  # from outside the team, which is another run: its state is not here
            return response.agent_response.messages
        heard = response.full_conversation(ctx)
        return [message for message in heard if message.role != "tool" and (message.text or message.data is not None)]

    async def _is_over(self, ctx: _Context) -> bool:
        condition = self.routes.is_over
        if condition is None:
            return False
        over: bool = await ctx.step("is it over?", _asked, condition, conversation_of(self.id, ctx))
        return over

    @property
    def _turns_key(self) -> str:
        return f"handoff/{self.id}/turns"


async def _asked(condition: TerminationCondition, conversation: list[Message]) -> bool:
    # the name is stored with the step: renaming it would change the step
    answer: Any = condition(conversation)
    return bool(await answer if inspect.isawaitable(answer) else answer)
