"""Durable events, computed from a commit.

They are emitted after the commit is stored. Because they depend on nothing else, they can be
computed again from history at any time, and are then the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, CommitKind, Done
from stepwell.model.event import (
    CheckpointInfo,
    WorkflowErrorDetails,
    WorkflowEvent,
    WorkflowEventSource,
    WorkflowRunState,
)
from stepwell.model.payload import Payload, PayloadList
from stepwell.model.request import Request


def events(
    run_id: str, commit: Commit, *, stored: bool, seen: Payload | None = None, replayed: bool = False
) -> Iterator[WorkflowEvent]:
    """Yield the events of a commit, in a fixed order.

    `seen` is the data of the `checkpoint` event. That event carries no commit number and is never
    replayed: an observer that missed it loads the checkpoint.
    """
    factory = _EventFactory(run_id, commit, replayed)
    if commit.restored is not None:
        yield factory.create("restored", commit.restored)
    if commit.migrated:
        yield factory.create("migrated", list(commit.migrated))
    requests = {request.id: request for request in commit.asked}
    payloads = {message.id: message.payload for message in commit.messages or ()}
    # By delivery, in plan order: what an executor yielded and requested comes before its completion
    for done in commit.done:
        yield from factory.create_outputs(done)
        yield from (factory.create_request(requests[id]) for id in done.asked)
        yield factory.create_completion(done, payloads)
    for warning in commit.warnings:
        yield factory.create("warning", warning)
    if commit.kind is CommitKind.PARKED and commit.wake is not None:
        yield factory.create("sleeping", datetime.fromisoformat(commit.wake))
    for details in commit.failures:
        if details.executor_id is not None:
            yield factory.create_failure("executor_failed", details)
    # several handlers may fail in one superstep; the run fails once, with the first
    if commit.failures:
        yield factory.create_failure("failed", commit.failures[0])
    info = CheckpointInfo(run_id, commit.stamp.checkpoint_id, commit.number) if stored else None
    if commit.kind is CommitKind.SUPERSTEP:
        yield factory.create("superstep_completed", iteration=commit.iteration, checkpoint=info)
    if seen is not None:
        yield factory.create_checkpoint(seen, commit, info)
    # A superstep that leaves the run in progress changes no status. An intake wakes a run that may have been
    # reported idle, and parking puts one to rest: both always report the status.
    changed = commit.kind in _STATUS_KINDS and commit.status is not WorkflowRunState.IN_PROGRESS
    if changed or commit.kind in (CommitKind.INTAKE, CommitKind.PARKED):
        yield factory.create("status")


_STATUS_KINDS = (CommitKind.SUPERSTEP, CommitKind.FAILED, CommitKind.CANCELLED, CommitKind.RESTORED)
"""Commits after which a run may have another status than before."""


def request_events(run_id: str, at: Checkpoint) -> Iterator[WorkflowEvent]:
    """Yield the events of the requests that are open at a checkpoint, marked as replayed."""
    for request in at.requests.values():
        attributes: dict[str, Any] = {"run_id": run_id, "commit": at.number, "state": at.status, "replayed": True}
        yield WorkflowEvent.from_payload(
            "request_info", request.payload, executor_id=request.executor, request=request, **attributes
        )


def output_events(run_id: str, commit: Commit) -> Iterator[WorkflowEvent]:
    """Yield the output events of a commit and no others, marked as replayed."""
    factory = _EventFactory(run_id, commit, True)
    for done in commit.done:
        yield from factory.create_outputs(done)


class _EventFactory:
    """Creates the events of one commit with the attributes they have in common."""

    def __init__(self, run_id: str, commit: Commit, replayed: bool) -> None:
        self._common = {"run_id": run_id, "commit": commit.number, "state": commit.status, "replayed": replayed}

    def create(self, type: str, data: object = None, **attributes: object) -> WorkflowEvent:
        return WorkflowEvent(type, data, origin=WorkflowEventSource.FRAMEWORK, **self._common, **attributes)  # type: ignore[arg-type]

    def create_outputs(self, done: Done) -> Iterator[WorkflowEvent]:
        for output in done.outputs:
            yield WorkflowEvent.from_payload(output.kind, output.payload, executor_id=done.executor, **self._common)

    def create_request(self, request: Request) -> WorkflowEvent:
        attributes = {"executor_id": request.executor, **self._common}
        return WorkflowEvent.from_payload("request_info", request.payload, request=request, **attributes)

    def create_completion(self, done: Done, payloads: dict[str, Payload]) -> WorkflowEvent:
        results = [*(payloads[id] for id in done.sent), *(output.payload for output in done.outputs)]
        if not results:
            return self.create("executor_completed", executor_id=done.executor, attempt=done.attempts)
        attributes = {"executor_id": done.executor, "attempt": done.attempts, "origin": WorkflowEventSource.FRAMEWORK}
        return WorkflowEvent.from_payload("executor_completed", PayloadList(results), **attributes, **self._common)

    def create_checkpoint(self, seen: Payload, commit: Commit, info: CheckpointInfo | None) -> WorkflowEvent:
        attributes = {**self._common, "commit": None, "origin": WorkflowEventSource.FRAMEWORK}
        return WorkflowEvent.from_payload("checkpoint", seen, iteration=commit.iteration, checkpoint=info, **attributes)

    def create_failure(self, type: str, details: WorkflowErrorDetails) -> WorkflowEvent:
        return self.create(type, details, details=details, executor_id=details.executor_id)
