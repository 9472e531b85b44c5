"""The progress of each executor of a run, as a drawing shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.viz.durations import format_seconds

State = Literal["failed", "waiting", "working", "next", "ran", "skipped", "idle"]

_WORDS = {
    "failed": "failed",
    "waiting": "needs an answer",
    "working": "working",
    "next": "next",
    "skipped": "skipped",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the executors of a run."""

    ran: Mapping[str, int] = field(default_factory=dict)  # how often each has completed
    failed: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()  # for an answer
    following: frozenset[str] = frozenset()  # messages are on their way to them
    skipped: frozenset[str] = frozenset()
    seconds: Mapping[str, float] = field(default_factory=dict)  # how long they worked, in all
    working: frozenset[str] = frozenset()  # a process is calling them now
    inherited: Mapping[str, str] = field(default_factory=dict)  # what ran only before a fork: the run it ran in

    def state(self, executor: str) -> State:
        """Return the first that applies."""
        members: tuple[tuple[State, frozenset[str]], ...] = (
            ("failed", self.failed),
            ("waiting", self.waiting),
            ("working", self.working),
            ("next", self.following),
        )
        for name, executors in members:
            if executor in executors:
                return name
        return "ran" if self.ran.get(executor) else "skipped" if executor in self.skipped else "idle"

    def caption(self, executor: str) -> str:
        """Return the progress of an executor in a few words."""
        seconds = self.seconds.get(executor)
        if self.state(executor) == "ran":
            return "ran" if seconds is None else format_seconds(seconds)
        return _WORDS.get(self.state(executor), "not run")

    def describe(self, executor: str) -> str:
        """Return the progress of an executor in words."""
        count, seconds = self.ran.get(executor, 0), self.seconds.get(executor)
        ran = "" if not count else "ran once" if count == 1 else f"ran {count} times"
        if ran and seconds is not None:
            ran += f", {format_seconds(seconds)}{' in all' if count > 1 else ''}"
        words = {**_WORDS, "working": "is working", "next": "is next"}
        return ", ".join(part for part in (words.get(self.state(executor)), ran) if part) or "not run"

    def with_calls(self, calls: Iterable[tuple[str, str, float | None]]) -> Progress:
        """Return the progress with the superstep under way: executor, state and seconds of each of its handler calls.

        A call that is `finished` has run, though it is not committed yet.
        """
        ran, seconds, by_state = dict(self.ran), dict(self.seconds), dict[str, set[str]]()
        for executor, state, took in calls:
            by_state.setdefault(state, set()).add(executor)
            if state == "finished":
                ran[executor] = ran.get(executor, 0) + 1
                if took is not None:
                    seconds[executor] = seconds.get(executor, 0.0) + took
        working = by_state.get("working", set()) | by_state.get("retrying", set())
        unfinished = {executor for state, names in by_state.items() if state != "finished" for executor in names}
        return replace(
            self,
            ran=ran,
            seconds=seconds,
            failed=self.failed | by_state.get("failed", set()),
            working=frozenset(working),
            following=self.following - (by_state.get("finished", set()) - unfinished),
        )

    def with_ancestor(self, before: Progress, run_id: str) -> Progress:
        """Return the progress of a fork, with what only ran in a run that it descends from."""
        new = [executor for executor in before.ran if executor not in self.ran]
        return replace(
            self,
            ran={**self.ran, **{executor: before.ran[executor] for executor in new}},
            seconds={
                **self.seconds,
                **{executor: before.seconds[executor] for executor in new if executor in before.seconds},
            },
            inherited={**self.inherited, **dict.fromkeys(new, run_id)},
        )


def progress_of(checkpoint: Checkpoint, commits: Iterable[Commit]) -> Progress:
    """Return the progress of a run at a checkpoint, given the commits that led there."""
    ran: dict[str, int] = {}
    seconds: dict[str, float] = {}
    failed: frozenset[str] = frozenset()
    for commit in commits:
        for done in commit.done:
            ran[done.executor] = ran.get(done.executor, 0) + 1
            if done.time is not None:
                seconds[done.executor] = seconds.get(done.executor, 0.0) + done.time.seconds
        # Overwritten by each commit: a failure counts only while the run has not moved on.
        failed = frozenset(failure.executor_id for failure in commit.failures if failure.executor_id)
    return Progress(
        ran,
        failed if checkpoint.status is WorkflowRunState.FAILED else frozenset(),
        waiting=frozenset(request.executor for request in checkpoint.requests.values()),
        following=frozenset(taker for message in checkpoint.messages for taker in message.takers),
        seconds=seconds,
    )


def progress_in(events: Iterable[WorkflowEvent], *, waits: bool) -> Progress:
    """Return the progress that the events of a run show; `waits`: it waits for answers to its requests."""
    ran: dict[str, int] = {}
    seconds: dict[str, float] = {}
    failed, waiting = set[str](), set[str]()
    for event in events:
        if event.path:  # of a sub-workflow
            continue
        if event.type == "executor_completed" and event.executor_id is not None:
            ran[event.executor_id] = ran.get(event.executor_id, 0) + 1
            if event.time is not None:
                seconds[event.executor_id] = seconds.get(event.executor_id, 0.0) + event.time.seconds
        elif event.type == "executor_failed" and event.executor_id is not None:
            failed.add(event.executor_id)
        elif event.type == "request_info" and waits:
            waiting.add(event.source_executor_id)
    return Progress(ran, frozenset(failed), frozenset(waiting), seconds=seconds)
