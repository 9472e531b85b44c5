"""The executors that lead a group chat: they keep the conversation, choose speakers, and end the chat.

A participant receives the messages since its last turn together with its request to speak. So each
message is sent to each participant once, however long the chat is.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from stepwell.agents.messages import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Message,
    conversation_key,
)
from stepwell.errors import RunError
from stepwell.graph.context import WorkflowContext
from stepwell.graph.executor import Executor
from stepwell.graph.handler import handler
from stepwell.model.event import WorkflowEvent
from stepwell.orchestrations.group_chat.values import (
    GroupChatParticipantMessage,
    GroupChatProgress,
    GroupChatRequestMessage,
    GroupChatRequestSentEvent,
    GroupChatResponseMessage,
    GroupChatResponseReceivedEvent,
    GroupChatState,
    NotADecision,
    decision_in,
)
from stepwell.orchestrations.participants import TeamEntry, TerminationCondition, is_content, takes

SelectionFunction = Callable[[GroupChatState], str | Awaitable[str | None] | None]
"""Returns the name of the next speaker, or None to end the chat."""

ChatContext = WorkflowContext[Any, AgentResponse]

DEFAULT_ORCHESTRATOR = "group_chat_orchestrator"

Interface = Literal["agent", "executor", "messages"]
"""How a participant is addressed: as an agent, by group chat messages, or by the whole conversation."""


def interface_of(member: Executor) -> Interface | None:
    """Return how a participant is addressed, or None if it accepts none of the message types."""
    # By its types, not its class: a workflow as an agent, or an executor like one, counts as an agent.
    if takes(member, AgentExecutorRequest) and AgentExecutorResponse in member.output_types:
        return "agent"
    if takes(member, GroupChatRequestMessage):
        return "executor"
    return "messages" if takes(member, list[Message]) else None


class Chat:
    """The conversation and the progress of a chat: read once, and written to the state on each change."""

    def __init__(self, orchestrator_id: str, ctx: ChatContext) -> None:
        self.ctx = ctx
        self._conversation, self._progress = conversation_key(orchestrator_id), f"group_chat/{orchestrator_id}"
        self.conversation: list[Message] = ctx.get_state(self._conversation, [])
        self.progress: GroupChatProgress = ctx.get_state(self._progress, GroupChatProgress())

    def update(self, **changes: Any) -> None:
        """Change fields of the progress."""
        self.progress = replace(self.progress, **changes)
        self.ctx.set_state(self._progress, self.progress)

    def add(self, messages: Iterable[Message], author: str | None) -> list[Message]:
        """Append the new ones of these messages to the conversation, and return them as stored.

        The author is set if it is known.
        """
        # A participant may answer with the whole conversation; what is in it already is not new.
        known_ids = {message.id for message in self.conversation}
        new = [
            message
            for message in messages
            if is_content(message) and (message.id is None or message.id not in known_ids)
        ]
        signed = [
            replace(
                message,
                author_name=author or message.author_name,
                id=message.id or f"{self.ctx.idempotency_key}/{n}",
            )
            for n, message in enumerate(new, len(self.conversation))
        ]
        self.ctx.append_state(self._conversation, *signed)
        self.conversation += signed
        return signed

    def take_news_for(self, id: str) -> list[Message]:
        """Return the messages of others that a participant has not received, and mark them as received."""
        heard = self.progress.heard
        if heard.get(id, 0) < len(self.conversation):
            self.update(heard={**heard, id: len(self.conversation)})
        return [message for message in self.conversation[heard.get(id, 0) :] if message.author_name != id]


class GroupChatOrchestrator(TeamEntry):
    """Leads a group chat with a selection function. To choose in another way, override `choose`."""

    _state_key_patterns = ("agents/{id}/", "group_chat/{id}")

    def __init__(self, selection_func: SelectionFunction | None = None, *, id: str = DEFAULT_ORCHESTRATOR) -> None:
        super().__init__(id)
        self.selection_func = selection_func
        self.termination_condition: TerminationCondition | None = None
        self.max_rounds: int | None = None
        self.participants: dict[str, str] = {}
        self.interfaces: dict[str, Interface | None] = {}
        self.listeners: list[str] = []  # receive all messages, not only when asked to speak

    def lead(
        self,
        members: Mapping[str, Executor],
        termination_condition: TerminationCondition | None,
        max_rounds: int | None,
    ) -> None:
        """Set the participants and the conditions for the end of the chat."""
        self.participants = {id: member.description or "" for id, member in members.items()}
        self.interfaces = {id: interface_of(member) for id, member in members.items()}
        self.listeners = [
            id
            for id, member in members.items()
            if self.interfaces[id] == "executor" and takes(member, GroupChatParticipantMessage)
        ]
        # Options of the builder take precedence over attributes that a subclass has set.
        self.termination_condition = termination_condition or self.termination_condition
        self.max_rounds = max_rounds or self.max_rounds

    async def choose(self, state: GroupChatState, ctx: ChatContext) -> str | None:
        """Return the next speaker, or None to end the chat.

        It may be called again for the same choice; use `ctx.step` for what must happen once.
        """
        if self.selection_func is None:
            raise NotImplementedError(
                f"{type(self).__name__} has no selection function: pass one, or override `choose`"
            )
        chosen: str | None = await _ask_once(ctx, "choose", self.selection_func, state, self._check_participant)
        return chosen

    def request_for(self, name: str) -> GroupChatRequestMessage:
        """Return the request to speak for a participant that is not an agent. A subclass may add to it."""
        return GroupChatRequestMessage()

    @handler
    async def receive_response(self, response: GroupChatResponseMessage, ctx: ChatContext) -> None:
        await self.receive([response.message], ctx)

    async def open_input(self, input: str | Message | list[str | Message], ctx: ChatContext) -> None:
        # A participant may send a plain string too; any other string comes from the user.
        if isinstance(input, str) and ctx.get_source_executor_id() in self.participants:
            input = Message("assistant", input)
        await super().open_input(input, ctx)

    async def receive(self, messages: list[Message], ctx: ChatContext) -> None:
        """Add messages of a participant or from outside to the chat, and continue it."""
        source = ctx.get_source_executor_id()
        chat = Chat(self.id, ctx)
        chat.add(messages, source)
        # A message from outside that finds the chat at rest starts it again, with all its rounds.
        if source is None and chat.progress.waiting_for is None:
            chat.update(round=0)
        elif source is None or source != chat.progress.waiting_for:
            # Another participant was asked to speak. The message is in the conversation, and reaches
            # the others when the next speaker is chosen.
            return
        else:
            data = GroupChatResponseReceivedEvent(chat.progress.round, source)
            await ctx.add_event(WorkflowEvent("group_chat", data))
        await self._continue(chat)

    async def _continue(self, chat: Chat) -> None:
        condition = self.termination_condition
        if condition is not None and await _ask_once(chat.ctx, "over", condition, list(chat.conversation), bool):
            await self._end("The chat is over: its termination condition is met.", chat)
        elif self.max_rounds is not None and chat.progress.round >= self.max_rounds:
            await self._end(f"The chat is over: it has reached the limit of {self.max_rounds} rounds.", chat)
        else:
            await self._choose_next(chat)

    async def _choose_next(self, chat: Chat) -> None:
        state = GroupChatState(chat.progress.round, dict(self.participants), list(chat.conversation))
        # Checked here too, because a subclass's `choose` need not check.
        chosen = self._check_participant(await self.choose(state, chat.ctx))
        if chosen is None:
            await self._end("The chat is over: no next speaker was chosen.", chat)
        else:
            await self._ask_to_speak(chosen, chat)

    async def _ask_to_speak(self, name: str, chat: Chat) -> None:
        # Before the speaker is asked, so that everybody has the same messages when it answers.
        for id in self.listeners:
            if news := chat.take_news_for(id):
                await chat.ctx.send_message(GroupChatParticipantMessage(news), target_id=id)
        await chat.ctx.send_message(self._request(name, chat), target_id=name)
        chat.update(round=chat.progress.round + 1, waiting_for=name, useless=0)
        data = GroupChatRequestSentEvent(chat.progress.round, name)
        await chat.ctx.add_event(WorkflowEvent("group_chat", data))

    def _request(self, name: str, chat: Chat) -> AgentExecutorRequest | GroupChatRequestMessage | list[Message]:
        if self.interfaces[name] == "agent":
            return AgentExecutorRequest(chat.take_news_for(name))
        return self.request_for(name) if self.interfaces[name] == "executor" else chat.conversation

    async def _end(self, text: str, chat: Chat) -> None:
        final_messages = chat.add([Message("assistant", text)], self.id)
        chat.update(waiting_for=None, useless=0)
        await chat.ctx.yield_output(AgentResponse(final_messages))

    def _check_participant(self, name: str | None) -> str | None:
        if name is not None and name not in self.participants:
            raise LookupError(
                f"{name!r} was chosen to speak next in the chat led by {self.id!r}, but is not a participant; the "
                f"participants are {', '.join(map(repr, self.participants))}"
            )
        return name


class AgentGroupChatOrchestrator(GroupChatOrchestrator):
    """Leads a group chat by the decisions of an agent, which is a separate executor.

    An answer that is not a decision is rejected with the reason, up to `retry_attempts` times in a
    row; then the run fails.
    """

    def __init__(self, agent_id: str, *, id: str, retry_attempts: int) -> None:
        super().__init__(id=id)
        self.agent_id, self.retry_attempts = agent_id, retry_attempts

    async def open_answer(self, answer: AgentExecutorResponse, ctx: ChatContext) -> None:
        # Participants that are agents answer with the same type.
        if ctx.get_source_executor_id() != self.agent_id:
            await super().open_answer(answer, ctx)
            return
        chat = Chat(self.id, ctx)
        try:
            decision = decision_in(answer.agent_response)
            if not decision.terminate and decision.next_speaker not in self.participants:
                raise NotADecision(f"next_speaker is {decision.next_speaker!r}, which is not a participant")
        except NotADecision as problem:
            await self._reject_answer(problem, answer, chat)
            return
        if decision.terminate or decision.next_speaker is None:
            why = decision.reason or "its leader ended it."
            await self._end(decision.final_message or f"The chat is over: {why}", chat)
        else:
            await self._ask_to_speak(decision.next_speaker, chat)

    async def _choose_next(self, chat: Chat) -> None:
        # The rules are sent once; from then on they are in the agent's own conversation.
        first = self.agent_id not in chat.progress.heard
        question = _briefing(self.participants) if first else _REMINDER
        await self._ask([*chat.take_news_for(self.agent_id), Message("user", question)], chat)

    async def _reject_answer(self, problem: NotADecision, answer: AgentExecutorResponse, chat: Chat) -> None:
        useless, run_id = chat.progress.useless + 1, chat.ctx.run_id
        if useless > self.retry_attempts:
            raise RunError(
                f"{self.agent_id!r}, which leads the group chat of run {run_id!r}, gave no usable decision in "
                f"{useless} attempts: {problem}. Its last answer was {answer.agent_response.text!r:.200}. Change its "
                f"model or instructions so that it answers with the requested JSON, and continue from an earlier "
                f"checkpoint: run(checkpoint_id=...)",
                run_id=run_id,
            ) from problem
        chat.update(useless=useless)
        names = ", ".join(self.participants)
        text = f"Your answer could not be used: {problem}. The participants are {names}. {_REMINDER}"
        await self._ask([Message("user", text)], chat)

    async def _ask(self, messages: Sequence[Message], chat: Chat) -> None:
        await chat.ctx.send_message(AgentExecutorRequest(messages), target_id=self.agent_id)
        chat.update(waiting_for=self.agent_id)


async def _ask_once(
    ctx: ChatContext, name: str, function: Callable[[Any], Any], argument: Any, check: Callable[[Any], Any]
) -> Any:
    """Call a function as a step and return its checked answer.

    The check is part of the step, so an invalid answer fails the step and is not stored.
    """

    # The qualified name of this function is stored with the step. Renaming it or the function around
    # it would make stored runs refuse the step as another call.
    def ask() -> Any:
        answer = function(argument)
        return check_later(answer) if inspect.isawaitable(answer) else check(answer)

    async def check_later(answer: Awaitable[Any]) -> Any:
        return check(await answer)

    return await ctx.step(name, ask)


def _briefing(participants: Mapping[str, str]) -> str:
    listed = "\n".join(f"- {name}: {use}" if use else f"- {name}" for name, use in participants.items())
    return (
        f"You lead a group conversation. The participants are:\n{listed}\n"
        f"Read the conversation so far, and decide who speaks next, or that the conversation is over. Answer with one "
        f"JSON object and nothing else. If somebody should speak next:\n"
        f'{{"terminate": false, "reason": "why", "next_speaker": "one of the names above"}}\n'
        f"If the conversation is over:\n"
        f'{{"terminate": true, "reason": "why", "final_message": "the result of the conversation"}}'
    )


_REMINDER = "What happens next? Answer with one JSON object in the format given at the beginning."
