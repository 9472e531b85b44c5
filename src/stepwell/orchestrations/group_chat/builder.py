"""`GroupChatBuilder`: builds a team in which an orchestrator chooses who speaks next."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, Unpack

from stepwell.agents.executor import AgentExecutor
from stepwell.errors import DefinitionError
from stepwell.graph.executor import Executor
from stepwell.orchestrations.group_chat.orchestrator import (
    DEFAULT_ORCHESTRATOR,
    AgentGroupChatOrchestrator,
    GroupChatOrchestrator,
    SelectionFunction,
    interface_of,
)
from stepwell.orchestrations.group_chat.values import AgentOrchestrationOutput
from stepwell.orchestrations.participants import Check, Participant, TeamOptions, TerminationCondition, executor_of
from stepwell.orchestrations.review import ReviewingTeamBuilder
from stepwell.workflows.builder import WorkflowBuilder
from stepwell.workflows.workflow import Workflow


class GroupChatBuilder(ReviewingTeamBuilder):
    """Builds a group chat: after each answer, its leader chooses the next speaker or ends the chat.

    Exactly one of these leads the chat: a `selection_func`, plain or async, which receives a
    GroupChatState; an `orchestrator_agent`, which answers with an AgentOrchestrationOutput, as a value
    or as JSON; or an `orchestrator`, an instance of your subclass of GroupChatOrchestrator. The chat
    ends when the leader ends it, when the `termination_condition` holds for the conversation, or after
    `max_rounds`. The output is the leader's final message.

    A participant that is not an agent takes GroupChatRequestMessage (and GroupChatParticipantMessage,
    to receive the others' messages), or `list[Message]`, the whole conversation; it sends one answer.
    """

    kind = "GroupChat"

    def __init__(
        self,
        *,
        participant_factories: Sequence[Callable[[], Participant]] = (),
        selection_func: SelectionFunction | None = None,
        orchestrator_agent: Any = None,
        orchestrator: GroupChatOrchestrator | None = None,
        orchestrator_name: str = DEFAULT_ORCHESTRATOR,
        termination_condition: TerminationCondition | None = None,
        max_rounds: int | None = None,
        retry_attempts: int = 2,
        **team: Unpack[TeamOptions],
    ) -> None:
        super().__init__(**team)
        self._factories = participant_factories
        self._selection, self._agent, self._orchestrator = selection_func, orchestrator_agent, orchestrator
        self._orchestrator_name, self._retries = orchestrator_name, retry_attempts
        self._condition, self._max_rounds = termination_condition, max_rounds

    def with_termination_condition(self, termination_condition: TerminationCondition) -> Self:
        """End the chat when this function of the conversation, plain or async, returns true."""
        self._condition = termination_condition
        return self

    def with_max_rounds(self, max_rounds: int | None) -> Self:
        """End the chat after this many rounds. A message from outside restarts the count."""
        self._max_rounds = max_rounds
        return self

    def build(self) -> Workflow:
        if not isinstance(self._factories, Iterable) or not all(map(callable, self._factories)):
            raise DefinitionError(
                f"participant_factories must be a list of functions that create participants, not "
                f"{self._factories!r:.80}"
            )
        # Called once: a second `build` must use the same participants, which the caller may refer to.
        if self._factories:
            self._participants = [*self._participants, *(make() for make in self._factories)]
            self._factories = ()
        return super().build()

    def _check(self, members: Mapping[str, Executor]) -> Iterable[Check]:
        yield from super()._check(members)
        for id, member in members.items():
            yield (
                interface_of(member) is None,
                f"{id!r} accepts neither GroupChatRequestMessage nor list[Message], so it cannot be asked to speak",
            )
        yield (
            not isinstance(self._orchestrator_name, str) or not self._orchestrator_name,
            f"orchestrator_name must be a non-empty string, not {self._orchestrator_name!r:.80}",
        )
        number = sum(lead is not None for lead in (self._selection, self._agent, self._orchestrator))
        yield (
            number != 1,
            f"a group chat needs exactly one of selection_func, orchestrator_agent and orchestrator, but {number} "
            f"are set",
        )
        for name, function in (("selection_func", self._selection), ("termination_condition", self._condition)):
            yield function is not None and not callable(function), f"{name} must be callable, not {function!r:.80}"
        yield (
            not isinstance(self._orchestrator, GroupChatOrchestrator | None),
            f"orchestrator must be an instance of GroupChatOrchestrator, not {self._orchestrator!r:.80}",
        )
        for option, limit, least in (("max_rounds", self._max_rounds, 1), ("retry_attempts", self._retries, 0)):
            is_wrong = limit is not None and (not isinstance(limit, int) or limit < least)
            yield is_wrong, f"{option} must be at least {least}, not {limit!r}"
        try:
            if self._agent is not None and not isinstance(executor_of(self._agent), AgentExecutor):
                yield True, f"orchestrator_agent is {self._agent!r:.80}, which is not an agent"
        except DefinitionError as error:
            yield from ((True, problem) for problem in error.problems)

    def _wire(self, members: dict[str, Executor]) -> WorkflowBuilder:
        team = self._add_reviews(members)
        agent = None if self._agent is None else _decider(self._agent)
        lead = self._make_lead(agent)
        lead.lead(team, self._condition, self._max_rounds)
        builder = self._start_builder(lead, [lead.id], result=lead.id)
        # A star: everything goes through the leader, which knows the whole conversation.
        for member in [*team.values(), *([agent] if agent is not None else [])]:
            builder.add_edge(lead, member).add_edge(member, lead)
        return builder

    def _make_lead(self, agent: Executor | None) -> GroupChatOrchestrator:
        if agent is not None:
            return AgentGroupChatOrchestrator(agent.id, id=self._orchestrator_name, retry_attempts=self._retries)
        # A clone: `lead` changes it, and the caller may use the same object for another team.
        if self._orchestrator is not None:
            return self._orchestrator.clone()
        return GroupChatOrchestrator(self._selection, id=self._orchestrator_name)


def _decider(agent: Any) -> Executor:
    """Return an agent as the executor that is asked for decisions."""
    executor = executor_of(agent)
    # A copy: the agent may take part in other teams, where its answers are its own.
    decider = copy.copy(executor)
    if isinstance(decider, AgentExecutor):
        decider.rules = replace(decider.rules, answer_type=AgentOrchestrationOutput)
    return decider
