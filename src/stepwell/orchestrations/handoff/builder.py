"""`HandoffBuilder`: builds a team of agents that hand a conversation over to each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, Unpack

from stepwell.agents.executor import AgentExecutor
from stepwell.graph.executor import Executor
from stepwell.orchestrations.handoff.agents import HandoffAgentExecutor, HandoffRoutes
from stepwell.orchestrations.participants import Check, Participant, TeamBuilder, TeamOptions, TerminationCondition
from stepwell.workflows.builder import WorkflowBuilder

DEFAULT_TURN_LIMIT = 50
DEFAULT_PROMPT = "The user has not replied. Continue on your own as well as you can."


class HandoffBuilder(TeamBuilder):
    """Builds a team of agents that hand over to each other, each by calling a tool named after the other.

    Without `add_handoff`, every agent may hand over to every other. An agent that answers without
    handing over asks the user; the reply goes to the start agent, or, with
    `enable_return_to_previous`, to the agent that asked. In autonomous mode an agent continues on its
    own for a number of turns before the user is asked.

    `termination_condition(conversation)` is evaluated before and after each turn; it may be async.
    """

    kind = "Handoff"

    def __init__(
        self,
        *,
        termination_condition: TerminationCondition | None = None,
        **team: Unpack[TeamOptions],
    ) -> None:
        super().__init__(**team)
        self._is_over = termination_condition
        self._start: Participant | None = None
        self._declared_handoffs: list[tuple[Participant, list[Participant], str | None]] = []
        self._return_to_previous = False
        self._autonomous: Sequence[Participant] | None = ()  # None: all agents
        self._prompts: dict[Any, str] = {}
        self._turn_limits: dict[Any, int] = {}

    def participants(self, participants: Sequence[Participant]) -> Self:
        """Set the participants."""
        self._participants = participants
        return self

    def with_start_agent(self, agent: Participant) -> Self:
        """Set the agent that receives the user's first message."""
        self._start = agent
        return self

    def add_handoff(
        self, source: Participant, targets: Sequence[Participant], *, description: str | None = None
    ) -> Self:
        """Let `source` hand over to `targets`.

        `description` says when; the last one passed for a target applies.
        """
        target_list = [targets] if isinstance(targets, str) or not isinstance(targets, Iterable) else list(targets)
        self._declared_handoffs.append((source, target_list, description))
        return self

    def enable_return_to_previous(self, enabled: bool = True) -> Self:
        """Send the user's reply to the agent that asked, not to the start agent."""
        self._return_to_previous = enabled
        return self

    def with_termination_condition(self, termination_condition: TerminationCondition) -> Self:
        """End the conversation when this function, plain or async, returns true."""
        self._is_over = termination_condition
        return self

    def with_autonomous_mode(
        self,
        *,
        agents: Sequence[Participant] | None = None,
        prompts: Mapping[str, str] | None = None,
        turn_limits: Mapping[str, int] | None = None,
    ) -> Self:
        """Let these agents, or all, continue on their own instead of asking the user.

        `prompts` and `turn_limits` are by agent: the message that makes it continue, and the number of
        such turns in a row (50 by default) after which the user is asked.
        """
        if isinstance(agents, str) or not isinstance(agents, Iterable | None):
            raise TypeError(f"with_autonomous_mode takes a list of agents: agents=[{agents!r:.80}]")
        for option, by_agent in (("prompts", prompts), ("turn_limits", turn_limits)):
            if not isinstance(by_agent, Mapping | None):
                raise TypeError(
                    f"{option} of with_autonomous_mode must be a mapping by agent, as in {{'desk': ...}}, not "
                    f"{by_agent!r:.80}"
                )
        self._autonomous = None if agents is None else list(agents)
        self._prompts, self._turn_limits = dict(prompts or {}), dict(turn_limits or {})
        return self

    def _wire(self, members: dict[str, Executor]) -> WorkflowBuilder:
        handoffs, start = self._handoffs(members), self._id_of(self._start)
        limits = self._limits(members)
        agents = {id: self._make_agent(member, handoffs[id], limits.get(id, 0)) for id, member in members.items()}
        builder = self._start_builder(agents[start], list(members))
        for id, agent in agents.items():
            # Besides its handoffs: the user's replies go to the start agent, and an autonomous agent
            # prompts itself.
            others = [*handoffs[id], *(() if self._return_to_previous else (start,))]
            targets = dict.fromkeys(other for other in others if other != id)
            for other in [*targets, *((id,) if id in limits else ())]:
                builder.add_edge(agent, agents[other])
        return builder

    def _make_agent(self, member: Executor, offers: Mapping[str, str], turn_limit: int) -> HandoffAgentExecutor:
        assert isinstance(member, AgentExecutor)  # checked by _check
        prompts = {self._id_of(mention): prompt for mention, prompt in self._prompts.items()}
        tools = {tool_name(target): target for target in offers}
        routes = HandoffRoutes(
            self._id_of(self._start),
            tools,
            returns_to_previous=self._return_to_previous,
            is_over=self._is_over,
            prompt=prompts.get(member.id, DEFAULT_PROMPT),
            turn_limit=turn_limit,
        )
        return HandoffAgentExecutor.of(member, routes, {tool: offers[target] for tool, target in tools.items()})

    def _handoffs(self, members: Mapping[str, Executor]) -> dict[str, dict[str, str]]:
        """Return the targets of each agent, with the descriptions of the handoffs."""
        declared = self._declared_handoffs or [
            (id, [other for other in members if other != id], None) for id in members
        ]
        handoffs: dict[str, dict[str, str]] = {id: {} for id in members}
        for source, targets, description in declared:
            for target in map(self._id_of, targets):
                text = description or _describe_handoff(target, members.get(target))
                handoffs.setdefault(self._id_of(source), {})[target] = text
        return handoffs

    def _limits(self, members: Mapping[str, Executor]) -> dict[str, int]:
        """Return the turn limits of the agents in autonomous mode."""
        stated = {self._id_of(mention): limit for mention, limit in self._turn_limits.items()}
        limits = {id: stated.get(id, DEFAULT_TURN_LIMIT) for id in self._list_autonomous(members)}
        # A limit of 0 turns autonomous mode off for an agent.
        return {id: limit for id, limit in limits.items() if limit}

    def _list_autonomous(self, members: Mapping[str, Executor]) -> list[str]:
        return list(members) if self._autonomous is None else list(map(self._id_of, self._autonomous))

    def _check(self, members: Mapping[str, Executor]) -> Iterable[Check]:
        for id, member in members.items():
            yield (
                type(member) is not AgentExecutor,
                f"{id!r} is a {type(member).__name__}, but only agents can hand over: pass an agent, an async "
                f"function or an AgentExecutor",
            )
            mode = member.context_mode if type(member) is AgentExecutor else "full"
            yield (
                mode != "full",
                f"{id!r} has context_mode={mode!r}, but agents of a handoff team always receive the whole conversation",
            )
        is_callable = self._is_over is None or callable(self._is_over)
        yield not is_callable, f"termination_condition must be callable, not {self._is_over!r:.80}"
        yield self._start is None, "there is no start agent: call with_start_agent(...)"
        for where, id in self._list_mentions():
            yield id not in members, f"{where} names {id!r}, which is not a participant"
        handoffs = self._handoffs(members)
        for id, targets in handoffs.items():
            yield from _check_targets(id, list(targets))
        reachable = {self._id_of(self._start), *(target for targets in handoffs.values() for target in targets)}
        for id in members if self._start is not None else ():
            yield (
                id not in reachable,
                f"no agent may hand over to {id!r}: call add_handoff(..., [{id!r}]), or leave it out",
            )
        yield from self._check_limits(members)

    def _list_mentions(self) -> Iterator[tuple[str, str]]:
        if self._start is not None:
            yield "with_start_agent", self._id_of(self._start)
        for source, targets, _ in self._declared_handoffs:
            yield from (("add_handoff", self._id_of(mention)) for mention in (source, *targets))
        for mention in [*(self._autonomous or ()), *self._prompts, *self._turn_limits]:
            yield "with_autonomous_mode", self._id_of(mention)

    def _check_limits(self, members: Mapping[str, Executor]) -> Iterator[Check]:
        for mention, limit in self._turn_limits.items():
            yield (
                not isinstance(limit, int) or limit < 0,
                f"the turn limit of {self._id_of(mention)!r} must be an integer of at least 0, not {limit!r}",
            )
        chosen = self._list_autonomous(members)
        for id in map(self._id_of, dict.fromkeys([*self._prompts, *self._turn_limits])):
            yield (
                id in members and id not in chosen,
                f"with_autonomous_mode has a prompt or a turn limit for {id!r}, which is not among its agents",
            )


def tool_name(target: str) -> str:
    """Return the name of the tool that hands over to an agent."""
    # Services accept these characters, and at most 64 of them, in names of tools.
    return ("handoff_to_" + re.sub(r"[^A-Za-z0-9_-]", "_", target))[:64]


def _describe_handoff(target: str, member: Executor | None) -> str:
    description = getattr(member, "description", None)
    return f"Hand the conversation over to {target}" + (f": {description}" if description else ".")


def _check_targets(source: str, targets: list[str]) -> Iterator[Check]:
    yield source in targets, f"{source!r} cannot hand over to itself"
    by_tool: dict[str, str] = {}
    for target in targets:
        first = by_tool.setdefault(tool_name(target), target)
        yield (
            first != target,
            f"the tools of {source!r} for handing over to {first!r} and to {target!r} would both be called "
            f"{tool_name(target)!r}: rename one of the agents",
        )
