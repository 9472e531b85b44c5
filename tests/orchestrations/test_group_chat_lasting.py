"""A group chat that lasts: through crashes, in a new process, and for hundreds of rounds at the same price."""

from pathlib import Path
from statistics import median
from typing import Any

import pytest

from stepwell import AgentExecutor, Message, RunError, SQLiteCheckpointStorage, Workflow
from stepwell.agents import Budget, BudgetRequest, Calls, Fails, ScriptedAgent, ToolApprovalRequest
from stepwell.orchestrations import AgentRequestInfoResponse, GroupChatBuilder, GroupChatState
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import crash_everywhere
from stepwell.testing.faults.wrapped_store import WrappedStore


def in_turn(state: GroupChatState) -> str:
    return list(state.participants)[state.current_round % len(state.participants)]


def chat(storage: Any = None, **options: Any) -> Workflow:
    """A writer whose drafts are looked at, and a clerk whose payments are approved and who has a budget."""
    writer = ScriptedAgent("writer", ["draft", "better", "done"])
    clerk = ScriptedAgent("clerk", [Calls(("pay", {})), "paid"], tools={"pay": int})
    team = [writer, AgentExecutor(clerk, approve=["pay"], budget=Budget(calls=1))]
    known = {"selection_func": in_turn, "max_rounds": 3, "checkpoint_storage": storage, **options}
    return GroupChatBuilder(participants=team, **known).with_request_info(agents=[writer]).build()


def decide(event: Any) -> Any:
    match event.data:
        case ToolApprovalRequest():
            return event.data.approve()
        case BudgetRequest():
            return event.data.raise_to(9)
    if event.data.agent_response.text == "draft":
        return AgentRequestInfoResponse.from_strings(["again"])
    return AgentRequestInfoResponse.approve()


@pytest.mark.long
async def test_it_comes_to_the_same_wherever_it_dies() -> None:
    asked: set[type] = set()

    def answer(event: Any) -> Any:
        asked.add(type(event.data))
        return decide(event)

    def done(conversation: list[Message]) -> bool:
        return conversation[-1].text == "done"

    report = await crash_everywhere(chat(termination_condition=done), "go", answer=answer)
    assert report.crashes > 40
    assert len(asked) == 3


async def test_it_goes_on_in_a_new_workflow_object_from_sqlite(tmp_path: Path) -> None:
    def build() -> Workflow:
        return chat(SQLiteCheckpointStorage(tmp_path / "runs.db"))

    result = await build().run("go", run_id="r")
    questions = 0
    while events := result.get_request_info_events():
        questions += 1
        result = await build().run(run_id="r", responses={events[0].request_id: decide(events[0])})
    assert questions == 5
    assert "3 rounds" in result.get_outputs()[0].text


async def test_choices_and_conditions_are_asked_once() -> None:
    asked: list[str] = []

    async def choose(state: GroupChatState) -> str:
        asked.append("choose")
        return "a"

    def over(conversation: list[Message]) -> bool:
        asked.append("over")
        return len(conversation) > 2

    workflow = GroupChatBuilder(
        participants=[ScriptedAgent("a", lambda messages: "well")], selection_func=choose, termination_condition=over
    ).build()
    report = await crash_everywhere(workflow, "go")
    # each run asks two choices and three conditions; the one that dies right before an answer is noted asks again
    assert len(asked) <= 5 * report.runs + 5


async def test_a_participant_that_fails_has_the_floor_again_and_nobody_else_is_asked() -> None:
    asked: list[int] = []

    def choose(state: GroupChatState) -> str:
        asked.append(state.current_round)
        return "a"

    workflow = GroupChatBuilder(
        participants=[ScriptedAgent("a", ["one", Fails(OSError("gone"), times=2), "two"])],
        selection_func=choose,
        max_rounds=2,
        checkpoint_storage=BuiltInStorage(MemoryStore()),
    ).build()
    for _ in range(2):
        with pytest.raises(RunError, match="gone"):
            await workflow.run("go", run_id="r")
    assert len((await workflow.run("go", run_id="r")).get_outputs()) == 1
    assert asked == [0, 1]


class Weighed(WrappedStore):
    """Notes the weight of each record."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.weights: list[int] = []

    async def write(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
        if name == "append":
            self.weights.append(len(args[0].body))
        return await call()


@pytest.mark.long
@pytest.mark.parametrize("led_by_agent", [False, True], ids=["selection function", "agent"])
async def test_two_hundred_rounds_cost_the_same_at_the_end_as_at_the_beginning(led_by_agent: bool) -> None:
    rounds, store = 200, Weighed(MemoryStore())
    decisions = iter(range(10_000))

    def decide_next(messages: list[Message]) -> str:
        return f'{{"terminate": false, "next_speaker": "p{next(decisions) % 4}"}}'

    lead: dict[str, Any] = {"selection_func": in_turn}
    if led_by_agent:
        lead = {"orchestrator_agent": ScriptedAgent("chair", decide_next)}
    team = [ScriptedAgent(f"p{n}", lambda messages: "x" * 300) for n in range(4)]
    workflow = GroupChatBuilder(
        participants=team, max_rounds=rounds, checkpoint_storage=BuiltInStorage(store), **lead
    ).build()
    result = await workflow.run("go")
    assert f"{rounds} rounds" in result.get_outputs()[0].text
    assert sum(len(agent.calls) for agent in team) == rounds
    a_tenth = len(store.weights) // 10
    assert a_tenth >= 40
    # the middle one of a tenth of the records: now and then one of them is a frame, which says everything
    early, late = median(store.weights[a_tenth : 2 * a_tenth]), median(store.weights[-a_tenth:])
    assert late < 1.2 * early
