"""A team that a manager leads: it plans, watches the progress, and plans anew if there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, Unpack

from stepwell.agents.messages import AgentExecutorRequest
from stepwell.errors import DefinitionError
from stepwell.graph.executor import Executor
from stepwell.orchestrations.magentic.managers import MagenticManagerBase, StandardMagenticManager
from stepwell.orchestrations.magentic.orchestrator import ORCHESTRATOR, MagenticOrchestrator
from stepwell.orchestrations.magentic.values import MagenticTaskLedger
from stepwell.orchestrations.participants import TeamBuilder, TeamOptions, takes
from stepwell.workflows.builder import WorkflowBuilder

_LIMITS = ("max_stall_count", "max_reset_count", "max_round_count")


class MagenticBuilder(TeamBuilder):
    """A team that works on a task under a manager.

    The manager writes down what is known and makes a plan. After each contribution it says where the work is and who
    goes on; if there is no progress for more than `max_stall_count` rounds, it makes another plan and everybody begins
    anew. When it finds the task done, it gives the answer, which is the output of the run.

    The manager is an agent (`manager_agent`), for which the prompts may be given, or a `MagenticManagerBase`; either
    may be made by a factory. With `enable_plan_review` a person looks at each plan first.
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
        self._managers = {
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
        self._limits = dict(zip(_LIMITS, (max_stall_count, max_reset_count, max_round_count), strict=True))
        self._plan_review = enable_plan_review

    def with_plan_review(self, enable: bool = True) -> Self:
        """A person looks at each plan before it counts."""
        self._plan_review = enable
        return self

    def _wire(self, members: dict[str, Executor]) -> WorkflowBuilder:
        manager = self._make_manager()
        descriptions = {id: getattr(member, "description", None) or id for id, member in members.items()}
        orchestrator = MagenticOrchestrator(manager, descriptions, plan_review=self._plan_review)
        builder = self._start_builder(orchestrator, [ORCHESTRATOR]).add_edge(orchestrator, orchestrator)
        for member in members.values():
            builder.add_edge(orchestrator, member).add_edge(member, orchestrator)
        return builder

    def _make_manager(self) -> MagenticManagerBase:
        """Whoever leads. Raises DefinitionError if a prompt or an agent will not do."""
        limits: dict[str, Any] = {name: value for name, value in self._limits.items() if value is not None}
        match next((option, value) for option, value in self._managers.items() if value is not None):
            case "manager", manager:
                return self._apply_limits(manager, limits)
            case "manager_factory", make:
                return self._apply_limits(make(), limits)
            case "manager_agent", agent:
                pass
            case _, make:
                agent = make()
        return StandardMagenticManager(agent, **self._agent_options, **limits)

    def _apply_limits(self, manager: Any, limits: Mapping[str, int]) -> MagenticManagerBase:
        if not isinstance(manager, MagenticManagerBase):
            raise DefinitionError(f"{manager!r:.80} is no manager: give a MagenticManagerBase, or manager_agent=...")
        limited = manager.clone()  # the one given may lead another team, too
        vars(limited).update(limits)
        return limited

    def _find_problems(self, members: Mapping[str, Executor]) -> Iterable[str]:
        managers_given = [option for option, value in self._managers.items() if value is not None]
        if len(managers_given) != 1:
            named = " and ".join(managers_given) or "nothing"
            yield f"a team has one manager: give one of {', '.join(self._managers)}, not {named}"
        if not any("agent" in option for option in managers_given):
            for option, value in self._agent_options.items():
                if value is not None:
                    yield f"{option} is for a manager that is an agent: give it to the manager itself"
        for option in ("manager_factory", "manager_agent_factory"):
            if option in managers_given and not callable(self._managers[option]):
                yield f"{option} is {self._managers[option]!r:.80}, which cannot be called"
        if not isinstance(ledger := self._agent_options["task_ledger"], MagenticTaskLedger | None):
            yield f"task_ledger is a MagenticTaskLedger, with facts and a plan, not {ledger!r:.80}"
        for option, limit in self._limits.items():
            least = 1 if option == "max_round_count" else 0
            if limit is not None and (not isinstance(limit, int) or limit < least):
                yield f"{option} is a number from {least} on, not {limit!r}"
        for id, member in members.items():
            if id == ORCHESTRATOR:
                yield f"a participant is called {ORCHESTRATOR!r}, as the orchestrator is: give it another name"
            elif not takes(member, AgentExecutorRequest):
                yield (
                    f"{id!r}, a {type(member).__name__}, cannot be told what to do: it needs a handler for "
                    f"AgentExecutorRequest, and answers with an AgentExecutorResponse"
                )
