"""What the tests of subtle cases share."""

from dataclasses import dataclass
from typing import Any

from stepwell import (
    InMemoryCheckpointStorage,
    Message,
)
from stepwell.agents import Fails, ScriptedAgent
from stepwell.declarative import (
    AgentWorkflow,
)


def says(text: str, heard: list[str] | None = None) -> Any:
    async def agent(messages: list[Message]) -> str:
        if heard is not None:
            heard.append(messages[-1].text)
        return text

    return agent


def one_after_the_other(*texts: str, heard: list[str] | None = None) -> Any:
    left = list(texts)

    async def agent(messages: list[Message]) -> str:
        if heard is not None:
            heard.append(messages[-1].text)
        return left.pop(0)

    return agent


def broken(times: int = 10_000, then: str = "fine") -> ScriptedAgent:
    return ScriptedAgent("broken", [Fails(OSError("gone"), times=times), then])


def stored(name: str = "stored", storage: Any = None) -> AgentWorkflow:
    return (
        AgentWorkflow.create()
        .with_name(name)
        .with_checkpointing()
        .with_workflow_store(storage or InMemoryCheckpointStorage())
    )


async def told(stream: Any, *kinds: type) -> list[Any]:
    return [event async for event in stream if not kinds or isinstance(event, kinds)]


# --- outputs ----------------------------------------------------------------------------------------------------------


@dataclass
class Review:
    score: int
    note: str = ""
