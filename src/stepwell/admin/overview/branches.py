"""How far the handler calls of the superstep in progress are, from its log. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from stepwell.admin.calls import HandlerCall, calls_of
from stepwell.admin.diffs.documents import plain_value
from stepwell.admin.values import open_value, to_data, to_line
from stepwell.declarative.stored_run import is_failed_attempt
from stepwell.graph.edges import fan_in_of
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowErrorDetails
from stepwell.model.log_keys import LogEntry, RecalledLog, attempt_key
from stepwell.model.timing import CallSummary, CallTime, StepRecord
from stepwell.viz.durations import format_seconds

_STEP = re.compile(r"(?:\d+|=[0-9a-f]+)(?:@[^/]*)?/(.*)", re.DOTALL)
_SHOWN = 120  # characters of a result, as in the records of a commit


@dataclass(frozen=True, slots=True)
class BranchProgress:
    """One handler call of the superstep in progress.

    `finished`: its outcome is stored, and it is not called again. `working`: a process is calling
    it. `next`: nobody is, and a resume calls it. `sleeping` and `retrying`: it continues at `due`.
    `failed`: it failed, and there is no further attempt; a resume calls it again.
    """

    delivery: str
    executor: str
    state: Literal["finished", "working", "next", "sleeping", "retrying", "failed"]
    time: CallTime | None = None  # of the call, if it is finished
    attempts: int = 1
    calls: tuple[HandlerCall, ...] = ()  # whose results are stored
    due: str | None = None
    failure: WorkflowErrorDetails | None = None  # of the last attempt
    since: str | None = None  # working: the last commit, before which it cannot have begun

    def describe(self, *, now: datetime, moment: Callable[[str], str]) -> str:
        """Return how far it is in words; `moment` formats a stored time."""
        facts: list[str] = [self.state]
        if self.since is not None:
            span = max((now - datetime.fromisoformat(self.since)).total_seconds(), 0.0)
            facts.append(f"{format_seconds(span)} since the last commit")
        facts += [format_seconds(self.time.seconds)] if self.time is not None else []
        facts += [f"attempt {self.attempts}"] if self.attempts > 1 else []
        facts += [f"until {moment(self.due)}"] if self.due else []
        return ", ".join(facts)

    def rename(self, node: str) -> BranchProgress:
        """Return it as a call of a node of named agents: a failed turn, which it records as a step, is an attempt."""
        calls = tuple(call for call in self.calls if not (call.kind == "step" and is_failed_attempt(call.name)))
        earlier = len(self.calls) - len(calls) - (self.state == "failed")
        return replace(self, executor=node, calls=calls, attempts=self.attempts + max(earlier, 0))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        failure = self.failure
        return {
            "executor": self.executor,
            "state": self.state,
            "attempts": self.attempts,
            "began": None if self.time is None else self.time.began,
            "seconds": None if self.time is None else self.time.seconds,
            "since": self.since,
            "due": self.due,
            "error": None if failure is None else f"{failure.error_type}: {failure.message}",
            "calls": [call.to_dict() for call in self.calls],
        }


def branches_of(
    at: Checkpoint, log: RecalledLog, *, is_driven: bool, failed: Container[str | None] = (), now: datetime
) -> tuple[BranchProgress, ...]:
    """Return the handler calls of the superstep that follows a checkpoint, in the order of its plan.

    `failed` are the executors whose failure stopped the run.
    """
    executors = dict(_plan_calls(at))
    executors |= {id: outcome.executor for id, outcome in log.outcomes.items()}
    by_delivery: dict[str, dict[str, LogEntry]] = {}
    for key, entry in log.entries.items():
        by_delivery.setdefault(key.partition("/")[0], {})[key] = entry
    branches = []
    for id, executor in executors.items():
        if (outcome := log.outcomes.get(id)) is not None:
            calls = tuple(calls_of(outcome.steps))
            branches.append(BranchProgress(id, executor, "finished", outcome.time, outcome.attempts, calls))
        else:
            branch = _unfinished(id, executor, by_delivery.get(id, {}), is_driven, now)
            # Without a retry policy there is no entry about a failed attempt.
            if branch.state == "working":
                branch = replace(branch, since=at.stamp.at)
            branches.append(replace(branch, state="failed") if executor in failed and not is_driven else branch)
    return tuple(branches)


def following_of(at: Checkpoint) -> list[str]:
    """Return the executors that are called next, each once."""
    return list(dict.fromkeys(executor for _, executor in _plan_calls(at)))


def _plan_calls(at: Checkpoint) -> Iterator[tuple[str, str]]:
    """Yield delivery and executor of each call that the messages in flight lead to.

    As `kernel.plan` does it with the graph; here its stored signature is enough.
    """
    late = [message for message in at.messages if message.is_late(at.place)]
    calls = [taker for message in at.messages if message not in late for taker in message.takers]
    joined = {key: {s for s, held in by_source.items() if held} for key, by_source in at.held.items()}
    for message in at.messages:
        for key in message.joins:
            joined.setdefault(key, set()).add(message.source or "")
    moved = {key for message in at.messages for key in message.joins}
    for text in map(str, at.header.signature.get("edges", ())):
        fan_in = fan_in_of(text) if text in moved else None
        if fan_in is not None and joined[text].issuperset(fan_in.sources):
            calls.append(fan_in.target)
    calls += [taker for message in late for taker in message.takers]
    return ((f"{at.place}.{n}", executor) for n, executor in enumerate(calls))


def _unfinished(
    id: str, executor: str, entries: Mapping[str, LogEntry], is_driven: bool, now: datetime
) -> BranchProgress:
    failures = 0
    while attempt_key(id, failures + 1) in entries:
        failures += 1
    last = entries.get(attempt_key(id, failures))
    dues = [entry.due for key, entry in entries.items() if key.startswith(f"{id}/timer/") and _is_ahead(entry.due, now)]
    state: Literal["working", "next", "sleeping", "retrying", "failed"] = "working" if is_driven else "next"
    due = min(dues, default=None)
    if last is not None and last.final:
        state = "failed"
    elif last is not None and _is_ahead(last.due, now):
        state, due = "retrying", last.due
    elif due is not None:
        state = "sleeping"
    failure = None if last is None else last.failure
    return BranchProgress(
        id,
        executor,
        state,
        attempts=failures + (state != "failed"),
        calls=tuple(_logged_calls(id, entries)),
        due=due,
        failure=failure,
    )


def _is_ahead(due: str, now: datetime) -> bool:
    return bool(due) and datetime.fromisoformat(due) > now


def _logged_calls(id: str, entries: Mapping[str, LogEntry]) -> Iterator[HandlerCall]:
    """Yield the calls whose results are in the log, in the order of its keys, and tool calls without a result."""
    requested: dict[str, tuple[str, str]] = {}  # name and arguments of tool calls, by their ids
    returned: set[str] = set()
    for key, entry in entries.items():
        match = _STEP.fullmatch(key.removeprefix(f"{id}/step/")) if key.startswith(f"{id}/step/") else None
        # Failed attempts at a step have a time at which the next is due; its result has none.
        if match is not None and not entry.due:
            summary = _summarise(entry, match[1], requested)
            returned.add(_call_id(match[1]))
            yield from calls_of([StepRecord(match[1], entry.time, entry.attempts, summary=summary)])
    for call_id, (tool, arguments) in requested.items():
        if call_id not in returned:
            yield HandlerCall("tool", tool, None, 1, False, CallSummary(arguments=arguments), has_result=False)


def _call_id(name: str) -> str:
    """Return the id of a tool call, from the name of its step: `tool 2/call-id refund`."""
    return name.partition("/")[2].rpartition(" ")[0]


def _summarise(entry: LogEntry, name: str, requested: dict[str, tuple[str, str]]) -> CallSummary | None:
    """Return what an agent's call came to, and note the tool calls it requests; None for any other step."""
    stored = None if entry.value is None else plain_value(entry.value)
    fields = open_value(stored).content
    tag = stored.get("$") if isinstance(stored, dict) and isinstance(fields, dict) else None
    if tag == "stepwell:ModelReply":
        for call in _fields_of_all(fields.get("calls")):
            requested[str(call.get("id"))] = to_line(call.get("name")), _format_arguments(call.get("arguments"))
        usage = next(_fields_of_all([fields.get("usage")]), {})
        cost = usage.get("cost")
        return CallSummary(
            input_tokens=int(usage.get("input_tokens", 0)),
            output_tokens=int(usage.get("output_tokens", 0)),
            cost="" if cost is None else f"{cost:g}",
        )
    if tag == "stepwell:ToolDone":
        error, value = fields.get("error"), fields.get("value")
        result = "" if value is None or error else to_line(value, longest=_SHOWN)
        _, arguments = requested.get(_call_id(name), ("", ""))
        return CallSummary(arguments=arguments, result=result, error=to_line(error) if error else "")
    return CallSummary() if name.lstrip("+").startswith("began ") else None


def _format_arguments(stored: Any) -> str:
    """Return the arguments of a tool as the record of a finished turn has them."""
    text = json.dumps(to_data(stored), ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _fields_of_all(stored: Any) -> Iterator[dict[str, Any]]:
    items = open_value(stored).content
    for item in items if isinstance(items, list) else ():
        if isinstance(fields := open_value(item).content, dict):
            yield fields
