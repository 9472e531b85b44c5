"""A group chat that an agent leads: its decisions, and what happens to answers that are none."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from stepwell import AgentExecutor, InMemoryCheckpointStorage, Message, RunError, Workflow
from stepwell.agents import AgentResponse, Calls, Fails, Says, ScriptedAgent, conversation_key
from stepwell.agents.scripted import Move
from stepwell.orchestrations import AgentOrchestrationOutput, GroupChatBuilder
from stepwell.orchestrations.group_chat.values import NotADecision, decision_in
from stepwell.testing import crash_everywhere


def speaker(name: str) -> ScriptedAgent:
    return ScriptedAgent(name, lambda messages: f"{name} {len(messages)}", description=f"{name} of all")


def to(name: str) -> str:
    return json.dumps({"terminate": False, "reason": "", "next_speaker": name})


OVER = json.dumps({"terminate": True, "reason": "all said", "next_speaker": None, "final_message": "the result"})


def led(script: Any, **options: Any) -> Workflow:
    chair = ScriptedAgent("chair", script) if not isinstance(script, (ScriptedAgent, AgentExecutor)) else script
    return GroupChatBuilder(participants=[speaker("a"), speaker("b")], orchestrator_agent=chair, **options).build()


async def test_an_agent_says_who_speaks_and_when_it_is_over() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = led([to("b"), to("a"), OVER], checkpoint_storage=storage)
    result = await workflow.run("go", run_id="r")
    assert [output.text for output in result.get_outputs()] == ["the result"]
    head = await storage.get_latest(run_id="r")
    assert head is not None
    said = [(one.author_name, one.text) for one in head.state[conversation_key("group_chat_orchestrator")]]
    assert said == [(None, "go"), ("b", "b 1"), ("a", "a 2"), ("group_chat_orchestrator", "the result")]


async def test_the_agent_is_told_once_who_takes_part_and_each_message_once() -> None:
    storage = InMemoryCheckpointStorage()
    await led([to("b"), to("b"), OVER], checkpoint_storage=storage).run("go", run_id="r")
    head = await storage.get_latest(run_id="r")
    assert head is not None
    told = [message.text for message in head.state[conversation_key("chair")] if message.author_name != "chair"]
    assert told[0] == "go"
    assert "- a: a of all\n- b: b of all" in told[1]
    assert told[2::2] == ["b 1", "b 2"]
    assert told[3::2] == ["What happens next? Answer with one JSON object in the format given at the beginning."] * 2


def test_the_way_is_a_star_with_the_agent_in_it() -> None:
    edges = [edge.describe() for edge in led([OVER]).edges]
    assert edges[-2:] == ["group_chat_orchestrator -> chair", "chair -> group_chat_orchestrator"]


async def test_an_answer_that_is_no_decision_is_sent_back_with_the_reason() -> None:
    heard: list[str] = []
    answers = iter(["let me think", to("nobody"), to("a"), "hm", OVER])

    def script(messages: list[Message]) -> str:
        heard.append(messages[-1].text)
        return next(answers)

    result = await led(script).run("go")
    assert [output.text for output in result.get_outputs()] == ["the result"]
    assert "could not be used: it contains no JSON object" in heard[1]
    assert "'nobody', which is not a participant. The participants are a, b." in heard[2]
    assert "could not be used" not in heard[3]


async def test_after_so_many_useless_answers_the_run_fails_and_goes_on_from_before() -> None:
    answers = ["?", "??", OVER]
    asked: list[str] = []

    def script(messages: list[Message]) -> str:
        asked.append(answers[len(asked)])
        return asked[-1]

    storage = InMemoryCheckpointStorage()
    workflow = led(script, retry_attempts=1, checkpoint_storage=storage)
    with pytest.raises(
        RunError, match=r"'chair', which leads .* no usable decision in 2 attempts.* Its last answer was '\?\?'"
    ):
        await workflow.run("go", run_id="r")
    first = (await storage.list_checkpoints(run_id="r"))[0]
    result = await workflow.run(checkpoint_id=first.checkpoint_id)
    assert [output.text for output in result.get_outputs()] == ["the result"]


async def test_an_agent_that_ends_a_chat_without_a_word_gives_its_reason() -> None:
    result = await led(['{"terminate": true, "reason": "all is said"}']).run("go")
    assert result.get_outputs()[0].text == "The chat is over: all is said"


async def test_rounds_and_conditions_hold_whoever_leads() -> None:
    chair = ScriptedAgent("chair", lambda messages: to("a"))
    result = await led(chair, max_rounds=2).run("go")
    assert "2 rounds" in result.get_outputs()[0].text
    assert chair.calls == ["model"] * 2
    result = await led(chair, termination_condition=lambda said: said[-1].text == "a 2").run("go")
    assert "condition is met" in result.get_outputs()[0].text


@dataclass
class OwnDecision:
    terminate: bool
    next_speaker: str | None


PLAIN = AgentOrchestrationOutput(False, "", "a")


@pytest.mark.parametrize(
    "response",
    [
        AgentResponse([Message("assistant", to("a"))]),
        AgentResponse([Message("assistant", f"I think so:\n```json\n{to('a')}\n```\n")]),
        AgentResponse([Message("assistant", f"{OVER}{to('a')}")]),
        AgentResponse([Message("assistant", f"{{not json}} {to('a')}")]),
        AgentResponse(value=PLAIN),
        AgentResponse(value={"terminate": False, "next_speaker": "a"}),
        AgentResponse(value=OwnDecision(False, "a")),
    ],
    ids=["json", "fenced", "the last of several", "after rubbish", "value", "mapping", "own class"],
)
def test_a_decision_is_found_however_it_is_said(response: AgentResponse) -> None:
    assert decision_in(response) == PLAIN


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a speaks next", "it contains no JSON object"),
        ("[1]", "it contains no JSON object"),
        ('{"a":' * 100_000, "it contains no JSON object"),
        ('{"next_speaker": "a"}', "terminate"),
        ('{"terminate": "perhaps"}', "terminate"),
        ('{"terminate": false, "mood": "good"}', "it has the unknown keys 'mood'"),
    ],
)
def test_what_is_no_decision_is_refused_in_words(text: str, problem: str) -> None:
    with pytest.raises(NotADecision, match=problem):
        decision_in(AgentResponse([Message("assistant", text)]))


def chair() -> AgentExecutor:
    """Looks something up, which is asked about, and thinks twice."""
    script: list[Move] = [
        Calls(("look", {})),
        to("b"),
        "hm",
        Says("", value=AgentOrchestrationOutput(False, "", "a")),
        OVER,
    ]
    return AgentExecutor(ScriptedAgent("chair", script, tools={"look": int}), approve=["look"])


@pytest.mark.long
async def test_the_agent_asks_and_the_chat_comes_to_the_same_wherever_it_dies() -> None:
    report = await crash_everywhere(led(chair()), "go", answer=lambda event: event.data.approve())
    assert report.crashes > 30


async def test_a_decision_is_asked_for_once() -> None:
    agent = ScriptedAgent("chair", [to("a"), OVER])
    talker = ScriptedAgent("a", [Fails(OSError("gone")), "here"])
    workflow = GroupChatBuilder(
        participants=[talker], orchestrator_agent=agent, checkpoint_storage=InMemoryCheckpointStorage()
    ).build()
    with pytest.raises(RunError, match="gone"):
        await workflow.run("go", run_id="r")
    assert len((await workflow.run(run_id="r")).get_outputs()) == 1
    assert agent.calls == ["model"] * 2
