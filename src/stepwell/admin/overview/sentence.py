"""A run in one sentence. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from stepwell.admin.diffs.documents import plain_value
from stepwell.admin.live_workers import describe_workers
from stepwell.admin.overview.run_overview import RunOverview
from stepwell.admin.overview.set_timers import timers_of
from stepwell.admin.phrases import FormatMoment, format_utc
from stepwell.admin.questions import question_of
from stepwell.admin.values import to_line
from stepwell.storage.checked_reads import read_moment
from stepwell.viz.durations import format_seconds


def sentence_of(overview: RunOverview, *, now: datetime, moment: FormatMoment = format_utc) -> str:
    """Say what a run is, why it waits or stopped, and what comes next. `moment` formats a stored time."""
    at, run = overview.at, overview.run
    subject = f"Run {at.run_id} of {at.header.workflow}"
    if not overview.is_head:
        where = f"commit {at.number} of {run.number} ({overview.commit.kind.value})"
        return f"{subject} as it was at {where}; {_next(overview)}."
    match run.standing:
        case "completed":
            return f"{subject} is completed; it took {_lasted(overview)}."
        case "failed":
            retried = f" After a retry, {describe_workers(overview.workers)} drives it." if overview.workers else ""
            return f"{subject} failed{_describe_failure(overview)}; {_resumed(overview)}.{retried}"
        case "cancelled":
            commit = overview.commit
            by = f" by {commit.by}" if commit.by else ""
            reason = f" ({commit.reason})" if commit.reason else ""
            return f"{subject} was cancelled{by}{reason}; {_resumed(overview)}."
        case "waiting":
            return f"{subject} is waiting {_describe_wait(overview, now)}"
        case "sleeping":
            until = run.until or at.wake or ""
            wake = f"sleeping until {moment(until)}{_distance(until, now)}"
            return f"{subject} is {wake}; {_next(overview)} then. {_who_drives(overview, 'wakes it')}"
        case "running":
            asks = f" Meanwhile it is waiting {_describe_wait(overview, now)}" if overview.requests else ""
            if overview.requests and overview.pending.keys() >= overview.requests.keys():
                asks = f" Meanwhile {_describe_arrived(overview)}."
            return f"{subject} is running, driven by {run.owner}: {_progress(overview)}.{asks}"
        case "stalled":
            last = f"its last commit was {_ago(run.since or at.stamp.at, now)}"
            left = f"{run.owner} stopped driving it, and {last}; {_resumed(overview)}"
            return f"{subject} is stalled: {left}. {_who_drives(overview, 'takes it over')}"
    if arrived := _describe_arrived(overview):
        return f"{subject} is queued: {arrived}. {_who_drives(overview, 'takes it')}"
    is_part_done = any(branch.state == "finished" for branch in overview.branches)
    following = _resumed(overview) if is_part_done else _next(overview)
    return f"{subject} is queued: no process drives it; {following}. {_who_drives(overview, 'takes it')}"


def _who_drives(overview: RunOverview, verb: str) -> str:
    """Say which worker moves the run, or that none does."""
    workers = overview.workers
    if not workers:
        return f"No live worker drives runs of {overview.driven.header.workflow}."
    has_room = any(len(worker.runs) < worker.slots for worker in workers)
    who = describe_workers(workers)
    return f"{who[0].upper()}{who[1:]} {verb}{'' if has_room else ' as soon as one of its slots is free'}."


def _next(overview: RunOverview) -> str:
    following = overview.following
    if following:
        return f"{_and(following)} {'comes' if len(following) == 1 else 'come'} next"
    if overview.of_named_agents and overview.at.messages:
        return f"{_describe_choice(overview)} what comes next"
    asking = list(dict.fromkeys(request.executor for request in overview.requests.values()))
    if not asking:
        timers = timers_of(overview.at)
        return f"{timers[0][0]} fires next" if timers else "nothing comes next"
    return f"{_and(asking)} {'waits' if len(asking) == 1 else 'wait'} for a response"


def _resumed(overview: RunOverview) -> str:
    """Say what a resume calls, and what it does not repeat."""
    finished = [branch.executor for branch in overview.branches if branch.state == "finished"]
    called = [branch.executor for branch in overview.branches if branch.state != "finished"]
    if not overview.branches:
        called = overview.following
    if not called and not finished and overview.of_named_agents and overview.at.messages:
        return f"{_describe_choice(overview)} what a resume calls"
    if not called and not finished:
        return "nothing was in progress"
    kept = f", and what {_and(finished)} did is kept" if finished else ""
    return f"a resume calls {_and(called)}{kept}" if called else f"a resume commits what {_and(finished)} did"


def _describe_choice(overview: RunOverview) -> str:
    """Say what the conductor of named agents has to choose from: outputs of nodes or, at the start, the input."""
    sources = [message.source for message in overview.at.messages if message.source is not None]
    nodes = list(dict.fromkeys(filter(None, map(overview.name_of, sources))))
    return f"what {_and(nodes)} did decides" if nodes else "the definition decides"


def _describe_failure(overview: RunOverview) -> str:
    if not overview.failures:
        return ""
    failure = overview.failures[0]
    where = f" in {failure.executor_id}" if failure.executor_id else ""
    return f"{where}: {failure.error_type}: {to_line(failure.message)}"


def _describe_wait(overview: RunOverview, now: datetime) -> str:
    requests = list(overview.requests.values())
    arrived = _describe_arrived(overview)
    count = "a response" if len(requests) == 1 else f"{len(requests)} responses"
    first = next((r for r in requests if r.id not in overview.pending), None)
    if first is None:
        return f"for a process to drive it: {arrived}. {_who_drives(overview, 'takes it')}"
    question = question_of(plain_value(first.payload))
    asked = f"for {count}{f' ({arrived})' if arrived else ''}. {first.executor} asks: {question}"
    due = [request.deadline for request in requests if request.deadline]
    return f"{asked} The deadline is{_distance(min(due), now, bare=True)}." if due else asked


def _describe_arrived(overview: RunOverview) -> str:
    """Say which responses have arrived and are not applied yet."""
    pending = [answer for id, answer in overview.pending.items() if id in overview.requests]
    if not pending:
        return ""
    by = [answer.by for answer in pending if answer.by]
    count = "a response" if len(pending) == 1 else f"{len(pending)} responses"
    verbs = "has arrived and is" if len(pending) == 1 else "have arrived and are"
    return f"{count}{f' by {_and(list(dict.fromkeys(by)))}' if by else ''} {verbs} not applied yet"


def _progress(overview: RunOverview) -> str:
    by_state: dict[str, list[str]] = {}
    for branch in overview.branches:
        by_state.setdefault(branch.state, []).append(branch.executor)
    parts = [f"{_and(names)} {'is' if len(names) == 1 else 'are'} {state}" for state, names in by_state.items()]
    return "; ".join(parts) or (_next(overview) if overview.of_named_agents else "it is between two calls")


def _lasted(overview: RunOverview) -> str:
    began = read_moment(overview.run.began_at, f"the start of run {overview.at.run_id!r} in the list of runs")
    ended = datetime.fromisoformat(overview.at.stamp.at)
    return format_seconds(max((ended - began).total_seconds(), 0.0))


def _ago(stored: str, now: datetime) -> str:
    return f"{format_seconds(max((now - datetime.fromisoformat(stored)).total_seconds(), 0.0))} ago"


def _distance(stored: str, now: datetime, *, bare: bool = False) -> str:
    """Return how far away a time is: ` (in 3 h)`, or without the brackets."""
    span = datetime.fromisoformat(stored) - now
    text = f"in {format_seconds(span.total_seconds())}" if span > timedelta(0) else _ago(stored, now)
    return f" {text}" if bare else f" ({text})"


def _and(names: Sequence[str]) -> str:
    """Join names: `a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""
