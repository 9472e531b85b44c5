"""Review of agents' answers by a person, before the answers are sent on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from stepwell.agents.executor import AgentExecutor
from stepwell.agents.messages import AgentExecutorResponse, AgentResponse, Message
from stepwell.graph.context import WorkflowContext
from stepwell.graph.executor import Executor
from stepwell.graph.handler import response_handler
from stepwell.orchestrations.participants import Check, Participant, TeamBuilder
from stepwell.workflows.subworkflow_agent import WorkflowAgentExecutor


@dataclass(frozen=True, slots=True)
class AgentRequestInfoResponse:
    """A person's review of an answer: an empty one approves it, any message asks the agent to answer again."""

    messages: Sequence[Message] = ()

    @staticmethod
    def approve() -> AgentRequestInfoResponse:
        """Approve the answer as it is."""
        return AgentRequestInfoResponse()

    @staticmethod
    def from_strings(texts: Sequence[str]) -> AgentRequestInfoResponse:
        """Ask the agent to answer again, with these strings as feedback."""
        if isinstance(texts, str) or not _are_all(str, texts):
            raise TypeError(f"from_strings takes a list of strings: from_strings([{texts!r:.80}])")
        return AgentRequestInfoResponse.from_messages([Message("user", text) for text in texts])

    @staticmethod
    def from_messages(messages: Sequence[Message]) -> AgentRequestInfoResponse:
        """Ask the agent to answer again, with these messages as feedback. Raises ValueError if there are none."""
        if not _are_all(Message, messages):
            raise TypeError(f"from_messages takes a list of messages, not {messages!r:.80}")
        if not messages:
            raise ValueError("the feedback is empty: say what to change, or accept the answer with approve()")
        return AgentRequestInfoResponse(list(messages))


def _are_all(kind: type, values: object) -> bool:
    return isinstance(values, Sequence) and all(isinstance(value, kind) for value in values)


class ReviewedAgentExecutor(AgentExecutor):
    """An agent that asks what a person thinks of each of its answers before it sends it on.

    The question is the answer itself, an `AgentExecutorResponse`; what is said to it is an `AgentRequestInfoResponse`.
    """

    @staticmethod
    def of(agent: AgentExecutor) -> ReviewedAgentExecutor:
        """Return the same agent under the same id, with reviews.

        What its class does with an answer happens after the answer is approved.
        """
        cls = type(agent)
        if issubclass(cls, ReviewedAgentExecutor):
            return agent  # type: ignore[return-value]
        # A user may have subclassed AgentExecutor. A class made of both puts the review in front of the
        # subclass's own `send_response`, which `super()` then reaches.
        bases = (ReviewedAgentExecutor,) if cls is AgentExecutor else (ReviewedAgentExecutor, cls)
        clone: ReviewedAgentExecutor = object.__new__(type(f"Reviewed{cls.__name__}", bases, {}))
        vars(clone).update(vars(agent.clone()))
        vars(clone).pop("_handler_table", None)  # the new class has one handler more
        return clone

    async def send_response(
        self, response: AgentExecutorResponse, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]
    ) -> None:
        await ctx.request_info(response, AgentRequestInfoResponse)

    @response_handler
    async def apply_review(
        self,
        answer: AgentExecutorResponse,
        review: AgentRequestInfoResponse,
        ctx: WorkflowContext[AgentExecutorResponse, AgentResponse],
    ) -> None:
        if not review.messages:
            await super().send_response(answer, ctx)
            return
        self.hear(review.messages, ctx)
        await self.respond(ctx)


class ReviewingTeamBuilder(TeamBuilder):
    """The base class of builders for teams whose answers can be reviewed."""

    _reviewed: Sequence[Participant] | None = ()  # None: all agents

    def with_request_info(self, *, agents: Sequence[Participant] | None = None) -> Self:
        """Have a person review each answer of these agents, or of all, before it is sent on."""
        if isinstance(agents, str) or not isinstance(agents, Iterable | None):
            raise TypeError(f"with_request_info takes a list of agents: with_request_info(agents=[{agents!r:.80}])")
        self._reviewed = None if agents is None else list(agents)
        return self

    def _check(self, members: Mapping[str, Executor]) -> Iterable[Check]:
        for id in self._to_review(members):
            member = members.get(id)
            yield member is None, f"with_request_info names {id!r}, which is not a participant"
            yield (
                not isinstance(member, AgentExecutor | None),
                f"with_request_info cannot review the answers of {id!r}, a {type(member).__name__}: let it "
                f"call ctx.request_info(...) itself, and name the other agents in with_request_info(agents=[...])",
            )

    def _add_reviews(self, members: Mapping[str, Executor]) -> dict[str, Executor]:
        """Return the participants, with reviews where they were asked for."""
        chosen = self._to_review(members)
        return {
            id: ReviewedAgentExecutor.of(member) if id in chosen and isinstance(member, AgentExecutor) else member
            for id, member in members.items()
        }

    def _to_review(self, members: Mapping[str, Executor]) -> list[str]:
        # A workflow as an agent cannot be reviewed. It counts among "all" so that `build` reports it,
        # instead of leaving it out silently.
        if self._reviewed is None:
            return [id for id, member in members.items() if isinstance(member, (AgentExecutor, WorkflowAgentExecutor))]
        return [self._id_of(mention) for mention in self._reviewed]
