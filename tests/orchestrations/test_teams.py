"""What is true of every team."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import stepwell.orchestrations
from stepwell import (
    AgentExecutor,
    DefinitionError,
    Executor,
    InMemoryCheckpointStorage,
    Message,
    SuperstepLimit,
    Workflow,
    WorkflowContext,
    handler,
)
from stepwell.agents import Calls, ScriptedAgent
from stepwell.orchestrations import (
    ConcurrentBuilder,
    GroupChatBuilder,
    GroupChatState,
    SequentialBuilder,
    participants_of,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"


class Listener(Executor):
    @handler
    async def hear(self, messages: list[Message], ctx: WorkflowContext[None, str]) -> None: ...


def in_turn(state: GroupChatState) -> str:
    return list(state.participants)[state.current_round % len(state.participants)]


def team() -> list[ScriptedAgent]:
    clerk = ScriptedAgent("clerk", [Calls(("look", {})), "seen"], tools={"look": int})
    return [ScriptedAgent("writer", ["a text", "another"]), clerk]


BUILDERS: dict[str, Any] = {
    "sequential": lambda **options: SequentialBuilder(participants=team(), **options),
    "concurrent": lambda **options: ConcurrentBuilder(participants=team(), **options),
    "group chat": lambda **options: GroupChatBuilder(
        participants=team(), selection_func=in_turn, max_rounds=3, **options
    ),
}


@pytest.mark.parametrize("shape", BUILDERS)
async def test_it_goes_on_from_any_of_its_checkpoints(shape: str) -> None:
    storage = InMemoryCheckpointStorage()
    workflow: Workflow = BUILDERS[shape](checkpoint_storage=storage).build()
    result = await workflow.run("go", run_id="r")
    expected = [output.text for output in result.get_outputs()]
    checkpoints = await storage.list_checkpoints(run_id="r")
    assert len(checkpoints) >= 4
    for checkpoint in checkpoints:
        again = await BUILDERS[shape](checkpoint_storage=storage).build().run(checkpoint_id=checkpoint.checkpoint_id)
        assert [output.text for output in again.get_outputs()] == expected


@pytest.mark.parametrize("shape", BUILDERS)
async def test_supersteps_can_be_limited(shape: str) -> None:
    with pytest.raises(SuperstepLimit):
        await BUILDERS[shape](max_iterations=1).build().run("go")


@pytest.mark.parametrize("shape", BUILDERS)
async def test_one_team_serves_many_runs_at_once(shape: str) -> None:
    workflow = BUILDERS[shape]().build()
    first, second = await asyncio.gather(workflow.run("one"), workflow.run("two"))
    assert first.get_outputs()[0].text == second.get_outputs()[0].text
    assert workflow.max_iterations == stepwell.orchestrations.DEFAULT_TEAM_ITERATIONS


def test_participants_become_executors_in_their_order() -> None:
    async def shout(text: str) -> str:
        return text.upper()

    agent, wrapped, listener = (
        ScriptedAgent("agent", []),
        AgentExecutor(ScriptedAgent("x", []), id="own"),
        Listener("l"),
    )
    found = participants_of(iter([agent, wrapped, listener, shout]))
    assert list(found) == ["agent", "own", "l", "shout"]
    assert (found["own"], found["l"]) == (wrapped, listener)
    assert isinstance(found["agent"], AgentExecutor)
    assert isinstance(found["shout"], AgentExecutor)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([], "at least one participant"),
        ("agents", "must be a list of agents"),
        (None, "must be a list of agents"),
        (Listener("l"), "must be a list of agents"),
        ([Listener], "cannot be a participant"),
        ([len], "cannot be a participant"),
        ([Listener("a"), Listener("a")], "two participants have the name 'a'"),
        ([ScriptedAgent("", [])], "has no name"),
    ],
)
def test_what_cannot_be_a_team_is_refused(given: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        participants_of(given)


def test_every_public_name_is_written_about() -> None:
    words = set(re.findall(r"\w+", "\n".join(page.read_text() for page in DOCS.glob("*.md"))))
    assert [name for name in stepwell.orchestrations.__all__ if name not in words] == []
