"""Who leads a managed team: an agent, or a manager of your own."""

import asyncio
import re
from typing import Any

import pytest

from stepwell import (
    AgentExecutor,
    DefinitionError,
    InMemoryCheckpointStorage,
    Message,
    RunError,
    WorkflowContext,
    executor,
)
from stepwell.agents import Budget, Calls, ScriptedAgent, ToolApprovalRequest, conversation_key, usage_in
from stepwell.orchestrations import (
    MagenticBuilder,
    MagenticContext,
    MagenticManagerBase,
    MagenticProgressLedger,
    MagenticProgressLedgerItem,
    MagenticTaskLedger,
)
from stepwell.testing import crash_everywhere
from tests.orchestrations.managed import PROMPTS, final, in_turn, ledger, managing, state_of, team


async def test_the_default_prompts_say_what_is_asked() -> None:
    asked: list[str] = []

    def script(messages: list[Message]) -> str:
        asked.append(messages[-1].text)
        return {0: "known", 1: "the plan", 2: ledger("critic", "look"), 3: ledger(done=True), 4: "done"}[len(asked) - 1]

    builder = MagenticBuilder(
        participants=[ScriptedAgent("critic", ["good"], description="judges")],
        manager_agent=ScriptedAgent("manager", script),
    )
    assert await final(builder.build(), "a poem {with braces}") == "done"
    assert all("a poem {with braces}" in asked[n] for n in (0, 2, 4))
    assert "critic: judges" in asked[1]
    for key in ("is_request_satisfied", "next_speaker", '{"reason": "...", "answer": false}'):
        assert key in asked[2]


BAD = {
    "no JSON at all": "it contains no JSON object",
    '{"is_in_loop": true}': "the object lacks the keys is_request_satisfied, is_progress_being_made",
    ledger("nobody", "go"): "there is no participant 'nobody'; next_speaker must be one of writer, critic",
    ledger("writer").replace(
        "false", '"perhaps"'
    ): "the answer of is_request_satisfied is missing or not true or false",
    ledger("writer").replace('"writer"', "7"): "the answer of next_speaker is missing or not a name",
}


@pytest.mark.parametrize("bad", list(BAD))
async def test_a_manager_is_told_what_is_wrong_with_its_answer(bad: str) -> None:
    complaints: list[str] = []

    def progress(messages: list[Message]) -> str:
        return bad

    def script(messages: list[Message]) -> Any:
        if messages[-1].text.startswith("Your answer could not be used"):
            complaints.append(messages[-1].text)
            return in_turn(messages[:-3])
        return usual(messages)

    manager = managing(progress)
    usual: Any = manager._script
    manager._script = script
    assert await final(team(manager).build()) == "the answer: a text, a fine text"
    assert len(complaints) == 3
    assert all(BAD[bad] in complaint for complaint in complaints)


@pytest.mark.parametrize(
    "how",
    [
        lambda text: f"I think:\n```json\n{text}\n```\nSo be it.",
        lambda text: ledger("critic", "wrong") + text,
        lambda text: text.replace("true", '"Yes"').replace("false", '"no"'),
        lambda text: re.sub(r'\{"reason": "[^"]*", "answer": ([^}]*)\}', r"\1", text),
    ],
)
async def test_a_progress_ledger_is_found_in_many_forms(how: Any) -> None:
    workflow = team(managing(lambda messages: how(in_turn(messages)))).build()
    assert await final(workflow) == "the answer: a text, a fine text"


async def test_if_no_answer_will_do_another_plan_is_made() -> None:
    def progress(messages: list[Message]) -> str:
        return in_turn(messages) if any("another plan" in one.text for one in messages) else "no"

    manager = managing(progress)
    usual: Any = manager._script
    manager._script = lambda messages: "no" if messages[-1].text.startswith("That cannot") else usual(messages)
    workflow = team(manager).build()
    assert await final(workflow) == "the answer: a text, a fine text"
    assert manager.calls.count("model") == 2 + 3 + 2 + 3 + 1


async def test_a_ledger_that_is_given_is_the_first_plan() -> None:
    manager = managing(in_turn)
    given = MagenticTaskLedger(Message("assistant", "my facts"), Message("assistant", "my plan"))
    storage = InMemoryCheckpointStorage()
    workflow = team(manager, task_ledger=given, checkpoint_storage=storage).build()
    await final(workflow)
    said = (await state_of(storage))[conversation_key("magentic_orchestrator")]
    assert said[0].text == "a poem | my facts | my plan"
    assert manager.calls == ["model"] * 4


class Foreman(MagenticManagerBase):
    """A manager that is no agent, and counts."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(**limits)
        self.asked: list[str] = []
        self.really: list[str] = []

    def _note(self, what: str) -> None:
        self.asked.append(what)
        self.really.append(what)

    async def plan(self, context: MagenticContext) -> Message:
        self._note("plan")
        return Message("assistant", f"plan for {context.task.text}")

    async def replan(self, context: MagenticContext) -> Message:
        self._note("replan")
        return Message("assistant", f"not {context.plan_message.text if context.plan_message else ''}")

    async def create_progress_ledger(self, context: MagenticContext) -> MagenticProgressLedger:
        self._note("progress")
        done = len(self.asked) > 3
        item = MagenticProgressLedgerItem
        return MagenticProgressLedger(
            item("", done), item("", False), item("", True), item("", "writer"), item("", "write")
        )

    async def prepare_final_answer(self, context: MagenticContext) -> Message:
        self._note("answer")
        return Message("assistant", ", ".join(self.asked))

    def on_checkpoint_save(self) -> dict[str, Any]:
        return {"asked": self.asked}

    def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.asked = state.get("asked", [])


async def test_a_manager_of_your_own_leads_a_team() -> None:
    workflow = team(manager=Foreman()).build()
    assert await final(workflow) == "plan, progress, progress, progress, answer"
    assert [one.text for one in (await workflow.run("other", run_id="s")).get_outputs()] == [
        "plan, progress, progress, progress, answer"
    ]


@pytest.mark.long
async def test_what_a_manager_of_your_own_remembers_is_the_same_wherever_the_run_dies() -> None:
    workflow = team(manager_factory=Foreman).build()
    report = await crash_everywhere(workflow, "a poem")
    assert report.crashes > 20


class Council(Foreman):
    """Asks two agents at once for a plan."""

    def __init__(self) -> None:
        super().__init__()
        self.agents = [ScriptedAgent(name, lambda said: f"{said[0].text}!") for name in ("one", "two")]

    async def plan(self, context: MagenticContext) -> Message:
        asked = [context.call(agent, [Message("user", f"{agent.name}?")]) for agent in self.agents]
        return Message("assistant", ", ".join(response.text for response in await asyncio.gather(*asked)))


@pytest.mark.long
async def test_a_manager_of_your_own_may_ask_several_agents_at_once() -> None:
    storage = InMemoryCheckpointStorage()
    await final(team(manager=Council(), checkpoint_storage=storage).build())
    state = await state_of(storage)
    assert state["magentic/ledger"].text == "one?!, two?!"
    assert usage_in(state)["magentic_orchestrator"].calls == 2
    await crash_everywhere(team(manager=Council()).build(), "a poem")


async def test_a_manager_that_names_somebody_else_fails_the_run() -> None:
    class Confused(Foreman):
        async def create_progress_ledger(self, context: MagenticContext) -> MagenticProgressLedger:
            found = await super().create_progress_ledger(context)
            return MagenticProgressLedger(
                found.is_request_satisfied,
                found.is_in_loop,
                found.is_progress_being_made,
                MagenticProgressLedgerItem("", "nobody"),
                found.instruction_or_question,
            )

    with pytest.raises(RunError, match="chose 'nobody' as the next speaker, which is not a participant"):
        await team(manager=Confused()).build().run("a poem")


async def test_limits_are_those_of_the_manager_unless_the_team_says_others() -> None:
    foreman = Foreman(max_round_count=1)
    assert "limit of 1 rounds" in await final(team(manager=foreman).build())
    assert "limit of 2 rounds" in await final(team(manager=foreman, max_round_count=2).build())
    assert foreman.max_round_count == 1


def problems(builder: MagenticBuilder) -> str:
    with pytest.raises(DefinitionError) as raised:
        builder.build()
    return "\n".join(raised.value.problems)


def test_everything_wrong_with_a_team_is_said_at_once() -> None:
    @executor(id="plain")
    async def plain(text: str, ctx: WorkflowContext[str]) -> None: ...

    namesake = ScriptedAgent("magentic_orchestrator", [])
    found = problems(
        MagenticBuilder(participants=[plain, namesake], final_answer_prompt="?", max_round_count=0, max_stall_count=-1)
    )
    for part in (
        "pass one of manager, manager_factory, manager_agent, manager_agent_factory, not nothing",
        "final_answer_prompt applies only to a manager that is an agent",
        "max_round_count must be an integer of at least 1, not 0",
        "max_stall_count must be an integer of at least 0, not -1",
        "a participant has the name of the orchestrator, 'magentic_orchestrator'",
        "'plain', a FunctionExecutor, cannot receive instructions",
    ):
        assert part in found
    assert "not manager and manager_agent" in problems(team(manager=Foreman(), manager_agent=managing(in_turn)))
    prompts = {**PROMPTS, "final_answer_prompt": "{who}", "progress_ledger_prompt": '{"a": 1}'}
    wrong = problems(
        MagenticBuilder(participants=[ScriptedAgent("writer", [])], manager_agent=managing(in_turn), **prompts)
    )
    assert "final_answer_prompt cannot be formatted ('who'): its placeholders are {task}, {team};" in wrong
    assert "progress_ledger_prompt cannot be formatted" in wrong
    assert "is not a manager" in problems(team(manager=managing(in_turn)))


async def test_the_budget_and_the_approvals_of_the_manager_are_asked_about() -> None:
    def script(messages: list[Message]) -> Any:
        if messages[-1].text.startswith("FACTS") and not any(one.role == "tool" for one in messages):
            return Calls(("look", {}))
        return "known" if messages[-1].role == "tool" else usual(messages)

    manager = managing(in_turn, tools={"look": int})
    usual: Any = manager._script
    manager._script = script
    workflow = team(AgentExecutor(manager, approve=["look"], budget=Budget(calls=3))).build()
    result = await workflow.run("a poem", run_id="r")
    (event,) = result.get_request_info_events()
    assert event.data == ToolApprovalRequest("magentic_orchestrator", "look", {}, "call-0")
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.approve()})
    (event,) = result.get_request_info_events()
    assert (event.data.budget, event.data.spent) == ("calls", 3)
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.raise_to(100)})
    assert [one.text for one in result.get_outputs()] == ["the answer: a text, a fine text"]
    assert manager.calls.count("model") == 7
    assert manager.calls.count("look") == 1
