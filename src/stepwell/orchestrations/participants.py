"""The participants of a team, and the base class of all team builders."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypedDict

from stepwell.agents.agent_types import is_agent
from stepwell.agents.executor import AgentExecutor
from stepwell.agents.messages import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Answer,
    Message,
    messages_of,
)
from stepwell.agents.turn import Turn
from stepwell.errors import DefinitionError
from stepwell.graph.context import WorkflowContext
from stepwell.graph.executor import Executor
from stepwell.graph.handler import handler
from stepwell.graph.type_matching import is_type_compatible
from stepwell.workflows.builder import WorkflowBuilder
from stepwell.workflows.storage_options import StorageLike
from stepwell.workflows.subworkflow_agent import WorkflowAgentExecutor
from stepwell.workflows.workflow import Workflow
from stepwell.workflows.workflow_agent import WorkflowAgent

DEFAULT_TEAM_ITERATIONS = 10_000
"""Supersteps a team may take after a message from outside. The team's own limits should end it long before."""

Check = tuple[bool, str]
"""Whether there is a problem, and the problem in one sentence."""

TerminationCondition = Callable[[list[Message]], bool | Awaitable[bool]]
"""Says whether a conversation is over."""

Participant = Any
"""An agent of any supported kind, an async function, an AgentExecutor, or another Executor."""


def participants_of(participants: Iterable[Participant]) -> dict[str, Executor]:
    """Return the executors of a team by id, in the given order. Raises DefinitionError with all problems."""
    members, problems = collect_participants(participants)
    if problems:
        raise DefinitionError(problems)
    return members


def collect_participants(candidates: Any) -> tuple[dict[str, Executor], list[str]]:
    """Return the executors of a team by id, and the problems with the candidates."""
    if isinstance(candidates, (str, Executor, type)) or not isinstance(candidates, Iterable):
        return {}, [f"participants must be a list of agents and executors, not {candidates!r:.80}"]
    members, problems, objects = dict[str, Executor](), list[str](), set[int]()
    participants = list(candidates)
    for participant in participants:
        # By identity: the same object twice is another mistake than two agents with one name.
        if id(participant) in objects:
            problems.append(f"{participant!r:.80} is listed twice among the participants")
            continue
        objects.add(id(participant))
        try:
            member = executor_of(participant)
        except DefinitionError as error:
            problems += error.problems
            continue
        if member.id in members:
            problems.append(f"two participants have the name {member.id!r}: names must be unique")
        members[member.id] = member
    if not participants:
        problems.append("a team needs at least one participant")
    return members, problems


def executor_of(participant: Participant) -> Executor:
    """Return the executor for a participant. Raises DefinitionError if it is neither agent nor executor."""
    if isinstance(participant, Executor):
        return participant
    if isinstance(participant, WorkflowAgent):
        return WorkflowAgentExecutor(participant)
    # In a team a bare async function can only be meant as an agent.
    if is_agent(participant) or inspect.iscoroutinefunction(participant):
        return AgentExecutor(participant)
    raise DefinitionError(
        f"{participant!r:.80} cannot be a participant: pass an agent, an async function that answers messages, or an "
        f"instance of an Executor"
    )


def is_content(message: Message) -> bool:
    """Return whether a message belongs in a shared conversation: results of tools and empty messages do not."""
    return message.role != "tool" and bool(message.text or message.data is not None)


def takes(executor: Executor, kind: object) -> bool:
    """Return whether an executor has a handler for messages of a type."""
    return any(is_type_compatible(kind, handled) for handled in executor.input_types)


@dataclass(frozen=True)
class AbsentAgent:
    """Stands for the agent that an AgentExecutor needs, if the executor finds its answers in another way."""

    name: str
    description: str | None = None

    async def take_turn(self, turn: Turn) -> Answer:
        raise NotImplementedError(f"{self.name!r} has no agent that takes turns")


class TeamEntry(Executor):
    """The first executor of a team: it accepts all forms of input and passes them to `receive` as messages."""

    _keeps_conversation = True

    @handler
    async def open_input(
        self, input: str | Message | list[str | Message], ctx: WorkflowContext[Any, AgentResponse]
    ) -> None:
        await self.receive(messages_of(input), ctx)

    @handler
    async def open_request(
        self, request: AgentExecutorRequest | AgentResponse, ctx: WorkflowContext[Any, AgentResponse]
    ) -> None:
        await self.receive(list(request.messages), ctx)

    @handler
    async def open_answer(self, answer: AgentExecutorResponse, ctx: WorkflowContext[Any, AgentResponse]) -> None:
        """Receive the answer of an agent outside the team."""
        # Only the answer: the team is another run, and cannot read that agent's conversation.
        await self.receive(list(answer.agent_response.messages), ctx)

    async def receive(self, messages: list[Message], ctx: WorkflowContext[Any, AgentResponse]) -> None:
        """Handle incoming messages."""
        raise NotImplementedError(f"{type(self).__name__} must override `receive`")


class TeamOptions(TypedDict, total=False):
    """The keyword arguments that every team builder passes on to `TeamBuilder`."""

    participants: Sequence[Participant]
    name: str | None
    description: str | None
    checkpoint_storage: StorageLike | None
    output_from: Sequence[Participant] | Literal["all"] | None
    intermediate_output_from: Sequence[Participant] | Literal["all", "all_other"] | None
    max_iterations: int


class TeamBuilder(ABC):
    """The base class of all team builders.

    `output_from` and `intermediate_output_from` select the participants whose answers are outputs or
    intermediate outputs of the run: a list of participants or their ids, "all", and for the latter
    also "all_other". By default the pattern of the team decides. Where something else than a participant
    yields the result of the team (an aggregator, an orchestrator), `output_from` adds to it.
    """

    kind: ClassVar[str]  # the default name of the team

    def __init__(
        self,
        *,
        participants: Sequence[Participant] = (),
        name: str | None = None,
        description: str | None = None,
        checkpoint_storage: StorageLike | None = None,
        output_from: Sequence[Participant] | Literal["all"] | None = None,
        intermediate_output_from: Sequence[Participant] | Literal["all", "all_other"] | None = None,
        max_iterations: int = DEFAULT_TEAM_ITERATIONS,
    ) -> None:
        self._participants = participants
        self._name, self._description = name or self.kind, description
        self._storage = checkpoint_storage
        self._output_from, self._intermediate_from = output_from, intermediate_output_from
        self._max_iterations = max_iterations

    def with_checkpointing(self, checkpoint_storage: StorageLike) -> Self:
        """Commit every run to this storage, unless `run` receives another one."""
        self._storage = checkpoint_storage
        return self

    def build(self) -> Workflow:
        """Build the workflow of the team. Raises DefinitionError with all problems."""
        # An iterator can be read only once, and `build` may be called again.
        if isinstance(self._participants, Iterator):
            self._participants = list(self._participants)
        members, problems = collect_participants(self._participants)
        problems += [text for is_problem, text in (*self._check_outputs(), *self._check(members)) if is_problem]
        if problems:
            # Several checks may find the same problem: report it once.
            raise DefinitionError(list(dict.fromkeys(problems)))
        return self._wire(members).build()

    @abstractmethod
    def _wire(self, members: dict[str, Executor]) -> WorkflowBuilder:
        """Build the graph of the team, starting from `_start_builder`."""

    def _check(self, members: Mapping[str, Executor]) -> Iterable[Check]:
        """Check what is special about this team; its participants and outputs are checked for every team."""
        return ()

    def _start_builder(self, start: Executor, outputs: Sequence[str], *, result: str | None = None) -> WorkflowBuilder:
        """Return a workflow builder with this start.

        `outputs` names the executors that yield outputs by default, `result` the one that yields the result of the
        team and is not a participant: `output_from` adds to it.
        """
        intermediate_from = self._ids_of(self._intermediate_from)
        output_from = self._ids_of(self._output_from)
        if result is not None and isinstance(output_from, list) and result not in (intermediate_from or ()):
            output_from = [*output_from, result]
        # An executor cannot yield both kinds, and naming it as intermediate overrides the default.
        if output_from is None and intermediate_from != "all":
            output_from = [id for id in outputs if id not in (intermediate_from or ())] or None
        return WorkflowBuilder(
            self._max_iterations,
            self._name,
            self._description,
            start_executor=start,
            checkpoint_storage=self._storage,
            output_from=output_from,
            intermediate_output_from=intermediate_from,
        )

    def _id_of(self, mention: Participant) -> str:
        """Return the id that a reference to a participant means, whether or not there is such a participant."""
        if isinstance(mention, str):
            return mention
        # The participant itself, not an equal one: agents of libraries may define equality.
        is_listed = any(participant is mention for participant in self._participants)
        is_valid = is_listed or is_agent(mention) or isinstance(mention, Executor)
        return executor_of(mention).id if is_valid else repr(mention)

    def _ids_of(self, mentions: Any) -> list[str] | str | None:
        if mentions is None or isinstance(mentions, str):
            return mentions
        if isinstance(mentions, type) or not isinstance(mentions, Iterable):
            return None
        return [self._id_of(mention) for mention in mentions]

    def _check_outputs(self) -> Iterator[Check]:
        for option, mentions in (
            ("output_from", self._output_from),
            ("intermediate_output_from", self._intermediate_from),
        ):
            names = self._ids_of(mentions)
            if names is None and mentions is not None:
                yield True, f"{option} must be a list of participants or their names, or 'all', not {mentions!r:.80}"
            for name, count in Counter(names if isinstance(names, list) else ()).items():
                yield count > 1, f"{name!r} is listed twice in {option}"
