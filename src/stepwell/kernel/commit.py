"""What a commit means: the checkpoint it leads to, and the events that observers receive.

Both depend on the commit and on nothing else. The events are emitted after it is stored, and can be
computed again from history at any time; they are then the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from msgspec.structs import replace

from stepwell.kernel.timers import change_timers
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.child import Child
from stepwell.model.commit import Commit, CommitKind
from stepwell.model.event import CheckpointInfo, WorkflowEvent, WorkflowEventSource, WorkflowRunState
from stepwell.model.message import RoutedMessage
from stepwell.model.payload import Payload, PayloadList
from stepwell.model.request import Request
from stepwell.model.state import apply_writes
from stepwell.model.state_writes import Edited


def apply(
    header: RunHeader, before: Checkpoint | None, commit: Commit, *, previous_id: str | None = None
) -> Checkpoint:
    """Return the checkpoint that a commit leads to.

    `before` is None for a commit that contains everything; `previous_id` names its predecessor then.
    Parts that did not change are shared with `before`, so the cost grows with what changed.
    """
    if before is None:
        before = Checkpoint(
            header, -1, commit.stamp, previous_id=None, status=commit.status, iteration=0, since_input=0, place=0
        )
    else:
        previous_id = before.stamp.checkpoint_id
    if commit.tags:
        tags = {**header.tags, **commit.tags}
        header = replace(header, tags={name: value for name, value in tags.items() if value is not None})
    return Checkpoint(
        header=header,
        number=commit.number,
        stamp=commit.stamp,
        previous_id=previous_id,
        status=commit.status,
        iteration=commit.iteration,
        since_input=commit.since_input,
        place=commit.place,
        messages=before.messages if commit.messages is None else commit.messages,
        held=before.held if commit.held is None else commit.held,
        state=apply_writes(before.state, commit.state) if commit.state else before.state,
        executors=_apply_executor_states(before.executors, commit) if commit.executors else before.executors,
        requests=_open_requests(before.requests, commit) if commit.asked or commit.closed else before.requests,
        children=_open_children(before.children, commit) if commit.children else before.children,
        timers=change_timers(before.timers, commit.timers) if commit.timers else before.timers,
        wake=commit.wake,
    )


def _apply_executor_states(before: Mapping[str, Payload], commit: Commit) -> Mapping[str, Payload]:
    after = dict(before)
    for id, saved in commit.executors.items():
        after[id] = saved.edit.apply_to(before.get(id)) if isinstance(saved, Edited) else saved
    return after


def _open_children(before: Mapping[str, Child], commit: Commit) -> Mapping[str, Child]:
    return {key: child for key, child in {**before, **commit.children}.items() if child is not None}


def _open_requests(before: Mapping[str, Request], commit: Commit) -> Mapping[str, Request]:
    still_open = {id: request for id, request in before.items() if id not in commit.closed}
    # An intake puts the requests that it answers early on record
    answered = commit.questions if commit.kind is CommitKind.INTAKE else ()
    return still_open | {request.id: request for request in commit.asked if request.id not in answered}


_UNDER_WAY = (WorkflowRunState.IN_PROGRESS, WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS)


def is_at_rest(at: Checkpoint) -> bool:
    """Return whether a run stops at a checkpoint: completed, waiting for people, parked, failed or cancelled."""
    return at.wake is not None or at.status not in _UNDER_WAY


def is_parked(at: Checkpoint) -> bool:
    """Return whether a run that has deliveries ahead rests in their middle: its handlers sleep, or wait for answers."""
    if at.status is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
        return True
    return at.status in _UNDER_WAY and at.wake is not None


# -------------------------------------------------------------------- events

# Commits after which a run may have another status than before.
_STATUS_KINDS = (CommitKind.SUPERSTEP, CommitKind.FAILED, CommitKind.CANCELLED, CommitKind.RESTORED)
# An intake wakes a run that may have been reported idle, and parking puts one to rest: they always report the status.
_REPORTED_KINDS = (CommitKind.INTAKE, CommitKind.PARKED, CommitKind.RETRIED)
# Commits after which a run may have nothing to do before a certain time.
_SLEEPING_KINDS = (CommitKind.PARKED, CommitKind.SUPERSTEP, CommitKind.INTAKE)


def events(
    run_id: str, commit: Commit, *, stored: bool, seen: Payload | None = None, replayed: bool = False
) -> list[WorkflowEvent]:
    """Return the events of a commit, in a fixed order.

    `seen` is the data of the `checkpoint` event. That event carries no commit number and is never
    replayed: an observer that missed it loads the checkpoint.
    """
    number, state, by, origin = commit.number, commit.status, commit.by, WorkflowEventSource.FRAMEWORK
    create = partial(WorkflowEvent, run_id=run_id, commit=number, state=state, by=by, replayed=replayed, origin=origin)
    events: list[WorkflowEvent] = []
    if commit.restored is not None:
        events.append(create("restored", commit.restored))
    if commit.migrated:
        events.append(create("migrated", list(commit.migrated)))
    if commit.kind is CommitKind.INTAKE and commit.questions:
        _add_question_events(events, commit, create)
    for answer in commit.answers:
        events.append(
            create("request_answered", payload=answer.value, executor_id=answer.executor, answer=answer, by=answer.by)
        )
    if commit.done:
        _add_done_events(events, run_id, commit, create, replayed=replayed)
    events += (create("request_withdrawn", request_id) for request_id in commit.withdrawn)
    if commit.kind is CommitKind.PARKED:
        _add_question_events(events, commit, create)
    if commit.reason is not None:
        events.append(create("warning", f"{commit.kind.value}: {commit.reason}"))
    for warning in commit.warnings:
        events.append(create("warning", warning))
    if commit.kind is CommitKind.INTAKE:
        events += (create("timer_fired", payload=m.payload, executor_id=m.takers[0]) for m in find_fired(commit))
    if commit.wake is not None and commit.kind in _SLEEPING_KINDS:
        events.append(create("sleeping", datetime.fromisoformat(commit.wake)))
    if commit.failures:
        _add_failure_events(events, commit, create)
    info = CheckpointInfo(run_id, commit.stamp.checkpoint_id, commit.number) if stored else None
    if commit.kind is CommitKind.SUPERSTEP:
        # Without `create`, like the other event of every superstep: it takes three times as long.
        events.append(
            WorkflowEvent(
                "superstep_completed",
                iteration=commit.iteration,
                checkpoint=info,
                run_id=run_id,
                commit=number,
                state=state,
                by=by,
                replayed=replayed,
                origin=origin,
            )
        )
    if seen is not None:
        events.append(create("checkpoint", payload=seen, commit=None, iteration=commit.iteration, checkpoint=info))
    # A superstep that leaves the run in progress changes no status.
    changed = commit.kind in _STATUS_KINDS and (state is not WorkflowRunState.IN_PROGRESS or commit.wake is not None)
    if changed or commit.kind in _REPORTED_KINDS:
        events.append(create("status"))
    return events


def _add_question_events(events: list[WorkflowEvent], commit: Commit, create: Callable[..., WorkflowEvent]) -> None:
    """Add the requests that handlers wait for, and those that are answered before their superstep is committed."""
    origin = WorkflowEventSource.EXECUTOR
    for request in commit.asked:
        if request.id in commit.questions:
            asker = request.executor
            events.append(
                create("request_info", payload=request.payload, request=request, executor_id=asker, origin=origin)
            )


def _add_failure_events(events: list[WorkflowEvent], commit: Commit, create: Callable[..., WorkflowEvent]) -> None:
    """Add the handlers that failed, and then that the run did: once, with the first."""
    for details in commit.failures:
        if details.executor_id is not None:
            event = create("executor_failed", details, details=details, executor_id=details.executor_id)
            event.attempt, event.time = details.attempts, details.time
            events.append(event)
    first = commit.failures[0]
    events.append(create("failed", first, details=first, executor_id=first.executor_id))


def _add_done_events(
    events: list[WorkflowEvent], run_id: str, commit: Commit, create: Callable[..., WorkflowEvent], *, replayed: bool
) -> None:
    """Add, by delivery in plan order, what an executor yielded and requested, and then its completion."""
    origin = WorkflowEventSource.EXECUTOR
    requests = {request.id: request for request in commit.asked} if commit.asked else {}
    payloads = {message.id: message.payload for message in commit.messages or ()}
    for done in commit.done:
        results = [payloads[id] for id in done.sent]
        for output in done.outputs:
            results.append(output.payload)
            events.append(create(output.kind, payload=output.payload, executor_id=done.executor, origin=origin))
        for request in [requests[id] for id in done.asked] if done.asked else ():
            executor = request.executor
            events.append(
                create("request_info", payload=request.payload, executor_id=executor, request=request, origin=origin)
            )
        result = PayloadList(tuple(results)) if results else None
        events.append(
            WorkflowEvent(
                "executor_completed",
                payload=result,
                executor_id=done.executor,
                attempt=done.attempts,
                delivery=done.delivery,
                time=done.time,
                steps=done.steps,
                run_id=run_id,
                commit=commit.number,
                state=commit.status,
                by=commit.by,
                replayed=replayed,
                origin=WorkflowEventSource.FRAMEWORK,
            )
        )


def find_fired(commit: Commit) -> list[RoutedMessage]:
    """Return the messages of the timers that were due at an intake."""
    # Earlier ones may still be in flight, under the number of their own commit
    own = f"{commit.number}."
    return [message for message in commit.messages or () if message.timer is not None and message.id.startswith(own)]


def request_events(run_id: str, at: Checkpoint) -> Iterator[WorkflowEvent]:
    """Yield the events of the requests that are open at a checkpoint, marked as replayed."""
    common: dict[str, Any] = {"run_id": run_id, "commit": at.number, "state": at.status, "replayed": True}
    for request in at.requests.values():
        executor = request.executor
        yield WorkflowEvent("request_info", payload=request.payload, executor_id=executor, request=request, **common)


def output_events(run_id: str, commit: Commit) -> Iterator[WorkflowEvent]:
    """Yield the output events of a commit and no others, marked as replayed."""
    common: dict[str, Any] = {"run_id": run_id, "commit": commit.number, "state": commit.status, "replayed": True}
    for done in commit.done:
        for output in done.outputs:
            yield WorkflowEvent(output.kind, payload=output.payload, executor_id=done.executor, **common)
