"""The steps of a handler as people read them: an agent's model and tool calls, and all others. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from stepwell.admin.values import describe_tokens
from stepwell.model.timing import CallSummary, CallTime, StepRecord
from stepwell.viz.durations import format_seconds
from stepwell.viz.markup import shorten

_LONGEST = 120  # characters of arguments on a line
_NO_SUMMARY = CallSummary()
_TURN_STEP = re.compile(r"\+*(model \d+|(began )?tool \d+/\S+ \S+)")
_NOUNS = {"model": "model call", "tool": "tool call", "step": "step"}


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """A call that a handler made as a step."""

    kind: Literal["model", "tool", "step"]
    name: str  # of a tool, or of a step; of a model call, its number in the turn
    time: CallTime | None
    attempts: int
    recalled: bool  # its result was stored before, so it was not made in this handler call
    summary: CallSummary
    has_result: bool = True  # False: it was requested, and has not returned

    def describe(self) -> str:
        """Return the call on one line: `tool refund {"amount": 5} → ok, 1.2 s`."""
        tokens = describe_tokens(self.summary.input_tokens, self.summary.output_tokens)
        facts = [tokens, f"cost {self.summary.cost}" if self.summary.cost else ""]
        facts += [f"attempt {self.attempts}"] if self.attempts > 1 else []
        # A recalled call took its time in an earlier handler call.
        facts += [format_seconds(self.time.seconds)] if self.time is not None else []
        facts += ["recalled"] if self.recalled else []
        text = f"{self.kind} {self.name}"
        if self.summary.arguments:
            text += f" {shorten(self.summary.arguments, _LONGEST)}"
        if self.summary.error:
            text += f" → error: {self.summary.error}"
        elif self.summary.result:
            text += f" → {self.summary.result}"
        elif not self.has_result:
            text += " → no result"
        return ", ".join([text, *filter(None, facts)])

    def to_dict(self) -> dict[str, Any]:
        """Return the call as JSON data; what is not known is left out."""
        summary: dict[str, Any] = msgspec.to_builtins(self.summary)
        if self.summary.cost:
            summary["cost"] = float(self.summary.cost)
        timing = {} if self.time is None else {"began": self.time.began, "seconds": self.time.seconds}
        head = {"kind": self.kind, "name": self.name, "attempts": self.attempts, "recalled": self.recalled}
        return {**head, **timing, **summary, **({} if self.has_result else {"has_result": False})}


def calls_of(steps: Iterable[StepRecord]) -> list[HandlerCall]:
    """Return the calls that steps stand for, in the order in which they ended."""
    # A mark that a tool is about to be called is a step as well, and no call.
    return [_call_of(step) for step in steps if step.summary is None or not _turn_name(step).startswith("began ")]


def call_under_way(step: StepRecord) -> HandlerCall | None:
    """Return the call that a step stands for, before its turn has said what it came to; None for a mark.

    The names that turns give to their steps have a form of their own. Should a handler name a step
    so, it is only shown in other words.
    """
    if step.summary is not None or _TURN_STEP.fullmatch(step.name) is None:
        return _call_of(step)
    return next(iter(calls_of([msgspec.structs.replace(step, summary=_NO_SUMMARY)])), None)


def summarise_calls(steps: Iterable[StepRecord]) -> str:
    """Return how many calls of each kind were made, and their tokens: `2 model calls, 1 tool call, 847 tokens`."""
    calls = calls_of(steps)
    counts = Counter(call.kind for call in calls)
    parts = [f"{n} {_NOUNS[kind]}{'' if n == 1 else 's'}" for kind, n in sorted(counts.items())]
    tokens = sum(call.summary.input_tokens + call.summary.output_tokens for call in calls)
    return ", ".join([*parts, *([f"{tokens:,} tokens"] if tokens else [])])


def _call_of(step: StepRecord) -> HandlerCall:
    kind: Literal["model", "tool", "step"] = "step"
    name = step.name
    # Only a turn of an agent writes summaries, and only its names have this form: "model 2",
    # "tool 2/call-id refund". A user's own step may have any name.
    if step.summary is not None:
        word, _, rest = _turn_name(step).partition(" ")
        kind, name = ("model", rest) if word == "model" else ("tool", rest.rpartition(" ")[2])
    return HandlerCall(kind, name, step.time, step.attempts, step.recalled, step.summary or _NO_SUMMARY)


def _turn_name(step: StepRecord) -> str:
    return step.name.lstrip("+")  # a second turn in the same handler call has a + before its names
