"""Every option of a node comes to the same wherever the run dies."""

from collections.abc import Callable
from typing import Any

import pytest

from stepwell import LatestOnly, Message
from stepwell.agents import Calls, Fails, ScriptedAgent
from stepwell.declarative import AgentWorkflow, Approval, InMemoryTranscriptStore, Retries, contains, equals
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import FailingStore, crash_everywhere


def says(text: str) -> ScriptedAgent:
    return ScriptedAgent("agent", lambda messages: text)


def broken() -> ScriptedAgent:
    return ScriptedAgent("agent", lambda messages: Fails(OSError("gone"), times=10_000))


def pair(**options: Any) -> AgentWorkflow:
    """Two agents, the first of which has an option."""
    first = options.pop("agent", None) or says("draft")
    return (
        AgentWorkflow.create()
        .with_name("pair")
        .add_agent("a", first, **options)
        .add_agent("b", says("b"))
        .add_agent("spare", says("spare"))
        .add_agent("join", ScriptedAgent("join", lambda messages: f"<{messages[-1].text}>"))
        .from_("a", "b")
        .to("join")
    )


WORKFLOWS: dict[str, Callable[[], AgentWorkflow]] = {
    "isolated": lambda: pair(agent=broken(), on_error="isolate"),
    "skipped": lambda: pair(agent=broken(), on_error="skip"),
    "fallen back": lambda: pair(agent=broken(), fallback="spare"),
    "tried again": lambda: pair(agent=broken(), on_error="isolate", retry=Retries(3, initial_delay=0)),
    "asked again": lambda: pair(
        agent=ScriptedAgent("a", lambda heard: '{"x": 1}' if "again" in heard[-1].text else "what?"),
        output="structured",
        retry=Retries(2),
    ),
    "in time": lambda: pair(timeout=60, concurrency=1),
    "approved": lambda: pair(approval=Approval(message="well?")),
    "approved on a condition": lambda: pair(approval=Approval(when=contains("a", "draft"))),
    "with a tool to approve": lambda: pair(
        agent=ScriptedAgent("a", [Calls(("pay", {})), "paid"], tools={"pay": lambda: "ok"}, approve=["pay"])
    ),
    "in a loop": lambda: (
        pair(agent=ScriptedAgent("a", lambda heard: "enough" if "<" in heard[-1].text else "more"))
        .from_("join")
        .to("a", when=contains("join", "more"))
    ),
    "standing in, in a loop": lambda: (
        AgentWorkflow.create()
        .with_name("standing in")
        .add_agent("a", broken(), fallback="spare", retry=Retries(2, initial_delay=0))
        .add_agent("spare", ScriptedAgent("s", lambda heard: heard[-1].text + "s"))
        .add_agent("b", ScriptedAgent("b", lambda heard: "enough" if "sss" in heard[-1].text else heard[-1].text))
        .from_("a")
        .to("b")
        .from_("b")
        .to("a", when=~equals("b", "enough"))
    ),
    "looping beside one that is approved": lambda: (
        AgentWorkflow.create()
        .with_name("beside")
        .add_agent("x", ScriptedAgent("x", lambda heard: heard[-1].text + "x"))
        .add_agent("a", says("a"), approval=True)
        .add_agent("b", ScriptedAgent("b", lambda heard: "enough" if "xx" in heard[-1].text else heard[-1].text))
        .add_agent("join", ScriptedAgent("join", lambda heard: f"<{heard[-1].text}>"))
        .from_("x")
        .to("a", "b")
        .from_("b")
        .to("x", when=~equals("b", "enough"))
        .from_("a", "b")
        .to("join")
    ),
    "on one of two ways": lambda: (
        AgentWorkflow.create()
        .with_name("ways")
        .add_agent("a", says("left"))
        .add_agent("left", says("l"))
        .add_agent("right", says("r"))
        .from_("a")
        .to("left", when=equals("a", "left"))
        .from_("a")
        .otherwise("right")
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("which", WORKFLOWS)
async def test_a_run_dies_anywhere(which: str) -> None:
    workflow = WORKFLOWS[which]().build()
    report = await crash_everywhere(
        workflow.workflow, workflow.make_start_message("go", "s"), answer=lambda event: event.data.approve()
    )
    assert report.crashes > 8


@pytest.mark.long
async def test_a_run_that_keeps_only_its_latest_dies_anywhere() -> None:
    workflow = WORKFLOWS["approved"]().build()
    begin, answer = workflow.make_start_message("go", "s"), lambda event: event.data.approve()
    await crash_everywhere(workflow.workflow, begin, answer=answer, retention=LatestOnly)
    await crash_everywhere(workflow.workflow, begin, answer=answer, fault=FailingStore)


@pytest.mark.long
@pytest.mark.parametrize("policy", ["shared", "per-agent", "fork"])
async def test_what_is_said_is_kept_once_wherever_a_run_dies(policy: Any) -> None:
    transcripts = InMemoryTranscriptStore()

    def fresh() -> MemoryStore:
        transcripts._threads.clear()
        transcripts._threads["s"] = {"root": [Message("user", "root")]}
        return MemoryStore()

    workflow = pair().with_conversation(policy).with_transcript_store(transcripts).build()
    await crash_everywhere(workflow.workflow, workflow.make_start_message("go", "s"), store=fresh)
    said = [message.text for thread in await transcripts.threads() for message in await transcripts.read(thread)]
    assert said.count("draft") == 1
