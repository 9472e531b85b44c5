"""Who takes part in a team, and what the builders of all teams have in common."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, TypedDict

from stepwell.agents.agent_types import is_agent
from stepwell.agents.executor import AgentExecutor
from stepwell.agents.messages import AgentExecutorRequest, AgentExecutorResponse, AgentResponse, Message, messages_of
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
"""Supersteps that a team may take since the last message from outside: its own limits should end it long before."""

Participant = Any
"""An agent of any kind that Stepwell knows, an async function, an AgentExecutor, or another Executor."""


def participants_of(given: Iterable[Participant]) -> dict[str, Executor]:
    """The executors of a team by their ids, in the order given. Raises DefinitionError with every problem at once."""
    members, problems = collect_participants(given)
    if problems:
        raise DefinitionError(problems)
    return members


def collect_participants(candidates: Any) -> tuple[dict[str, Executor], list[str]]:
    """The executors of a team by their ids, and what is wrong with those given."""
    if isinstance(candidates, (str, Executor, type)) or not isinstance(candidates, Iterable):
        return {}, [f"participants is a list of agents and executors, not {candidates!r:.80}"]
    members: dict[str, Executor] = {}
    problems: list[str] = []
    objects: set[int] = set()
    participants = list(candidates)
    for participant in participants:
        if id(participant) in objects:
            problems.append(f"{participant!r:.80} stands twice among the participants: each takes part once")
            continue
        objects.add(id(participant))
        try:
            member = executor_of(participant)
        except DefinitionError as error:
            problems += error.problems
            continue
        if member.id in members:
            problems.append(f"two participants are called {member.id!r}: give each a name of its own")
        members[member.id] = member
    if not participants:
        problems.append("a team needs participants, and none are given")
    return members, problems


def executor_of(participant: Participant) -> Executor:
    """The executor that a participant stands for. Raises DefinitionError if it stands for none."""
    if isinstance(participant, Executor):
        return participant
    if isinstance(participant, WorkflowAgent):
        return WorkflowAgentExecutor(participant)
    if is_agent(participant) or inspect.iscoroutinefunction(participant):
        return AgentExecutor(participant)
    raise DefinitionError(
        f"{participant!r:.80} cannot take part in a team: give an agent, an async function that answers messages, or "
        f"an instance of an Executor"
    )


def takes(executor: Executor, kind: object) -> bool:
    """Whether an executor says that it handles messages of a type."""
    return any(is_type_compatible(kind, handled) for handled in executor.input_types)


class TeamEntry(Executor):
    """The executor that a team begins with: whatever stands for messages comes to `receive` as messages."""

    @handler
    async def open_text(self, text: str, ctx: WorkflowContext[Any, AgentResponse]) -> None:
        await self.receive(messages_of(text), ctx)

    @handler
    async def open_message(self, message: Message, ctx: WorkflowContext[Any, AgentResponse]) -> None:
        await self.receive([message], ctx)

    @handler
    async def open_messages(self, messages: list[str | Message], ctx: WorkflowContext[Any, AgentResponse]) -> None:
        await self.receive(messages_of(messages), ctx)

    @handler
    async def open_request(self, request: AgentExecutorRequest, ctx: WorkflowContext[Any, AgentResponse]) -> None:
        await self.receive(list(request.messages), ctx)

    @handler
    async def open_response(self, response: AgentResponse, ctx: WorkflowContext[Any, AgentResponse]) -> None:
        await self.receive(list(response.messages), ctx)

    @handler
    async def open_answer(self, answer: AgentExecutorResponse, ctx: WorkflowContext[Any, AgentResponse]) -> None:
        """What an agent beside the team answered. The team is another run and cannot read its whole conversation."""
        await self.receive(list(answer.agent_response.messages), ctx)

    async def receive(self, messages: list[Message], ctx: WorkflowContext[Any, AgentResponse]) -> None:
        """These messages came in."""
        raise NotImplementedError(f"{type(self).__name__} must say what it does with messages: define `receive`")


class TeamOptions(TypedDict, total=False):
    """The keywords that every builder of teams takes, and passes on to `TeamBuilder`."""

    participants: Sequence[Participant]
    name: str | None
    description: str | None
    checkpoint_storage: StorageLike | None
    output_from: Sequence[Participant] | Literal["all"] | None
    intermediate_output_from: Sequence[Participant] | Literal["all", "all_other"] | None
    max_iterations: int


class TeamBuilder(ABC):
    """What the builders of all teams have in common.

    `output_from` and `intermediate_output_from` name those whose answers are told as outputs of the run, or on the
    way: participants as they were given, ids, "all", and for the latter "all_other". If nothing is said, the
    outputs are those that the shape of the team says.
    """

    kind: ClassVar[str]  # the name of a team that is given none

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
        """Commit every run to this storage, unless `run` is given another."""
        self._storage = checkpoint_storage
        return self

    def build(self) -> Workflow:
        """The team as a workflow. Raises DefinitionError with every problem at once."""
        self._participants = _as_list(self._participants)
        members, problems = collect_participants(self._participants)
        problems += [*self._find_invalid_options(), *self._find_repeats(), *self._find_problems(members)]
        if problems:
            raise DefinitionError(list(dict.fromkeys(problems)))
        return self._wire(members).build()

    @abstractmethod
    def _wire(self, members: dict[str, Executor]) -> WorkflowBuilder:
        """The graph of the team; begin with `_start_builder`."""

    def _find_problems(self, members: Mapping[str, Executor]) -> Iterable[str]:
        """What is wrong with this team besides its participants, one sentence each."""
        return ()

    def _start_builder(self, start: Executor, outputs: Sequence[str]) -> WorkflowBuilder:
        """A workflow that begins so; `outputs` are the ids whose yields are its outputs if nothing else was said."""
        intermediate_from = self._ids_of(self._intermediate_from)
        output_from = self._ids_of(self._output_from)
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
        """The id that a mention of a participant means, whether or not there is one of that id."""
        if isinstance(mention, str):
            return mention
        for participant in self._participants:
            if participant is mention:
                return executor_of(participant).id
        return executor_of(mention).id if is_agent(mention) or isinstance(mention, Executor) else repr(mention)

    def _ids_of(self, mentions: Any) -> list[str] | str | None:
        if mentions is None or isinstance(mentions, str):
            return mentions
        if isinstance(mentions, type) or not isinstance(mentions, Iterable):
            return None
        return [self._id_of(mention) for mention in mentions]

    def _find_invalid_options(self) -> Iterator[str]:
        for option, mentions in (
            ("output_from", self._output_from),
            ("intermediate_output_from", self._intermediate_from),
        ):
            if self._ids_of(mentions) is None and mentions is not None:
                yield f"{option} is a list of participants or their names, or 'all', not {mentions!r:.80}"

    def _find_repeats(self) -> Iterator[str]:
        for option, mentions in (
            ("output_from", self._output_from),
            ("intermediate_output_from", self._intermediate_from),
        ):
            names = self._ids_of(mentions)
            for name in dict.fromkeys(names) if isinstance(names, list) else ():
                if names is not None and names.count(name) > 1:
                    yield f"{name!r} stands twice in {option}"


def _as_list(participants: Any) -> Any:
    """What was given, so that it can be looked at more than once."""
    return list(participants) if isinstance(participants, Iterator) else participants
