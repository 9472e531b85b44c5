"""Who plans the work of a team and keeps an eye on it."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from stepwell.agents.agent import Agent
from stepwell.agents.agent_types import agent_of
from stepwell.agents.executor import AgentExecutor
from stepwell.agents.messages import AgentResponse, Message
from stepwell.agents.turn_input import Rules
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

Call = Callable[[Agent, Sequence[Message]], Awaitable[AgentResponse]]


@dataclass(frozen=True, slots=True)
class MagenticContext:
    """What a manager is given each time it is asked something: where the work is, and a hand to call agents with."""

    task: Message
    participant_descriptions: Mapping[str, str]
    call: Call  # let an agent answer these messages; each call of its model and its tools is made once
    chat_history: Sequence[Message] = ()  # what was said since the plan was made; the plan itself comes first
    round_count: int = 0
    stall_count: int = 0
    reset_count: int = 0
    ledger: Message | None = None  # what `plan` or `replan` gave last
    progress_ledger: MagenticProgressLedger | None = field(default=None)

    @property
    def team(self) -> str:
        """Who takes part, one line each."""
        return "\n".join(f"{name}: {description}" for name, description in self.participant_descriptions.items())


class MagenticManagerBase(ABC):
    """Plans the work of a team and keeps an eye on it.

    Each question is asked once: what a method gave is noted before anything comes of it, together with what
    `on_checkpoint_save` gives, and recalled after a crash. A manager that keeps nothing but what it finds in the
    context needs neither of the two methods for checkpoints.
    """

    rules = Rules()  # for the calls of agents: what is asked about, and the budget

    def __init__(
        self,
        *,
        max_stall_count: int = 3,
        max_reset_count: int | None = None,
        max_round_count: int | None = None,
    ) -> None:
        self.max_stall_count = max_stall_count  # rounds without progress; one more, and another plan is made
        self.max_reset_count = max_reset_count  # how often another plan may be made because of that
        self.max_round_count = max_round_count

    @abstractmethod
    async def plan(self, context: MagenticContext) -> Message:
        """How the task is to be done."""

    @abstractmethod
    async def replan(self, context: MagenticContext) -> Message:
        """How it is to be done instead: the plan led nowhere, or a person wants another one."""

    @abstractmethod
    async def create_progress_ledger(self, context: MagenticContext) -> MagenticProgressLedger | None:
        """Where the work is, and who goes on; None if that cannot be said: then another plan is made."""

    @abstractmethod
    async def prepare_final_answer(self, context: MagenticContext) -> Message:
        """The answer to whoever gave the task."""

    def on_checkpoint_save(self) -> dict[str, Any]:
        """What the manager must remember, as data."""
        return {}

    def on_checkpoint_restore(self, state: dict[str, Any]) -> None:  # noqa: B027 - most managers keep nothing
        """Take back what `on_checkpoint_save` gave."""

    def clone(self) -> Self:
        """A manager for another run: plain data is copied, agents and clients are shared."""
        twin = copy.copy(self)
        vars(twin).update(plain_copy(vars(self)))
        return twin


class StandardMagenticManager(MagenticManagerBase):
    """A manager that asks an agent: for the facts, for a plan, after each round for the progress, for the answer.

    The agent begins each time with nothing but what it is told then; it may be an AgentExecutor, whose approvals and
    budget count. A `task_ledger` is used as the first plan. The prompts may be replaced; in braces they name what is
    filled in: `{task}` and `{team}`, and, each in the prompt that is about it, `{facts}`, `{plan}`, `{old_facts}`
    and `{names}`.
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
        before = [*context.chat_history, self._fill_prompt("task_ledger_facts_prompt", context)]
        facts = await self._ask_agent(before, context)
        plan = await self._ask_agent([*before, facts, self._fill_prompt("task_ledger_plan_prompt", context)], context)
        return self._make_ledger_message(MagenticTaskLedger(facts, plan), context)

    async def replan(self, context: MagenticContext) -> Message:
        ledger = context.ledger
        facts_before = (
            ledger.data.facts if ledger is not None and isinstance(ledger.data, MagenticTaskLedger) else ledger
        )
        old = facts_before.text if facts_before is not None else ""
        before = [*context.chat_history, self._fill_prompt("task_ledger_facts_update_prompt", context, old_facts=old)]
        facts = await self._ask_agent(before, context)
        plan = await self._ask_agent(
            [*before, facts, self._fill_prompt("task_ledger_plan_update_prompt", context)], context
        )
        return self._make_ledger_message(MagenticTaskLedger(facts, plan), context)

    async def create_progress_ledger(self, context: MagenticContext) -> MagenticProgressLedger | None:
        names = list(context.participant_descriptions)
        messages = [*context.chat_history, self._fill_prompt("progress_ledger_prompt", context, names=", ".join(names))]
        for _ in range(max(1, self.progress_ledger_retry_count)):
            response = await context.call(self.agent, messages)
            ledger = parse_ledger(response, names)
            if isinstance(ledger, MagenticProgressLedger):
                return ledger
            complaint = Message("user", prompts.PROGRESS_AGAIN.format(problem=ledger))
            messages += [Message("assistant", response.text, MANAGER), complaint]
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


def parse_ledger(response: AgentResponse, names: Iterable[str]) -> MagenticProgressLedger | str:
    """The progress ledger that an answer holds; or what is wrong with the answer, in words."""
    keys = [item_field.name for item_field in fields(MagenticProgressLedger)]
    problem = "there is no JSON object in it"
    for candidate in reversed(objects_in(response)):
        missing = [key for key in keys if key not in candidate]
        if missing:
            problem = f"the object has no {', '.join(missing)}"
            continue
        items = {key: _parse_item(candidate[key], key.startswith("is_")) for key in keys}
        wrong = [
            f"the answer of {key} is missing or not {_EXPECTED[key]}" for key, item in items.items() if item is None
        ]
        if wrong:
            return "; ".join(wrong)
        ledger = MagenticProgressLedger(**{key: item for key, item in items.items() if item is not None})
        participants = list(names)
        if not ledger.is_request_satisfied.answer and ledger.next_speaker.answer not in participants:
            return f"nobody is called {ledger.next_speaker.answer!r}; next_speaker is one of {', '.join(participants)}"
        return ledger
    return problem


_EXPECTED = {
    "is_request_satisfied": "true or false",
    "is_in_loop": "true or false",
    "is_progress_being_made": "true or false",
    "next_speaker": "a name",
    "instruction_or_question": "a text",
}


def _parse_item(value: Any, is_yes_or_no: bool) -> MagenticProgressLedgerItem | None:
    answer = value.get("answer") if isinstance(value, Mapping) else value
    reason = str(value.get("reason", "")) if isinstance(value, Mapping) else ""
    if is_yes_or_no:
        answer = {"true": True, "yes": True, "false": False, "no": False}.get(str(answer).strip().lower())
        return None if answer is None else MagenticProgressLedgerItem(reason, answer)
    if answer is None:  # there is nobody to speak and nothing to be said when the task is done
        answer = ""
    return MagenticProgressLedgerItem(reason, answer.strip()) if isinstance(answer, str) else None


_PLACEHOLDERS = {
    "task_ledger_full_prompt": ("facts", "plan"),
    "task_ledger_facts_update_prompt": ("old_facts",),
    "progress_ledger_prompt": ("names",),
}
"""What prompts may name besides the task and the team."""


def _check_prompts(prompts_given: Mapping[str, tuple[str | None, str]]) -> dict[str, str]:
    """The prompts to use. Raises DefinitionError if one of them names something that nobody fills in."""
    prompts_used = {name: default if own is None else own for name, (own, default) in prompts_given.items()}
    wrong: list[str] = []
    for name, prompt in prompts_used.items():
        placeholders = ("task", "team", *_PLACEHOLDERS.get(name, ()))
        try:
            prompt.format(**dict.fromkeys(placeholders, ""))
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            words = ", ".join(f"{{{placeholder}}}" for placeholder in placeholders)
            wrong.append(f"{name} cannot be filled in ({error}): it may name {words}; other braces are written twice")
    if wrong:
        raise DefinitionError(wrong)
    return prompts_used
