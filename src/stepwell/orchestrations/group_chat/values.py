"""What is said and kept in a group chat: plain values that can be stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from stepwell.agents.messages import AgentResponse, Message
from stepwell.orchestrations.model_json import objects_in
from stepwell.storage.response_types import NotOfType, answer_as


@dataclass(frozen=True, slots=True)
class GroupChatState:
    """What a selection function is given."""

    current_round: int  # how many rounds there were
    participants: dict[str, str]  # what each is for, by name
    conversation: list[Message]


@dataclass(frozen=True, slots=True)
class GroupChatParticipantMessage:
    """For a participant that is no agent: this was said in the chat."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class GroupChatRequestMessage:
    """For a participant that is no agent: it has the floor, and answers with a GroupChatResponseMessage."""

    additional_instruction: str | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class GroupChatResponseMessage:
    """What a participant that is no agent says."""

    message: Message


@dataclass(frozen=True, slots=True)
class GroupChatRequestSentEvent:
    """The data of a live `group_chat` event: a participant has the floor."""

    round_index: int  # counted from 1
    participant_name: str


@dataclass(frozen=True, slots=True)
class GroupChatResponseReceivedEvent:
    """The data of a live `group_chat` event: a participant has spoken."""

    round_index: int
    participant_name: str


@dataclass(frozen=True, slots=True)
class GroupChatProgress:
    """How far a chat is, besides what was said in it."""

    round: int = 0  # how often somebody was given the floor
    waiting_for: str | None = None  # who has the floor, or is to say who gets it
    heard: dict[str, int] = field(default_factory=dict)  # how much of the conversation each was told
    useless: int = 0  # how many answers in a row of the agent that leads the chat could not be used


@dataclass(frozen=True, slots=True)
class AgentOrchestrationOutput:
    """What an agent that leads a group chat decides.

    Either the chat is over (`terminate`), perhaps with a `final_message`, or `next_speaker` has the floor.
    """

    terminate: bool
    reason: str = ""
    next_speaker: str | None = None
    final_message: str | None = None


class NotADecision(ValueError):
    """An agent that leads a group chat answered something that says nothing about what is to happen next."""


def decision_in(response: AgentResponse) -> AgentOrchestrationOutput:
    """What an agent decided: the value of its answer, or JSON in its text. Raises NotADecision in words."""
    names = [field.name for field in fields(AgentOrchestrationOutput)]
    if hasattr(response.value, "terminate"):  # also a class of the user's own, made for the library of the agent
        fields_given = {name: getattr(response.value, name) for name in names if hasattr(response.value, name)}
    else:
        objects = objects_in(response)
        if not objects:
            raise NotADecision("there is no JSON object in it")
        fields_given = objects[-1]  # a model that thinks aloud comes to its decision last
    if unknown := sorted(set(fields_given) - set(names)):
        raise NotADecision(f"it says {', '.join(map(repr, unknown))}, and only {', '.join(names)} mean something")
    try:
        decision: AgentOrchestrationOutput = answer_as(fields_given, [AgentOrchestrationOutput])
    except NotOfType as problem:
        raise NotADecision(str(problem)) from None
    return decision
