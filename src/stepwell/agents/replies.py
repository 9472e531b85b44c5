"""What models return and agents answer, as values that can be stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stepwell.agents.messages import Message, Usage


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a turn."""

    messages: Sequence[Message] = ()
    history: Sequence[Any] = ()  # appended to `turn.history` of the next turns
    state: Any = None  # `turn.state` of the next turn; written whole each time, so keep it small
    value: Any = None  # the parsed answer, if there is more than text
    handoff: str | None = None  # the handoff tool that ended the turn


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that a model requests."""

    id: str  # unique among the calls of one reply
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    needs_approval: bool = False
    description: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)  # JSON schema of the arguments


ONE_CALL = Usage(calls=1)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model returned, as data that can be stored and recalled."""

    data: Any  # the reply in the caller's own format
    text: str = ""
    calls: Sequence[ToolCall] = ()
    usage: Usage = ONE_CALL
