"""Sequential teams: participants work one after the other, each with the conversation so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Unpack

from stepwell.agents.executor import AgentExecutor
from stepwell.agents.messages import AgentExecutorResponse, AgentResponse, Message
from stepwell.graph.context import WorkflowContext
from stepwell.graph.executor import Executor
from stepwell.graph.handler import handler
from stepwell.graph.subworkflow import Nesting
from stepwell.graph.type_matching import describe
from stepwell.orchestrations.participants import Check, TeamEntry, TeamOptions, takes
from stepwell.orchestrations.review import ReviewingTeamBuilder
from stepwell.workflows.builder import WorkflowBuilder
from stepwell.workflows.subworkflow_agent import WorkflowAgentExecutor


class InputConversation(TeamEntry):
    """Converts the input of the team into messages for the first participant."""

    async def receive(self, messages: list[Message], ctx: WorkflowContext[Any, AgentResponse]) -> None:
        await ctx.send_message(messages)


class ToConversation(Executor):
    """Converts an agent's answer into plain messages, for a participant that accepts only those."""

    def __init__(self, id: str, *, only_answer: bool) -> None:
        super().__init__(id)
        self.only_answer = only_answer

    @handler
    async def forward_answer(self, answer: AgentExecutorResponse, ctx: WorkflowContext[list[Message]]) -> None:
        messages = list(answer.agent_response.messages) if self.only_answer else answer.full_conversation(ctx)
        await ctx.send_message(messages)

    @handler
    async def forward_response(self, response: AgentResponse, ctx: WorkflowContext[list[Message]]) -> None:
        await ctx.send_message(list(response.messages))


class SequentialBuilder(ReviewingTeamBuilder):
    """Builds a team whose participants work one after the other, each with the conversation so far.

    With `chain_only_agent_responses`, an agent receives only the answer of the participant before it.
    A participant that is not an agent takes `list[Message]`, or what the one before it sends, and sends
    `list[Message]`; the last one yields the result. The output is that of the last participant.
    """

    kind = "Sequential"

    def __init__(
        self,
        *,
        chain_only_agent_responses: bool = False,
        **team: Unpack[TeamOptions],
    ) -> None:
        super().__init__(**team)
        self._only_answers = chain_only_agent_responses

    def _check(self, members: Mapping[str, Executor]) -> Iterable[Check]:
        yield from super()._check(members)
        if not members:
            return
        team = list(members.values())
        first, last = team[0], team[-1]
        yield (
            not takes(first, list[Message]),
            f"the first participant, {first.id!r}, must accept list[Message], but accepts {_types(first.input_types)}",
        )
        sends_on = bool(last.output_types) and not last.workflow_output_types
        yield (
            sends_on and not isinstance(last, AgentExecutor),
            f"the last participant, {last.id!r}, sends {_types(last.output_types)}, but no participant follows it: "
            f"{'pass allow_direct_output=True to it' if isinstance(last, Nesting) else 'let it yield the result'}",
        )

    def _wire(self, members: dict[str, Executor]) -> WorkflowBuilder:
        if self._only_answers:
            members = {id: _hear_only_the_answer(member) for id, member in members.items()}
        team = list(self._add_reviews(members).values())
        start = InputConversation("input-conversation")
        builder = self._start_builder(start, [team[-1].id])
        builder.add_edge(start, team[0])
        for member, successor in pairwise(team):
            # A workflow as an agent would read the whole conversation from the response, so that one
            # gets plain messages too if it shall see only the answer.
            if _needs_converter(member, successor) or (
                self._only_answers and isinstance(successor, WorkflowAgentExecutor)
            ):
                converter = ToConversation(f"to-conversation:{successor.id}", only_answer=self._only_answers)
                builder.add_edge(member, converter)
                member = converter
            builder.add_edge(member, successor)
        return builder


def _hear_only_the_answer(member: Executor) -> Executor:
    if not isinstance(member, AgentExecutor) or member.context_mode != "full":
        return member
    # A clone: the caller's executor keeps its setting.
    clone = member.clone()
    clone.context_mode = "last_agent"
    return clone


def _needs_converter(member: Executor, successor: Executor) -> bool:
    """Return whether `member` answers like an agent and `successor` accepts plain messages only."""
    answers = [sent for sent in member.output_types if sent in (AgentExecutorResponse, AgentResponse)]
    understood = any(takes(successor, answer) for answer in answers)
    return bool(answers) and not understood and takes(successor, list[Message])


def _types(types: Iterable[object]) -> str:
    return " | ".join(map(describe, types)) or "nothing"
