"""When handlers and steps were called, and how long they took.

These values are stored as they are: their fields are part of the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec


class CallTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The start of a call, by the wall clock, and its duration, which a change of that clock does not affect."""

    began: str  # UTC, ISO 8601
    microseconds: int  # whole, because readers and writers of JSON do not agree on how a small float is written

    @property
    def seconds(self) -> float:
        return self.microseconds / 1_000_000

    @property
    def start(self) -> datetime:
        return datetime.fromisoformat(self.began)

    @property
    def end(self) -> datetime:
        return self.start + timedelta(microseconds=self.microseconds)


class CallSummary(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a model or tool call of an agent came to, in short: its result goes with the turn, this stays."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: str = ""  # a decimal number, as text for the same reason; empty: unknown
    arguments: str = ""  # as JSON
    # the beginnings, as JSON; a string result as it is
    result: str = ""
    error: str = ""  # that the agent was shown instead of a result


class StepRecord(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A step that a handler made: that of the call whose result it used."""

    name: str
    time: CallTime | None = None
    attempts: int = 1
    recalled: bool = False  # its result was stored before, so this handler call did not make it
    summary: CallSummary | None = None  # of an agent's call


@dataclass(frozen=True, slots=True)
class HandlerReturn:
    """What a handler did before it returned, in short: the data of an `executor_returned` event."""

    sent: tuple[str, ...]  # the types of the messages
    outputs: tuple[str, ...]  # the types of the outputs
    requests: tuple[str, ...]  # ids
    steps: tuple[StepRecord, ...]
