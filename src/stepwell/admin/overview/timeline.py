"""Decides where each handler call of a run stands on a line of time. Pure.

A run works for seconds and waits for days. So long waits are drawn short, with their true length in
words, and the rest of the line is to scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal

from stepwell.admin.phrases import pluralise
from stepwell.declarative.stored_run import is_of_named_agents, without_conductor
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, CommitKind, Done
from stepwell.model.status_words import status_word
from stepwell.viz.durations import format_seconds

# lost: a process died, or was stopped, in the middle of the call; what its steps had stored was recalled.
BarKind = Literal["ran", "failed", "retried", "lost"]

# A longer wait is drawn as long as this part of the time that the run worked, and all of them together
# as long as the second.
_LONG_WAIT, _ALL_WAITS = 0.12, 0.5
_MOMENT = 0.0005  # seconds: times that are nearer are the same
_WHY = {
    "waiting": "waited for an answer",
    "sleeping": "slept",
    "failed": "failed, until it was resumed",
    "cancelled": "cancelled, until it was resumed",
    "completed": "completed, until it got new input",
    "running": "no process drove it",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A handler call; `left` and `width` are parts of the whole line."""

    executor: str
    kind: BarKind
    left: float
    width: float
    words: str
    commit: int  # the number of its commit


@dataclass(frozen=True, slots=True)
class Wait:
    """A time in which nothing ran."""

    left: float
    width: float
    seconds: float
    words: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """All bars and waits of a run."""

    start: datetime
    end: datetime
    working: float  # seconds in which something ran
    bars: tuple[Bar, ...]
    waits: tuple[Wait, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data: `left` and `width` from 0 to 1, times in UTC, ISO 8601."""
        return {
            "start": self.start.isoformat(),
            "end": self.end.isoformat(),
            "working_seconds": self.working,
            "bars": [asdict(bar) for bar in self.bars],
            "waits": [asdict(wait) for wait in self.waits],
        }


@dataclass(frozen=True, slots=True)
class _Span:
    executor: str
    kind: BarKind
    start: float  # seconds since the first commit
    end: float
    words: str
    commit: int


def timeline_of(at: Checkpoint, commits: Sequence[Commit]) -> Timeline | None:
    """Return the timeline of a run by its commits; of named agents, only what nodes did. None if nothing has run."""
    # The conductor takes no time that anybody asks for.
    return lay_out_time([*map(without_conductor, commits)] if is_of_named_agents(at) else commits) if commits else None


def lay_out_time(commits: Sequence[Commit]) -> Timeline | None:
    """Return the timeline of a run, given its commits; None if nothing has run."""
    start = _moment(commits[0])
    times = [(_moment(commit) - start).total_seconds() for commit in commits]
    spans = [
        span
        for n, (commit, time) in enumerate(zip(commits, times, strict=True))
        for span in _spans(commit, time, times[n - 1] if n else time, commits[n - 1] if n else commit, start)
    ]
    if not spans:
        return None
    # Clocks of several machines may differ a little, so a call can seem to begin before its run.
    first, last = min(0.0, *(span.start for span in spans)), max(times[-1], *(span.end for span in spans))
    busy = _merge([*((span.start, span.end) for span in spans), (first, first), (last, last)])
    working = sum(end - begin for begin, end in busy)
    scale = _Scale(busy, longest=_longest_wait(busy, working))
    bars = tuple(
        Bar(
            span.executor,
            span.kind,
            left=scale.at(span.start),
            width=scale.at(span.end) - scale.at(span.start),
            words=span.words,
            commit=span.commit,
        )
        for span in spans
    )
    waits = tuple(
        Wait(scale.at(begin), scale.at(end) - scale.at(begin), end - begin, _describe_wait(commits, times, begin, end))
        for begin, end in scale.long_waits
    )
    return Timeline(start, max(map(_moment, commits)), working, bars, waits)


def _spans(commit: Commit, time: float, before: float, previous: Commit, start: datetime) -> Iterator[_Span]:
    # A superstep began with the commit before it, unless the run was at rest then: nobody knows when it
    # was resumed.
    began = before if status_word(previous.status, wake=previous.wake) == "running" else time
    number = commit.number
    for done in commit.done:
        if done.time is None:
            yield _Span(done.executor, "ran", began, time, _describe_call(done, None), number)
            continue
        called = (done.time.start - start).total_seconds()
        ended = called + done.time.seconds
        if done.attempts > 1:
            words = _describe_retries(done.executor, done.attempts)
            yield _Span(done.executor, "retried", min(began, called), called, words, number)
        elif lost := _recalled_times(done, start, after=before):
            words = f"{done.executor}: cut off; {pluralise(len(lost), 'step')} recalled"
            yield _Span(done.executor, "lost", min(lost)[0], max(end for _, end in lost), words, number)
        yield _Span(done.executor, "ran", called, ended, _describe_call(done, ended - called), number)
    for failure in commit.failures:
        who, words = failure.executor_id or "", f"{failure.executor_id or 'the run'} failed: {failure.error_type}"
        called = began if failure.time is None else (failure.time.start - start).total_seconds()
        ended = time if failure.time is None else called + failure.time.seconds
        if failure.attempts is not None and failure.attempts > 1:
            yield _Span(who, "retried", min(began, called), called, _describe_retries(who, failure.attempts), number)
        yield _Span(who, "failed", called, ended, words, number)


def _recalled_times(done: Done, start: datetime, *, after: float) -> list[tuple[float, float]]:
    """Return when steps of a call that was cut off were made: after the last commit, and before the call that ended."""
    times = [step.time for step in done.steps if step.recalled and step.time is not None]
    spans = [((time.start - start).total_seconds(), (time.end - start).total_seconds()) for time in times]
    called = 0.0 if done.time is None else (done.time.start - start).total_seconds()
    # Steps from before the last commit belong to a call that waited or slept, and was not cut off.
    return [(begin, end) for begin, end in spans if after < end <= called]


def _describe_retries(executor: str, attempts: int) -> str:
    return f"{executor}: {pluralise(attempts - 1, 'earlier attempt')} failed"


def _describe_call(done: Done, seconds: float | None) -> str:
    facts = [*([] if seconds is None else [format_seconds(seconds)])]
    facts += [f"attempt {done.attempts}"] if done.attempts > 1 else []
    facts += [pluralise(len(done.steps), "step")] if done.steps else []
    return f"{done.executor}: {', '.join(facts) or 'ran'}"


def _describe_wait(commits: Sequence[Commit], times: Sequence[float], begin: float, end: float) -> str:
    """Return why nothing ran, by the last commit before the wait, and who ended it."""
    earlier = [commit for commit, time in zip(commits, times, strict=True) if time <= begin + _MOMENT]
    # A busy machine commits what was done some time after it was done; one that takes over does so at the end.
    late = [commit for commit, time in zip(commits, times, strict=True) if _MOMENT < time - begin < end - time]
    recorded = (commit for commit in late if commit.done or commit.kind is CommitKind.PARKED)
    last = next(recorded, earlier[-1] if earlier else commits[0])
    word = status_word(last.status, wake=last.wake)
    following = next((commit for commit in commits if commit.number > last.number), last)
    by = f" by {following.by}" if following.by and word in ("failed", "cancelled") else ""
    why = _WHY.get(word, "no process drove it")
    if word == "running" and begin > times[commits.index(last)] + _MOMENT:
        # Work of this superstep was done before the gap: the process that did it could not commit it.
        why = "cut off, and taken over after"
    return f"{why}{by}: {format_seconds(end - begin)}"


def _moment(commit: Commit) -> datetime:
    return datetime.fromisoformat(commit.stamp.at)


def _merge(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return intervals in order, with those that overlap joined."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _longest_wait(busy: Sequence[tuple[float, float]], working: float) -> float:
    waits = sum(begin - end > working * 0.01 for (_, end), (begin, _) in pairwise(busy))
    return max(working * min(_LONG_WAIT, _ALL_WAITS / max(waits, 1)), 0.001)


class _Scale:
    """Maps seconds to parts of the line; a gap between busy times is drawn `longest` seconds long at most."""

    def __init__(self, busy: Sequence[tuple[float, float]], *, longest: float) -> None:
        gaps = [(end, begin) for (_, end), (begin, _) in pairwise(busy)]
        self.long_waits = [(end, begin) for end, begin in gaps if begin - end > longest]
        self._cuts = [(end, begin, begin - end - longest) for end, begin in self.long_waits]
        self._first = busy[0][0]
        length = busy[-1][1] - self._first - sum(cut for _, _, cut in self._cuts)
        self._length = length or 1.0

    def at(self, seconds: float) -> float:
        """Return the place of a time, from 0 to 1."""
        cut = sum(min(max((seconds - begin) / (end - begin), 0.0), 1.0) * less for begin, end, less in self._cuts)
        return (seconds - self._first - cut) / self._length
