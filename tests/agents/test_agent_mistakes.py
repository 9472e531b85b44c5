"""What is given wrongly to agents and teams is refused where it is given, in words."""

from collections.abc import Callable
from typing import Any

import pytest

from stepwell import AgentExecutor, InMemoryCheckpointStorage, WorkflowBuilder
from stepwell.agents import Budget, BudgetResponse, Calls, ScriptedAgent
from stepwell.orchestrations import (
    AgentRequestInfoResponse,
    ConcurrentBuilder,
    GroupChatBuilder,
    HandoffAgentUserRequest,
    HandoffBuilder,
    MagenticBuilder,
    SequentialBuilder,
)
from stepwell.workflows import AgentSession

given: Any = [1]
NAN = float("nan")


def clerk(**options: Any) -> AgentExecutor:
    return AgentExecutor(ScriptedAgent("clerk", ["hello"]), **options)


def team() -> list[Any]:
    return [ScriptedAgent("ann", ["hello"]), ScriptedAgent("bob", ["hello"])]


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: clerk(approve=5), "approve must be a list of tool names, not 5"),
    (lambda: clerk(unsafe=given), r"unsafe must be a list of tool names, not \[1\]"),
    (lambda: clerk(budget=5), r"the budget of 'clerk' must be a Budget, as in Budget\(calls=20\), or None, not 5"),
    (lambda: clerk(price=5), "price of 'clerk' must be a function, not 5"),
    (lambda: clerk(context_mode="custom", context_filter=5), "context_filter of 'clerk' must be a function, not 5"),
    (lambda: clerk(handoffs="bob"), "handoffs of 'clerk' must map tool names to descriptions, not 'bob'"),
    (lambda: ScriptedAgent("clerk", "hello"), "the script of 'clerk' must be a list of moves or a function"),
    (lambda: ScriptedAgent("clerk", [], approve="pay"), r"not one string: approve=\['pay'\]"),
    (
        lambda: ScriptedAgent("clerk", [], tools=given),
        r"the tools of 'clerk' must be a mapping of names to functions, not \[1\]",
    ),
    (lambda: Budget(calls=-1), r"Budget\(calls=...\) must be a number of at least 0, or None, not -1"),
    (lambda: Budget(tokens=NAN), r"Budget\(tokens=...\) must be a number of at least 0"),  # type: ignore[arg-type]
    (lambda: Budget(cost="5"), r"Budget\(cost=...\) must be a number of at least 0"),  # type: ignore[arg-type]
    (lambda: Budget(calls=5, whole_run=given), r"Budget\(whole_run=...\) must be True or False, not \[1\]"),
    (
        lambda: AgentSession.from_dict({"session": "anna"}),
        r"a session is read from the result of its to_dict\(\), not from",
    ),
    (lambda: HandoffAgentUserRequest.create_response(given[0]), "expected a str, a Message or a list of them, not int"),
    (lambda: AgentRequestInfoResponse.from_strings(given), r"takes a list of strings: from_strings\(\[\[1\]\]\)"),
    (lambda: AgentRequestInfoResponse.from_messages("hello"), "from_messages takes a list of messages"),  # type: ignore[arg-type]
    (lambda: SequentialBuilder(participants=team(), output_from=given[0]).build(), "output_from must be a list of"),
    (lambda: ConcurrentBuilder().with_request_info(agents=given[0]), "with_request_info takes a list of agents"),
    (
        lambda: GroupChatBuilder(participant_factories=given).build(),
        "participant_factories must be a list of functions",
    ),
    (
        lambda: GroupChatBuilder(participants=team(), selection_func=str, orchestrator_name=given).build(),
        "orchestrator_name must be a non-empty string",
    ),
    (lambda: HandoffBuilder().with_autonomous_mode(agents="ann"), r"takes a list of agents: agents=\['ann'\]"),
    (
        lambda: HandoffBuilder().with_autonomous_mode(prompts=given),
        "prompts of with_autonomous_mode must be a mapping by agent",
    ),
    (
        lambda: HandoffBuilder(participants=team(), termination_condition=given).with_start_agent("ann").build(),
        "termination_condition must be callable, not",
    ),
    (
        lambda: MagenticBuilder(participants=team(), manager_factory=given).build(),
        "manager_factory must be callable, not",
    ),
    (
        lambda: MagenticBuilder(participants=team(), manager_agent=clerk(), task_ledger=given).build(),
        "task_ledger must be a MagenticTaskLedger, with facts and a plan",
    ),
    (lambda: SequentialBuilder(participants=team()).build().as_agent(given), "must be a string, not"),
]


@pytest.mark.parametrize(("mistake", "words"), MISTAKES, ids=range(len(MISTAKES)))
def test_what_is_given_wrongly_is_refused_in_words(mistake: Callable[[], Any], words: str) -> None:
    with pytest.raises(Exception, match=words) as refused:
        mistake()
    assert type(refused.value).__name__ in ("TypeError", "ValueError", "DefinitionError")


async def test_a_conversation_is_held_in_a_session_and_by_messages() -> None:
    agent = SequentialBuilder(participants=team()).build().as_agent()
    with pytest.raises(TypeError, match=r"session must be an AgentSession, .*, not 'anna'"):
        await agent.run("hello", session="anna")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="expected a str, a Message or a list of them, not int: 5"):
        await agent.run(5)  # type: ignore[call-overload]


async def test_a_limit_that_is_no_number_is_no_limit_to_go_on_to() -> None:
    digger = ScriptedAgent("digger", [Calls(("dig", {})), "done"], tools={"dig": int})
    start = AgentExecutor(digger, budget=Budget(calls=1))
    workflow = WorkflowBuilder(start_executor=start, checkpoint_storage=InMemoryCheckpointStorage()).build()
    (event,) = (await workflow.run("go", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: BudgetResponse(NAN)})
    (again,) = result.get_request_info_events()
    assert (again.request_type, digger.calls) == ("BudgetRequest", ["model", "dig"])
