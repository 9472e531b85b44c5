"""Managers of Magentic teams: the interface, and the standard manager that asks an agent."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self

from stepwell.agents.agent_types import Agent, agent_of
from stepwell.agents.executor import AgentExecutor
from stepwell.agents.messages import AgentResponse, Message
from stepwell.agents.turn_input import AgentRules
from stepwell.errors import DefinitionError
from stepwell.model.payload import plain_copy
from stepwell.orchestrations.magentic import prompts
from stepwell.orchestrations.magentic.values import (
    MANAGER,
    MagenticProgressLedger,
    MagenticProgressLedgerItem,
    MagenticTaskLedger,
)
from stepwell.orchestrations.model_json import objects_in


class AgentCall(Protocol):
    """Lets an agent answer messages; with an answer type, a dataclass, in that form if its library can."""

    def __call__(
        self, agent: Agent, messages: Sequence[Message], answer_type: Any = None, /
    ) -> Awaitable[AgentResponse]: ...


@dataclass(frozen=True, slots=True)
class MagenticContext:
    """What a manager knows when it is asked something, and how it calls agents."""

    task: Message
    participant_descriptions: Mapping[str, str]
    call: AgentCall  # lets an agent answer messages; calls of its model and its tools are steps
    chat_history: Sequence[Message] = ()  # starts with the current plan
    round_count: int = 0
    stall_count: int = 0
    reset_count: int = 0
    plan_message: Message | None = None  # the latest result of `plan` or `replan`
    progress_ledger: MagenticProgressLedger | None = None

    @property
    def team(self) -> str:
        """The participants with their descriptions, one per line."""
        return "\n".join(f"{name}: {description}" for name, description in self.participant_descriptions.items())


class MagenticManagerBase(ABC):
    """Plans the work of a team and tracks its progress.

    Each method call is a step: its result, and that of `on_checkpoint_save`, are stored before they
    take effect, and recalled after a crash. A manager without state of its own needs neither of the
    two checkpoint methods.
    """

    rules = AgentRules()  # approvals and budget for the agents that the manager calls

    def __init__(
        self,
        *,
        max_stall_count: int = 3,
        max_reset_count: int | None = None,
        max_round_count: int | None = None,
    ) -> None:
        self.max_stall_count = max_stall_count  # rounds without progress before the manager replans
        self.max_reset_count = max_reset_count  # how often it may replan because of that
        self.max_round_count = max_round_count

    @abstractmethod
    async def plan(self, context: MagenticContext) -> Message:
        """Return a plan for the task."""

    @abstractmethod
    async def replan(self, context: MagenticContext) -> Message:
        """Return another plan, because the work has stalled or a person has asked for changes."""

    @abstractmethod
    async def create_progress_ledger(self, context: MagenticContext) -> MagenticProgressLedger | None:
        """Assess the progress and choose the next speaker; None if that fails, which leads to another plan."""

    @abstractmethod
    async def prepare_final_answer(self, context: MagenticContext) -> Message:
        """Return the final answer to the task."""

    def on_checkpoint_save(self) -> dict[str, Any]:
        """Return the manager's own state, as data."""
        return {}

    def on_checkpoint_restore(self, state: dict[str, Any]) -> None:  # noqa: B027 - most managers keep nothing
        """Restore what `on_checkpoint_save` returned."""

    def clone(self) -> Self:
        """Return a manager for another run: plain data is copied, agents and clients are shared."""
        # Not deepcopy: clients and locks of agents cannot be copied.
        clone = copy.copy(self)
        vars(clone).update(plain_copy(vars(self)))
        return clone


class StandardMagenticManager(MagenticManagerBase):
    """A manager that asks an agent for the facts, the plan, the progress after each round, and the answer.

    The agent sees only the messages it is sent each time. It may be an AgentExecutor, whose approvals
    and budget apply. A `task_ledger` is used as the first plan. The prompts may be replaced. All of them
    may use the placeholders `{task}` and `{team}`, and three have more:

        task_ledger_full_prompt           {facts}, {plan}
        task_ledger_facts_update_prompt   {old_facts}
        progress_ledger_prompt            {names}: the participants, of which one speaks next
    """

    def __init__(
        self,
        agent: Any,
        task_ledger: MagenticTaskLedger | None = None,
        *,
        task_ledger_facts_prompt: str | None = None,
        task_ledger_plan_prompt: str | None = None,
        task_ledger_full_prompt: str | None = None,
        task_ledger_facts_update_prompt: str | None = None,
        task_ledger_plan_update_prompt: str | None = None,
        progress_ledger_prompt: str | None = None,
        final_answer_prompt: str | None = None,
        max_stall_count: int = 3,
        max_reset_count: int | None = None,
        max_round_count: int | None = None,
        progress_ledger_retry_count: int | None = None,
    ) -> None:
        super().__init__(
            max_stall_count=max_stall_count, max_reset_count=max_reset_count, max_round_count=max_round_count
        )
        if isinstance(agent, AgentExecutor):
            self.agent, self.rules = agent.agent, agent.rules
        else:
            self.agent = agent_of(agent)
        self.task_ledger = task_ledger
        self.progress_ledger_retry_count = 3 if progress_ledger_retry_count is None else progress_ledger_retry_count
        self._prompts = _check_prompts(
            {
                "task_ledger_facts_prompt": (task_ledger_facts_prompt, prompts.FACTS),
                "task_ledger_plan_prompt": (task_ledger_plan_prompt, prompts.PLAN),
                "task_ledger_full_prompt": (task_ledger_full_prompt, prompts.LEDGER),
                "task_ledger_facts_update_prompt": (task_ledger_facts_update_prompt, prompts.FACTS_AGAIN),
                "task_ledger_plan_update_prompt": (task_ledger_plan_update_prompt, prompts.PLAN_AGAIN),
                "progress_ledger_prompt": (progress_ledger_prompt, prompts.PROGRESS),
                "final_answer_prompt": (final_answer_prompt, prompts.FINAL),
            }
        )

    async def plan(self, context: MagenticContext) -> Message:
        if self.task_ledger is not None:
            return self._make_ledger_message(self.task_ledger, context)
        request = self._fill_prompt("task_ledger_facts_prompt", context)
        return await self._make_plan(request, self._fill_prompt("task_ledger_plan_prompt", context), context)

    async def replan(self, context: MagenticContext) -> Message:
        # A subclass may have made a plan without a task ledger: then its whole text counts as facts.
        before = context.plan_message
        facts_before = before.data.facts if before and isinstance(before.data, MagenticTaskLedger) else before
        old_facts = facts_before.text if facts_before is not None else ""
        request = self._fill_prompt("task_ledger_facts_update_prompt", context, old_facts=old_facts)
        return await self._make_plan(request, self._fill_prompt("task_ledger_plan_update_prompt", context), context)

    async def _make_plan(self, facts_request: Message, plan_request: Message, context: MagenticContext) -> Message:
        messages = [*context.chat_history, facts_request]
        facts = await self._ask_agent(messages, context)
        plan = await self._ask_agent([*messages, facts, plan_request], context)
        return self._make_ledger_message(MagenticTaskLedger(facts, plan), context)

    async def create_progress_ledger(self, context: MagenticContext) -> MagenticProgressLedger | None:
        names = list(context.participant_descriptions)
        messages = [*context.chat_history, self._fill_prompt("progress_ledger_prompt", context, names=", ".join(names))]
        # Models do not always return valid JSON: show them the problem and let them try again.
        for _ in range(max(1, self.progress_ledger_retry_count)):
            response = await context.call(self.agent, messages, MagenticProgressLedger)
            ledger = parse_ledger(response, names)
            if isinstance(ledger, MagenticProgressLedger):
                return ledger
            correction = Message("user", prompts.PROGRESS_AGAIN.format(problem=ledger))
            messages += [Message("assistant", response.text, MANAGER), correction]
        return None

    async def prepare_final_answer(self, context: MagenticContext) -> Message:
        return await self._ask_agent(
            [*context.chat_history, self._fill_prompt("final_answer_prompt", context)], context
        )

    async def _ask_agent(self, messages: Sequence[Message], context: MagenticContext) -> Message:
        response = await context.call(self.agent, messages)
        return Message("assistant", response.text, MANAGER)

    def _make_ledger_message(self, ledger: MagenticTaskLedger, context: MagenticContext) -> Message:
        facts, plan = ledger.facts.text, ledger.plan.text
        text = self._fill_prompt("task_ledger_full_prompt", context, facts=facts, plan=plan).text
        return Message("assistant", text, MANAGER, data=ledger)

    def _fill_prompt(self, prompt: str, context: MagenticContext, **more: str) -> Message:
        text = self._prompts[prompt].format(task=context.task.text, team=context.team, **more)
        return Message("user", text, MANAGER)


def parse_ledger(response: AgentResponse, names: Sequence[str]) -> MagenticProgressLedger | str:
    """Return the progress ledger in an answer, or a description of what is wrong with the answer."""
    keys = [item_field.name for item_field in fields(MagenticProgressLedger)]
    problem = "it contains no JSON object"
    # A model that thinks aloud may write several objects; the ledger is the last complete one.
    for candidate in reversed(objects_in(response)):
        missing = [key for key in keys if key not in candidate]
        if missing:
            problem = f"the object lacks the keys {', '.join(missing)}"
            continue
        items = {key: _parse_item(candidate[key], key.startswith("is_")) for key in keys}
        wrong = [
            f"the answer of {key} is missing or not {_EXPECTED[key]}" for key, item in items.items() if item is None
        ]
        if wrong:
            return "; ".join(wrong)
        ledger = MagenticProgressLedger(**{key: item for key, item in items.items() if item is not None})
        speaker = ledger.next_speaker.answer
        # When the task is done there is no next speaker, so the name does not matter then.
        if not ledger.is_request_satisfied.answer and speaker not in names:
            return f"there is no participant {speaker!r}; next_speaker must be one of {', '.join(names)}"
        return ledger
    return problem


_EXPECTED = {
    "is_request_satisfied": "true or false",
    "is_in_loop": "true or false",
    "is_progress_being_made": "true or false",
    "next_speaker": "a name",
    "instruction_or_question": "a string",
}


def _parse_item(value: Any, is_boolean: bool) -> MagenticProgressLedgerItem | None:
    # Some models leave out the reason and give the answer itself instead of an object.
    answer = value.get("answer") if isinstance(value, Mapping) else value
    reason = str(value.get("reason", "")) if isinstance(value, Mapping) else ""
    if is_boolean:
        answer = {"true": True, "yes": True, "false": False, "no": False}.get(str(answer).strip().lower())
        return None if answer is None else MagenticProgressLedgerItem(reason, answer)
    # When the task is done, there is no next speaker and no instruction.
    text = "" if answer is None else answer
    return MagenticProgressLedgerItem(reason, text.strip()) if isinstance(text, str) else None


# Placeholders that a prompt may use besides the task and the team.
_PLACEHOLDERS = {
    "task_ledger_full_prompt": ("facts", "plan"),
    "task_ledger_facts_update_prompt": ("old_facts",),
    "progress_ledger_prompt": ("names",),
}


def _check_prompts(prompts_and_defaults: Mapping[str, tuple[str | None, str]]) -> dict[str, str]:
    """Return the prompts to use. Raises DefinitionError if one of them has an unknown placeholder."""
    chosen = {name: default if custom is None else custom for name, (custom, default) in prompts_and_defaults.items()}
    problems: list[str] = []
    for name, prompt in chosen.items():
        placeholders = ("task", "team", *_PLACEHOLDERS.get(name, ()))
        try:
            prompt.format(**dict.fromkeys(placeholders, ""))
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            allowed = ", ".join(f"{{{placeholder}}}" for placeholder in placeholders)
            problems.append(
                f"{name} cannot be formatted ({error}): its placeholders are {allowed}; double other braces"
            )
    if problems:
        raise DefinitionError(problems)
    return chosen
