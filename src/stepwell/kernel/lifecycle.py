"""How a run begins, how a commit moves it on, and the commits that change nothing but its status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from stepwell.model.event import WorkflowErrorDetails, WorkflowRunState
from stepwell.model.payload import Payload
from stepwell.model.request import Request
from stepwell.model.state import apply_write
from stepwell.model.superstep import (
    Assigned,
    Checkpoint,
    Child,
    Commit,
    CommitKind,
    Edited,
    RoutedMessage,
    RunHeader,
    Stamp,
)


def begin(start: str, payload: Payload, executors: Mapping[str, Payload], stamp: Stamp) -> Commit:
    """The first commit of a run: its input is stored before any handler sees it."""
    first = RoutedMessage("input", None, payload, target=start, takers=(start,))
    return Commit(
        number=0,
        kind=CommitKind.INPUT,
        stamp=stamp,
        status=WorkflowRunState.IN_PROGRESS,
        iteration=0,
        since_input=0,
        place=0,
        messages=(first,),
        held={},
        executors=executors,
    )


def fork(source: Checkpoint, stamp: Stamp) -> Commit:
    """The first commit of a new run that goes on from where another was, executing afresh."""
    status = _resumed_status(source)
    return replace(
        full_commit(source), number=0, kind=CommitKind.FORKED, status=status, stamp=stamp, place=0, wake=None
    )


def full_commit(checkpoint: Checkpoint) -> Commit:
    """A commit that says everything a checkpoint holds, for whoever has nothing before it."""
    return Commit(
        number=checkpoint.number,
        kind=CommitKind.SAVED,
        stamp=checkpoint.stamp,
        status=checkpoint.status,
        iteration=checkpoint.iteration,
        since_input=checkpoint.since_input,
        place=checkpoint.place,
        messages=checkpoint.messages,
        held=checkpoint.held,
        state={key: Assigned(value) for key, value in checkpoint.state.items()},
        executors=checkpoint.executors,
        asked=tuple(checkpoint.requests.values()),
        children=checkpoint.children,
        wake=checkpoint.wake,
    )


def fail(before: Checkpoint, failures: tuple[WorkflowErrorDetails, ...], stamp: Stamp) -> Commit:
    """The run stops here; its messages stay where they are, for a resume."""
    return _change_status(before, CommitKind.FAILED, WorkflowRunState.FAILED, stamp, failures)


def cancel(before: Checkpoint, stamp: Stamp) -> Commit:
    """The run was stopped on purpose at its last commit."""
    return _change_status(before, CommitKind.CANCELLED, WorkflowRunState.CANCELLED, stamp)


def park(before: Checkpoint, wake: str, stamp: Stamp) -> Commit:
    """Nothing can be done before a certain time; the messages stay where they are until then."""
    waiting = WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS if before.requests else WorkflowRunState.IN_PROGRESS
    return replace(_change_status(before, CommitKind.PARKED, waiting, stamp), wake=wake)


def is_at_rest(at: Checkpoint) -> bool:
    """Return whether a run stops at a checkpoint: completed, waiting for people, parked, failed or cancelled."""
    return at.wake is not None or at.status not in _UNDER_WAY


_UNDER_WAY = (WorkflowRunState.IN_PROGRESS, WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS)


def restore(head: Checkpoint, source: Checkpoint, stamp: Stamp) -> Commit:
    """The run is moved back to where it was, executing afresh: what was done since is history, and no more."""
    number = head.number + 1
    return replace(
        full_commit(source),
        number=number,
        kind=CommitKind.RESTORED,
        status=_resumed_status(source),
        stamp=stamp,
        place=number,
        closed=tuple(head.requests),
        wake=None,
        restored=source.number,
    )


def _resumed_status(source: Checkpoint) -> WorkflowRunState:
    """The status of a run that goes on from a checkpoint: that it failed or was cancelled there is over."""
    stopped = source.status in (WorkflowRunState.FAILED, WorkflowRunState.CANCELLED)
    return WorkflowRunState.IN_PROGRESS if stopped else source.status


def _change_status(
    before: Checkpoint,
    kind: CommitKind,
    status: WorkflowRunState,
    stamp: Stamp,
    failures: tuple[WorkflowErrorDetails, ...] = (),
) -> Commit:
    return Commit(
        number=before.number + 1,
        kind=kind,
        stamp=stamp,
        status=status,
        iteration=before.iteration,
        since_input=before.since_input,
        place=before.place,
        failures=failures,
    )


def drop_undone(commits: Sequence[Commit]) -> list[Commit]:
    """The commits that are still the past of the last one: what a run did before it was moved back is not."""
    kept: list[Commit] = []
    before = commits[-1].number + 1 if commits else 0
    for commit in reversed(commits):
        if commit.number < before:
            kept.append(commit)
            before = commit.number if commit.restored is None else commit.restored + 1
    return kept[::-1]


def apply(
    header: RunHeader, before: Checkpoint | None, commit: Commit, *, previous_id: str | None = None
) -> Checkpoint:
    """The checkpoint a commit leads to. `before` is None for one that says everything, and names its previous."""
    messages, held = commit.messages, commit.held
    return Checkpoint(
        header=header,
        number=commit.number,
        stamp=commit.stamp,
        previous_id=before.stamp.checkpoint_id if before else previous_id,
        status=commit.status,
        iteration=commit.iteration,
        since_input=commit.since_input,
        place=commit.place,
        messages=messages if messages is not None else before.messages if before else (),
        held=held if held is not None else before.held if before else {},
        state=_apply_writes(before.state if before else {}, commit),
        executors=_apply_executor_states(before.executors if before else {}, commit),
        requests=_open_requests(before.requests if before else {}, commit),
        children=_open_children(before.children if before else {}, commit),
        wake=commit.wake,
    )


def _apply_writes(before: Mapping[str, Payload], commit: Commit) -> Mapping[str, Payload]:
    if not commit.state:
        return before
    after = dict(before)
    for key, write in commit.state.items():
        apply_write(after, key, write)
    return after


def _apply_executor_states(before: Mapping[str, Payload], commit: Commit) -> Mapping[str, Payload]:
    if not commit.executors:
        return before
    after = dict(before)
    for id, saved in commit.executors.items():
        after[id] = saved.edit.apply_to(before.get(id)) if isinstance(saved, Edited) else saved
    return after


def _open_children(before: Mapping[str, Child], commit: Commit) -> Mapping[str, Child]:
    if not commit.children:
        return before
    return {key: child for key, child in {**before, **commit.children}.items() if child is not None}


def _open_requests(before: Mapping[str, Request], commit: Commit) -> Mapping[str, Request]:
    if not commit.asked and not commit.closed:
        return before
    return {id: r for id, r in before.items() if id not in commit.closed} | {r.id: r for r in commit.asked}
