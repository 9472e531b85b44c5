"""The messages, events, decisions and progress of a group chat: plain values that can be stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from stepwell.agents.messages import AgentResponse, Message
from stepwell.orchestrations.model_json import objects_in
from stepwell.storage.response_types import NotOfType, answer_as


@dataclass(frozen=True, slots=True)
class GroupChatState:
    """The argument of a selection function."""

    current_round: int  # rounds completed so far
    participants: dict[str, str]  # descriptions, by name
    conversation: list[Message]


@dataclass(frozen=True, slots=True)
class GroupChatParticipantMessage:
    """New messages of the chat, for a participant that is not an agent."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class GroupChatRequestMessage:
    """A request to speak, for a participant that is not an agent; it answers with a GroupChatResponseMessage."""

    additional_instruction: str | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class GroupChatResponseMessage:
    """The answer of a participant that is not an agent."""

    message: Message


@dataclass(frozen=True, slots=True)
class GroupChatRequestSentEvent:
    """The data of a live `group_chat` event: a participant was asked to speak."""

    round_index: int  # counted from 1
    participant_name: str


@dataclass(frozen=True, slots=True)
class GroupChatResponseReceivedEvent:
    """The data of a live `group_chat` event: a participant has answered."""

    round_index: int
    participant_name: str


@dataclass(frozen=True, slots=True)
class GroupChatProgress:
    """The progress of a chat, besides its conversation."""

    round: int = 0  # how often a participant was asked to speak
    waiting_for: str | None = None  # the participant that speaks, or the agent that leads the chat
    heard: dict[str, int] = field(default_factory=dict)  # how many messages each has received
    useless: int = 0  # unusable answers in a row of the agent that leads the chat


@dataclass(frozen=True, slots=True)
class AgentOrchestrationOutput:
    """The decision of an agent that leads a group chat.

    Either the chat is over (`terminate`), optionally with a `final_message`, or `next_speaker` speaks.
    """

    terminate: bool
    reason: str = ""
    next_speaker: str | None = None
    final_message: str | None = None


class NotADecision(ValueError):
    """An agent that leads a group chat gave an answer that is not a valid decision."""


def decision_in(response: AgentResponse) -> AgentOrchestrationOutput:
    """Return an agent's decision: the value of its answer, or JSON in its text.

    Raises NotADecision, with a message that the agent can act on.
    """
    names = [field.name for field in fields(AgentOrchestrationOutput)]
    # By attributes, because users define their own class of this shape for the agent's library.
    if hasattr(response.value, "terminate"):
        values = {name: getattr(response.value, name) for name in names if hasattr(response.value, name)}
    else:
        objects = objects_in(response)
        if not objects:
            raise NotADecision("it contains no JSON object")
        # A model that thinks aloud may write several; its decision comes last.
        values = objects[-1]
    if unknown := sorted(set(values) - set(names)):
        raise NotADecision(f"it has the unknown keys {', '.join(map(repr, unknown))}; allowed are {', '.join(names)}")
    try:
        decision: AgentOrchestrationOutput = answer_as(values, [AgentOrchestrationOutput])
    except NotOfType as problem:
        raise NotADecision(str(problem)) from None
    return decision
