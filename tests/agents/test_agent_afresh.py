"""An agent that begins anew, and an agent that answers as a part of somebody else's turn."""

from typing import Any

import pytest

from stepwell import (
    AgentExecutor,
    InMemoryCheckpointStorage,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
)
from stepwell.agents import AgentExecutorRequest, Answer, Calls, ScriptedAgent, Turn, conversation_key, usage_in
from stepwell.testing import crash_everywhere


@executor(id="host")
async def host(texts: list[str], ctx: WorkflowContext[AgentExecutorRequest]) -> None:
    for text in texts:
        afresh = text.startswith("new:")
        await ctx.send_message(AgentExecutorRequest([Message("user", text)], afresh=afresh))


async def test_an_agent_that_begins_anew_knows_nothing_but_what_it_used_up() -> None:
    heard: list[list[str]] = []

    async def guest(messages: list[Message]) -> str:
        heard.append([message.text for message in messages])
        return f"answer {len(heard)}"

    storage = InMemoryCheckpointStorage()
    member = AgentExecutor(guest)
    workflow = WorkflowBuilder(start_executor=host, checkpoint_storage=storage).add_edge(host, member).build()
    result = await workflow.run(["one", "two", "new: three", "four"])
    assert heard == [["one"], ["one", "answer 1", "two"], ["new: three"], ["new: three", "answer 3", "four"]]
    checkpoint = await storage.get_latest(run_id=result.run_id)
    assert checkpoint is not None
    said = [message.text for message in checkpoint.state[conversation_key("guest")]]
    assert said == ["new: three", "answer 3", "four", "answer 4"]
    assert usage_in(checkpoint.state)["guest"].calls == 4


async def test_the_answer_to_a_question_of_a_turn_that_was_forgotten_changes_nothing() -> None:
    def script(messages: list[Message]) -> Any:
        return Calls(("pay", {})) if messages[-1].text == "one" else "fine"

    member = AgentExecutor(ScriptedAgent("guest", script, tools={"pay": int}), approve=["pay"])
    storage = InMemoryCheckpointStorage()
    workflow = WorkflowBuilder(start_executor=host, checkpoint_storage=storage).add_edge(host, member).build()
    result = await workflow.run(["one", "new: two"], run_id="r")
    assert [one.text for one in result.get_outputs()] == ["fine"]
    (event,) = result.get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.approve()})
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert [one.text for one in result.get_outputs()] == ["fine"]


class Chair:
    """Lets two agents speak in its own turn, the second about what the first said."""

    name = "chair"

    def __init__(self) -> None:
        self.first = ScriptedAgent("first", [Calls(("look", {})), "a cat"], tools={"look": int})
        self.second = ScriptedAgent("second", lambda messages: f"{messages[-1].text}, {len(messages)} heard")

    async def take_turn(self, turn: Turn) -> Answer:
        one = await turn.within([Message("user", "what is it?")], self.first.take_turn)
        two = await turn.within([Message("user", one.messages[0].text)], self.second.take_turn)
        return Answer([Message("assistant", f"{turn.messages[0].text} {two.messages[0].text}")])


async def test_an_agent_answers_as_a_part_of_a_turn_and_nothing_is_done_twice() -> None:
    chair = Chair()
    storage = InMemoryCheckpointStorage()
    executor = AgentExecutor(chair, approve=["look"])
    workflow = WorkflowBuilder(start_executor=executor, checkpoint_storage=storage).build()
    (event,) = (await workflow.run("say:", run_id="r")).get_request_info_events()
    result = await workflow.run(run_id="r", responses={event.request_id: event.data.approve()})
    (response,) = result.get_outputs()
    assert response.text == "say: a cat, 1 heard"
    assert response.usage.calls == 3
    assert chair.first.calls == ["model", "look", "model"]


@pytest.mark.long
async def test_a_turn_with_others_in_it_comes_to_the_same_wherever_a_run_dies() -> None:
    workflow = WorkflowBuilder(start_executor=AgentExecutor(Chair(), approve=["look"])).build()
    await crash_everywhere(workflow, "say:", answer=lambda event: event.data.approve())
