"""Who takes part in a team, and what the builders of all teams have in common."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

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
    found, problems = gathered(given)
    if problems:
        raise DefinitionError(problems)
    return found


def gathered(given: Any) -> tuple[dict[str, Executor], list[str]]:
    """The executors of a team by their ids, and what is wrong with those given."""
    if isinstance(given, (str, Executor, type)) or not isinstance(given, Iterable):
        return {}, [f"participants is a list of agents and executors, not {given!r:.80}"]
    found: dict[str, Executor] = {}
    problems: list[str] = []
    objects: set[int] = set()
    several = list(given)
    for one in several:
        if id(one) in objects:
            problems.append(f"{one!r:.80} stands twice among the participants: each takes part once")
            continue
        objects.add(id(one))
        try:
            member = executor_of(one)
        except DefinitionError as error:
            problems += error.problems
            continue
        if member.id in found:
            problems.append(f"two participants are called {member.id!r}: give each a name of its own")
        found[member.id] = member
    if not several:
        problems.append("a team needs participants, and none are given")
    return found, problems


def executor_of(given: Participant) -> Executor:
    """The executor that a participant stands for. Raises DefinitionError if it stands for none."""
    if isinstance(given, Executor):
        return given
    if isinstance(given, WorkflowAgent):
        return WorkflowAgentExecutor(given)
    if is_agent(given) or inspect.iscoroutinefunction(given):
        return AgentExecutor(given)
    raise DefinitionError(
        f"{given!r:.80} cannot take part in a team: give an agent, an async function that answers messages, or an "
        f"instance of an Executor"
    )


def takes(executor: Executor, kind: object) -> bool:
    """Whether an executor says that it handles messages of a type."""
    return any(is_type_compatible(kind, taken) for taken in executor.input_types)


class Opening(Executor):
    """The executor that a team begins with: whatever stands for messages comes to `opened` as messages."""

    @handler
    async def open_text(self, text: str, ctx: WorkflowContext[Any, AgentResponse]) -> None:
        await self.opened(messages_of(text), ctx)

    @handler
    async def open_message(self, message: Message, ctx: WorkflowContext[Any, AgentResponse]) -> None:
        await self.opened([message], ctx)

    @handler
    async def open_messages(self, messages: list[str | Message], ctx: WorkflowContext[Any, AgentResponse]) -> None:
        await self.opened(messages_of(messages), ctx)

    @handler
    async def open_request(self, request: AgentExecutorRequest, ctx: WorkflowContext[Any, AgentResponse]) -> None:
        await self.opened(list(request.messages), ctx)

    @handler
    async def open_response(self, response: AgentResponse, ctx: WorkflowContext[Any, AgentResponse]) -> None:
        await self.opened(list(response.messages), ctx)

    @handler
    async def open_answer(self, answer: AgentExecutorResponse, ctx: WorkflowContext[Any, AgentResponse]) -> None:
        """What an agent beside the team answered. The team is another run and cannot read its whole conversation."""
        await self.opened(list(answer.agent_response.messages), ctx)

    async def opened(self, messages: list[Message], ctx: WorkflowContext[Any, AgentResponse]) -> None:
        """These messages came in."""
        raise NotImplementedError(f"{type(self).__name__} must say what it does with messages: define `opened`")


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
        self._given = participants
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
        self._given = _kept(self._given)
        members, found = gathered(self._given)
        found += [*self._unnamed(), *self._repeated(), *self._wrong(members)]
        if found:
            raise DefinitionError(list(dict.fromkeys(found)))
        return self._wired(members).build()

    @abstractmethod
    def _wired(self, members: dict[str, Executor]) -> WorkflowBuilder:
        """The graph of the team; begin with `_begin`."""

    def _wrong(self, members: Mapping[str, Executor]) -> Iterable[str]:
        """What is wrong with this team besides its participants, one sentence each."""
        return ()

    def _begin(self, start: Executor, outputs: Sequence[str]) -> WorkflowBuilder:
        """A workflow that begins so; `outputs` are the ids whose yields are its outputs if nothing else was said."""
        on_the_way = self._names(self._intermediate_from)
        output_from = self._names(self._output_from)
        if output_from is None and on_the_way != "all":
            output_from = [id for id in outputs if id not in (on_the_way or ())] or None
        return WorkflowBuilder(
            self._max_iterations,
            self._name,
            self._description,
            start_executor=start,
            checkpoint_storage=self._storage,
            output_from=output_from,
            intermediate_output_from=on_the_way,
        )

    def _id(self, given: Participant) -> str:
        """The id that a mention of a participant means, whether or not there is one of that id."""
        if isinstance(given, str):
            return given
        for one in self._given:
            if one is given:
                return executor_of(one).id
        return executor_of(given).id if is_agent(given) or isinstance(given, Executor) else repr(given)

    def _names(self, given: Any) -> list[str] | str | None:
        if given is None or isinstance(given, str):
            return given
        return [self._id(one) for one in given] if isinstance(given, Iterable) and not isinstance(given, type) else None

    def _unnamed(self) -> Iterator[str]:
        for what, given in (
            ("output_from", self._output_from),
            ("intermediate_output_from", self._intermediate_from),
        ):
            if self._names(given) is None and given is not None:
                yield f"{what} is a list of participants or their names, or 'all', not {given!r:.80}"

    def _repeated(self) -> Iterator[str]:
        for what, given in (
            ("output_from", self._output_from),
            ("intermediate_output_from", self._intermediate_from),
        ):
            names = self._names(given)
            for name in dict.fromkeys(names) if isinstance(names, list) else ():
                if names is not None and names.count(name) > 1:
                    yield f"{name!r} stands twice in {what}"


def _kept(given: Any) -> Any:
    """What was given, so that it can be looked at more than once."""
    return list(given) if isinstance(given, Iterator) else given
