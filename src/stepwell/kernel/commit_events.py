"""The durable events, computed from a commit: told after it, and told again from history at will."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from stepwell.model.event import (
    CheckpointInfo,
    WorkflowErrorDetails,
    WorkflowEvent,
    WorkflowEventSource,
    WorkflowRunState,
)
from stepwell.model.payload import Bundle, Parcel
from stepwell.model.request import Request
from stepwell.model.superstep import Checkpoint, Commit, CommitKind, Done


def events(
    run_id: str, commit: Commit, *, stored: bool, seen: Parcel | None = None, replayed: bool = False
) -> Iterator[WorkflowEvent]:
    """Everything that may be told of a commit, in a fixed order.

    `seen` is what a `checkpoint` event shows. That one carries no number and is not told again: whoever
    missed it loads the checkpoint.
    """
    teller = _Teller(run_id, commit, replayed)
    if commit.restored is not None:
        yield teller.say("restored", commit.restored)
    if commit.migrated:
        yield teller.say("migrated", list(commit.migrated))
    requests = {request.id: request for request in commit.asked}
    payloads = {message.id: message.payload for message in commit.messages or ()}
    for done in commit.done:
        yield from teller.outputs(done)
        yield from (teller.asked(requests[id]) for id in done.asked)
        yield teller.completed(done, payloads)
    for warning in commit.warnings:
        yield teller.say("warning", warning)
    if commit.kind is CommitKind.PARKED and commit.wake is not None:
        yield teller.say("sleeping", datetime.fromisoformat(commit.wake))
    for details in commit.failures:
        if details.executor_id is not None:
            yield teller.failure("executor_failed", details)
    if commit.failures:
        yield teller.failure("failed", commit.failures[0])
    info = CheckpointInfo(run_id, commit.stamp.checkpoint_id, commit.number) if stored else None
    if commit.kind is CommitKind.SUPERSTEP:
        yield teller.say("superstep_completed", iteration=commit.iteration, checkpoint=info)
    if seen is not None:
        yield teller.checkpoint(seen, commit, info)
    moved = commit.kind in _STEPS and commit.status is not WorkflowRunState.IN_PROGRESS
    if moved or commit.kind in (CommitKind.INTAKE, CommitKind.PARKED):
        yield teller.say("status")


_STEPS = (CommitKind.SUPERSTEP, CommitKind.FAILED, CommitKind.CANCELLED, CommitKind.RESTORED)
"""Commits that move a run; the others only put it somewhere."""


def request_events(run_id: str, at: Checkpoint) -> Iterator[WorkflowEvent]:
    """The questions that are open at a checkpoint, told again."""
    for request in at.requests.values():
        known: dict[str, Any] = {"run_id": run_id, "commit": at.number, "state": at.status, "replayed": True}
        yield WorkflowEvent.closed(
            "request_info", request.payload, executor_id=request.executor, request=request, **known
        )


def output_events(run_id: str, commit: Commit) -> Iterator[WorkflowEvent]:
    """Only what was yielded, told again."""
    teller = _Teller(run_id, commit, True)
    for done in commit.done:
        yield from teller.outputs(done)


class _Teller:
    def __init__(self, run_id: str, commit: Commit, replayed: bool) -> None:
        self._known = {"run_id": run_id, "commit": commit.number, "state": commit.status, "replayed": replayed}

    def say(self, type: str, data: object = None, **more: object) -> WorkflowEvent:
        return WorkflowEvent(type, data, origin=WorkflowEventSource.FRAMEWORK, **self._known, **more)  # type: ignore[arg-type]

    def outputs(self, done: Done) -> Iterator[WorkflowEvent]:
        for output in done.outputs:
            yield WorkflowEvent.closed(output.kind, output.payload, executor_id=done.executor, **self._known)

    def asked(self, request: Request) -> WorkflowEvent:
        known = {"executor_id": request.executor, **self._known}
        return WorkflowEvent.closed("request_info", request.payload, request=request, **known)

    def completed(self, done: Done, payloads: dict[str, Parcel]) -> WorkflowEvent:
        given = [*(payloads[id] for id in done.sent), *(output.payload for output in done.outputs)]
        if not given:
            return self.say("executor_completed", executor_id=done.executor, attempt=done.attempts)
        known = {"executor_id": done.executor, "attempt": done.attempts, "origin": WorkflowEventSource.FRAMEWORK}
        return WorkflowEvent.closed("executor_completed", Bundle(given), **known, **self._known)

    def checkpoint(self, seen: Parcel, commit: Commit, info: CheckpointInfo | None) -> WorkflowEvent:
        known = {**self._known, "commit": None, "origin": WorkflowEventSource.FRAMEWORK}
        return WorkflowEvent.closed("checkpoint", seen, iteration=commit.iteration, checkpoint=info, **known)

    def failure(self, type: str, details: WorkflowErrorDetails) -> WorkflowEvent:
        return self.say(type, details, details=details, executor_id=details.executor_id)
