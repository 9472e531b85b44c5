"""An agent whose answers a person looks at before they go on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from stepwell.agents.executor import AgentExecutor
from stepwell.agents.messages import AgentExecutorResponse, AgentResponse, Message
from stepwell.graph.context import WorkflowContext
from stepwell.graph.executor import Executor
from stepwell.graph.handler import response_handler
from stepwell.orchestrations.participants import Participant, TeamBuilder
from stepwell.workflows.subworkflow_agent import WorkflowAgentExecutor


@dataclass(frozen=True, slots=True)
class AgentRequestInfoResponse:
    """What a person says to an agent's answer: nothing, and it goes on; or something, and the agent answers again."""

    messages: Sequence[Message] = ()

    @staticmethod
    def approve() -> AgentRequestInfoResponse:
        """The answer goes on as it is."""
        return AgentRequestInfoResponse()

    @staticmethod
    def from_strings(texts: Sequence[str]) -> AgentRequestInfoResponse:
        """The agent is told this, and answers again."""
        if isinstance(texts, str) or not _are_all(str, texts):
            raise TypeError(f"from_strings takes a list of texts: from_strings([{texts!r:.80}])")
        return AgentRequestInfoResponse.from_messages([Message("user", text) for text in texts])

    @staticmethod
    def from_messages(messages: Sequence[Message]) -> AgentRequestInfoResponse:
        """The agent is told this, and answers again."""
        if not _are_all(Message, messages):
            raise TypeError(f"from_messages takes a list of messages, not {messages!r:.80}")
        if not messages:
            raise ValueError("nothing is said to the agent: say something, or let its answer pass with approve()")
        return AgentRequestInfoResponse(list(messages))


def _are_all(kind: type, values: object) -> bool:
    return isinstance(values, Sequence) and all(isinstance(value, kind) for value in values)


class ReviewedAgentExecutor(AgentExecutor):
    """An agent that asks what a person thinks of each of its answers before it sends it on.

    The question is the answer itself, an `AgentExecutorResponse`; what is said to it is an `AgentRequestInfoResponse`.
    """

    @staticmethod
    def of(agent: AgentExecutor) -> ReviewedAgentExecutor:
        """The same agent under the same id, reviewed. What its class does with an answer happens when it has passed."""
        cls = type(agent)
        if issubclass(cls, ReviewedAgentExecutor):
            return agent  # type: ignore[return-value]
        bases = (ReviewedAgentExecutor,) if cls is AgentExecutor else (ReviewedAgentExecutor, cls)
        twin: ReviewedAgentExecutor = object.__new__(type(f"Reviewed{cls.__name__}", bases, {}))
        vars(twin).update(vars(agent.clone()))
        return twin

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
    """The builder of a team whose agents' answers people may look at."""

    _reviewed: Sequence[Participant] | None = ()  # None: all agents

    def with_request_info(self, *, agents: Sequence[Participant] | None = None) -> Self:
        """Ask a person about each answer of these agents, or of all, before it goes on."""
        if isinstance(agents, str) or not isinstance(agents, Iterable | None):
            raise TypeError(f"with_request_info takes a list of agents: with_request_info(agents=[{agents!r:.80}])")
        self._reviewed = None if agents is None else list(agents)
        return self

    def _find_problems(self, members: Mapping[str, Executor]) -> Iterable[str]:
        for id in self._to_review(members):
            if id not in members:
                yield f"with_request_info names {id!r}, who does not take part"
            elif not isinstance(members[id], AgentExecutor):
                yield (
                    f"the answers of {id!r}, a {type(members[id]).__name__}, cannot be asked about with "
                    f"with_request_info: let it ask by itself, with ctx.request_info(...), and name the others"
                )

    def _add_reviews(self, members: Mapping[str, Executor]) -> dict[str, Executor]:
        """The participants, some of them reviewed."""
        chosen = self._to_review(members)
        return {
            id: ReviewedAgentExecutor.of(member) if id in chosen and isinstance(member, AgentExecutor) else member
            for id, member in members.items()
        }

    def _to_review(self, members: Mapping[str, Executor]) -> list[str]:
        if self._reviewed is None:
            return [id for id, member in members.items() if isinstance(member, (AgentExecutor, WorkflowAgentExecutor))]
        return [self._id_of(mention) for mention in self._reviewed]
