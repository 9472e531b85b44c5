"""What models reply and agents answer, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stepwell.agents.messages import Message, Usage


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent comes to at the end of a turn."""

    messages: Sequence[Message] = ()
    history: Sequence[Any] = ()  # what it wants to find in `turn.history` from now on, after what is there already
    state: Any = None  # what it wants to find as `turn.state` next time: small, it is written anew each time
    value: Any = None  # what the answer was parsed into
    handoff: str | None = None  # whom it hands over to


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model wants a tool to be called."""

    id: str  # unlike those of the other calls of the same reply
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    needs_approval: bool = False
    description: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)  # the JSON schema of the arguments


ONE_CALL = Usage(calls=1)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model replied, as data that can be stored and recalled."""

    data: Any  # the reply in the form of whoever called the model
    text: str = ""
    calls: Sequence[ToolCall] = ()
    usage: Usage = ONE_CALL
