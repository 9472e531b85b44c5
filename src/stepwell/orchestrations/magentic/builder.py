"""`MagenticBuilder`: builds a team that works on a task under a manager."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, Unpack

from stepwell.errors import DefinitionError
from stepwell.graph.executor import Executor
from stepwell.orchestrations.group_chat.orchestrator import interface_of
from stepwell.orchestrations.group_chat.values import GroupChatParticipantMessage
from stepwell.orchestrations.magentic.managers import MagenticManagerBase, StandardMagenticManager
from stepwell.orchestrations.magentic.orchestrator import ORCHESTRATOR, MagenticOrchestrator
from stepwell.orchestrations.magentic.values import MagenticTaskLedger
from stepwell.orchestrations.participants import Check, TeamBuilder, TeamOptions, takes
from stepwell.workflows.builder import WorkflowBuilder


class MagenticBuilder(TeamBuilder):
    """Builds a team that works on a task under a manager.

    The manager collects the facts and makes a plan. After each contribution it assesses the progress
    and chooses who continues; if the work stalls for more than `max_stall_count` rounds, it makes
    another plan and the team starts over. When the task is done, the manager writes the answer, which
    is the output of the run.

    The manager is an agent (`manager_agent`), for which prompts may be passed, or a
    `MagenticManagerBase`; either may be created by a factory. With `enable_plan_review`, a person
    reviews each plan first.
    """

    kind = "Magentic"

    def __init__(
        self,
        *,
        manager: MagenticManagerBase | None = None,
        manager_factory: Callable[[], MagenticManagerBase] | None = None,
        manager_agent: Any = None,
        manager_agent_factory: Callable[[], Any] | None = None,
        task_ledger: MagenticTaskLedger | None = None,
        task_ledger_facts_prompt: str | None = None,
        task_ledger_plan_prompt: str | None = None,
        task_ledger_full_prompt: str | None = None,
        task_ledger_facts_update_prompt: str | None = None,
        task_ledger_plan_update_prompt: str | None = None,
        progress_ledger_prompt: str | None = None,
        final_answer_prompt: str | None = None,
        max_stall_count: int | None = None,
        max_reset_count: int | None = None,
        max_round_count: int | None = None,
        enable_plan_review: bool = False,
        **team: Unpack[TeamOptions],
    ) -> None:
        super().__init__(**team)
        self._managers: dict[str, Any] = {
            "manager": manager,
            "manager_factory": manager_factory,
            "manager_agent": manager_agent,
            "manager_agent_factory": manager_agent_factory,
        }
        self._agent_options: dict[str, Any] = {
            "task_ledger": task_ledger,
            "task_ledger_facts_prompt": task_ledger_facts_prompt,
            "task_ledger_plan_prompt": task_ledger_plan_prompt,
            "task_ledger_full_prompt": task_ledger_full_prompt,
            "task_ledger_facts_update_prompt": task_ledger_facts_update_prompt,
            "task_ledger_plan_update_prompt": task_ledger_plan_update_prompt,
            "progress_ledger_prompt": progress_ledger_prompt,
            "final_answer_prompt": final_answer_prompt,
        }
        self._limits = {
            "max_stall_count": max_stall_count,
            "max_reset_count": max_reset_count,
            "max_round_count": max_round_count,
        }
        self._plan_review = enable_plan_review

    def with_plan_review(self, enable: bool = True) -> Self:
        """Have a person review each plan before the team works by it."""
        self._plan_review = enable
        return self

    def _wire(self, members: dict[str, Executor]) -> WorkflowBuilder:
        manager = self._make_manager()
        descriptions = {id: getattr(member, "description", None) or id for id, member in members.items()}
        orchestrator = MagenticOrchestrator(manager, descriptions, plan_review=self._plan_review)
        orchestrator.interfaces = {id: interface_of(member) for id, member in members.items()}
        orchestrator.listeners = {id for id, member in members.items() if takes(member, GroupChatParticipantMessage)}
        # The edge to itself: the orchestrator asks the manager's next question in the next superstep.
        builder = self._start_builder(orchestrator, [ORCHESTRATOR], result=ORCHESTRATOR)
        builder.add_edge(orchestrator, orchestrator)
        for member in members.values():
            builder.add_edge(orchestrator, member).add_edge(member, orchestrator)
        return builder

    def _make_manager(self) -> MagenticManagerBase:
        """Return the manager. Raises DefinitionError if a prompt or the agent is not valid."""
        limits: dict[str, Any] = {name: value for name, value in self._limits.items() if value is not None}
        option, value = next((option, value) for option, value in self._managers.items() if value is not None)
        manager: Any = value() if option.endswith("_factory") else value
        if "agent" in option:
            return StandardMagenticManager(manager, **self._agent_options, **limits)
        if not isinstance(manager, MagenticManagerBase):
            raise DefinitionError(f"{manager!r:.80} is not a manager: pass a MagenticManagerBase, or manager_agent=...")
        # A clone: the caller may use the same object for another team.
        limited = manager.clone()
        vars(limited).update(limits)
        return limited

    def _check(self, members: Mapping[str, Executor]) -> Iterable[Check]:
        managers = [option for option, value in self._managers.items() if value is not None]
        named = " and ".join(managers) or "nothing"
        yield (
            len(managers) != 1,
            f"a team has exactly one manager: pass one of {', '.join(self._managers)}, not {named}",
        )
        has_agent = any("agent" in option for option in managers)
        for option, value in self._agent_options.items():
            yield (
                value is not None and not has_agent,
                f"{option} applies only to a manager that is an agent: pass it to the manager itself",
            )
        for option in ("manager_factory", "manager_agent_factory"):
            factory = self._managers[option]
            yield factory is not None and not callable(factory), f"{option} must be callable, not {factory!r:.80}"
        ledger = self._agent_options["task_ledger"]
        yield (
            not isinstance(ledger, MagenticTaskLedger | None),
            f"task_ledger must be a MagenticTaskLedger, with facts and a plan, not {ledger!r:.80}",
        )
        for option, limit in self._limits.items():
            least = 1 if option == "max_round_count" else 0
            is_wrong = limit is not None and (not isinstance(limit, int) or limit < least)
            yield is_wrong, f"{option} must be an integer of at least {least}, not {limit!r}"
        for id, member in members.items():
            yield (
                id == ORCHESTRATOR,
                f"a participant has the name of the orchestrator, {ORCHESTRATOR!r}: give it another name",
            )
            yield (
                id != ORCHESTRATOR and interface_of(member) not in ("agent", "executor"),
                f"{id!r}, a {type(member).__name__}, cannot receive instructions: it needs a handler for "
                f"AgentExecutorRequest that sends an AgentExecutorResponse, or one for GroupChatRequestMessage that "
                f"sends a GroupChatResponseMessage",
            )
