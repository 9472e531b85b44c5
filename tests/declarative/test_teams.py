"""A node whose agent is a workflow, and agents of every kind."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    DefinitionError,
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    Message,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
)
from stepwell.agents import ScriptedAgent
from stepwell.declarative import AgentEvent, AgentWorkflow, ApprovalRequestedEvent, WorkflowAgentCompletedEvent, greater
from stepwell.orchestrations import SequentialBuilder
from stepwell.testing import crash_everywhere
from tests.agents.kits import KITS
from tests.agents.kits.deeds import TRACE, traces
from tests.agents.openai_server import model_server
from tests.support.streams import collect

HERE = Path(__file__).parent


class Asks(Executor):
    @handler
    async def ask(self, messages: list[Message], ctx: WorkflowContext[None, str]) -> None:
        await ctx.request_info(f"which colour, {messages[-1].text}?", str)

    @response_handler
    async def told(self, asked: str, colour: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"it is {colour}")


def around(workflow: Workflow, **options: Any) -> AgentWorkflow:
    return (
        AgentWorkflow.create()
        .with_name("outer")
        .with_checkpointing()
        .with_workflow_store(InMemoryCheckpointStorage())
        .add_agent("team", workflow.as_agent("team"), output_key="said", **options)
        .add_agent("after", ScriptedAgent("a", lambda heard: f"<{heard[-1].text}>"), input_key="said")
        .from_("team")
        .to("after")
    )


def pair() -> Workflow:
    first = ScriptedAgent("first", lambda heard: f"1 {heard[-1].text}")
    second = ScriptedAgent("second", lambda heard: f"2 {heard[-1].text}")
    return SequentialBuilder(participants=[first, second]).build()


async def test_a_team_of_agents_can_be_one_agent() -> None:
    events = [event async for event in around(pair()).build().run("go")]
    done = [(event.agent, event.outputs) for event in events if isinstance(event, WorkflowAgentCompletedEvent)]
    assert done == [("team", {"said": "2 1 go"}), ("after", {"after": "<2 1 go>"})]
    chains = {event.chain for event in events if isinstance(event, AgentEvent)}
    assert chains == {("outer", "team", "first"), ("outer", "team", "second"), ("outer", "after")}


async def test_what_a_team_asks_reaches_the_stream_and_the_answer_leads_on() -> None:
    workflow = around(WorkflowBuilder(name="inner", start_executor=Asks("asks")).build(), approval=True).build()
    asked = [event async for event in workflow.run("ada", run_id="r") if isinstance(event, ApprovalRequestedEvent)]
    assert [(event.agent, event.data) for event in asked] == [("team", "which colour, ada?")]
    result = await workflow.resume("r", responses={asked[0].request_id: "red"})
    ((id, request),) = result.requests.items()
    assert (request.node, request.output) == ("team", "it is red")
    assert (await workflow.resume("r", responses={id: request.approve()})).output == "<it is red>"


async def test_a_team_in_a_loop_begins_anew_each_time() -> None:
    @executor(id="counts")
    async def counts(messages: list[Message], ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f'{{"n": {len(messages)}, "x": {len(messages[-1].text)}}}')

    workflow = (
        AgentWorkflow.create()
        .add_agent(
            "team", WorkflowBuilder(name="inner", start_executor=counts).build().as_agent("t"), output="structured"
        )
        .add_agent("more", ScriptedAgent("m", lambda heard: "a long text"))
        .from_("team")
        .to("more", when=~greater("team.x", 5))
        .from_("more")
        .to("team")
        .build()
    )
    result = await workflow.run("go")
    assert result.values["team"] == {"n": 1, "x": 11}
    assert result.output == {"n": 1, "x": 11}


async def test_a_team_that_fails_says_so_under_the_name_of_its_node() -> None:
    @executor(id="breaks")
    async def breaks(messages: list[Message], ctx: WorkflowContext[None, str]) -> None:
        raise OSError("gone")

    workflow = around(WorkflowBuilder(name="inner", start_executor=breaks).build()).build()
    events: list[Any] = []
    with pytest.raises(HandlerFailed, match="gone"):
        await collect(workflow.run("go"), events)
    failed = [event for event in events if isinstance(event, WorkflowAgentCompletedEvent)]
    assert [(event.agent, event.success) for event in failed] == [("team", False)]


@pytest.mark.long
async def test_a_team_dies_anywhere() -> None:
    workflow = around(pair(), approval=True).build()
    report = await crash_everywhere(
        workflow.workflow, workflow.make_start_message("go", "s"), answer=lambda event: event.data.approve()
    )
    assert report.crashes > 8


def test_what_a_team_cannot_have_is_refused() -> None:
    with pytest.raises(DefinitionError, match="'team' is a workflow and does not support timeout, on_error"):
        around(pair(), timeout=3, on_error="skip").build()


async def test_a_definition_binds_a_team_by_name() -> None:
    text = around(pair()).build().to_json()
    after = ScriptedAgent("a", lambda heard: "end")
    again = AgentWorkflow.from_json(text).with_agents({"team": pair().as_agent("x"), "after": after}).build()
    assert (await again.run("go")).values["said"] == "2 1 go"


def from_pydantic_ai() -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    return Agent(TestModel(custom_output_text="hello"), name="x")


def from_langchain() -> Any:
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    return create_agent(GenericFakeChatModel(messages=iter([AIMessage("hello")])), name="x")


async def function(messages: list[Message]) -> str:
    await asyncio.sleep(0)
    return "hello"


@pytest.mark.parametrize(
    "make",
    [from_pydantic_ai, from_langchain, lambda: function, lambda: ScriptedAgent("x", ["hello"])],
    ids=["pydantic-ai", "langchain", "function", "scripted"],
)
async def test_agents_of_every_kind_are_bound_by_name(make: Any) -> None:
    made = AgentWorkflow.create().add_agent("a", "somebody").add_agent("b", function).from_("a").to("b")
    result = await made.with_agents({"somebody": make()}).build().run("go")
    assert result.values["a"] == "hello"


@pytest.mark.process
@pytest.mark.parametrize("kit", KITS)
def test_an_agent_of_every_library_waits_for_approval_and_goes_on_in_another_process(kit: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    with model_server() as server:
        command = [sys.executable, str(HERE / "with_kit.py"), kit, server.url("by-name"), str(tmp_path / "runs.db")]
        for phase, shown in (("begin", "['ToolApprovalRequest']\n"), ("go on", "Rome - <")):
            environment = {**os.environ, TRACE: str(trace), "PYTHONPATH": str(HERE.parents[1])}
            done = subprocess.run([*command, phase], env=environment, capture_output=True, text=True, timeout=120)
            assert done.stdout.startswith(shown), done.stdout + done.stderr
    assert [effect for effect, _ in traces(trace)] == ["pay 40"]
