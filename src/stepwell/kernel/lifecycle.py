"""The life of a run outside supersteps: its first commit, the intake of signals, changes of status, restore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from stepwell.graph.graph import Graph
from stepwell.kernel.superstep import CommitDecision, plan, status_of
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, CommitKind, Stamp
from stepwell.model.event import WorkflowErrorDetails, WorkflowRunState
from stepwell.model.message import Reply, RoutedMessage
from stepwell.model.payload import Payload
from stepwell.model.request import AnswerRecord
from stepwell.model.signal import ReceivedInput, ReceivedResponse
from stepwell.model.state_writes import Assigned


def begin(start: str, payload: Payload, executors: Mapping[str, Payload], stamp: Stamp) -> Commit:
    """Return the first commit of a run: its input is stored before any handler sees it."""
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
    """Return the first commit of a new run that starts from another run's checkpoint.

    Place 0 of a new run: no outcome of the source can be recalled, everything executes afresh.
    """
    status = _resumed_status(source)
    return replace(
        full_commit(source), number=0, kind=CommitKind.FORKED, status=status, stamp=stamp, place=0, wake=None
    )


def full_commit(checkpoint: Checkpoint) -> Commit:
    """Return a commit that contains the whole checkpoint, so that it can be applied to nothing."""
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


def intake(
    graph: Graph, before: Checkpoint, arrived: Sequence[ReceivedResponse | ReceivedInput], stamp: Stamp
) -> CommitDecision:
    """Return the commit that applies these signals, and the plan that follows from it.

    A response to a request that is not open is ignored: it was refused when it was sent, or the
    request was closed since.
    """
    number = before.number + 1
    requests = dict(before.requests)
    messages = list(before.messages)
    answers = []
    # Numbered by position in `arrived`, ignored signals included: the ids then depend on nothing else
    for n, signal in enumerate(arrived):
        if isinstance(signal, ReceivedInput):
            messages.append(
                RoutedMessage(f"{number}.{n}", None, signal.value, target=graph.start, takers=(graph.start,))
            )
        # popped, so that a second response to the same request finds it closed
        elif (request := requests.pop(signal.request_id, None)) is not None:
            at = signal.at or stamp.at
            answers.append(
                AnswerRecord(request.id, request.executor, signal.value, at=at, by=signal.by, comment=signal.comment)
            )
            reply, asker = Reply(request.id, request.payload, request.child), request.executor
            messages.append(
                RoutedMessage(f"{number}.{n}", None, signal.value, target=asker, takers=(asker,), reply=reply)
            )
    following = plan(graph, number, messages, before.held)
    commit = Commit(
        number=number,
        kind=CommitKind.INTAKE,
        stamp=stamp,
        status=status_of(following, waiting=bool(requests)),
        iteration=before.iteration,
        since_input=0,  # the limit on supersteps counts from the last message that came from outside
        place=number,
        messages=tuple(messages),
        closed=tuple(answer.request_id for answer in answers),
        answers=tuple(answers),
    )
    return CommitDecision(commit, following)


def fail(before: Checkpoint, failures: tuple[WorkflowErrorDetails, ...], stamp: Stamp) -> Commit:
    """Return the commit of a run that fails; its messages stay in flight, for a resume."""
    return _change_status(before, CommitKind.FAILED, WorkflowRunState.FAILED, stamp, failures)


def cancel(before: Checkpoint, stamp: Stamp, *, by: str | None = None, reason: str | None = None) -> Commit:
    """Return the commit of a run that is stopped on purpose; it can still be resumed."""
    commit = _change_status(before, CommitKind.CANCELLED, WorkflowRunState.CANCELLED, stamp)
    return replace(commit, by=by, reason=reason)


def park(before: Checkpoint, wake: str, stamp: Stamp) -> Commit:
    """Return the commit of a run that has nothing to do before `wake`; its messages stay in flight."""
    # In progress and not idle: there are messages to deliver, and only `wake` keeps it from that
    waiting = WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS if before.requests else WorkflowRunState.IN_PROGRESS
    return replace(_change_status(before, CommitKind.PARKED, waiting, stamp), wake=wake)


def retry(before: Checkpoint, stamp: Stamp, *, by: str | None = None) -> Commit:
    """Return the commit of a run that had failed or was cancelled, and is ready to be driven again."""
    if before.messages:
        # `wake` says that it was resumed on purpose: failures that are logged have been reported.
        return replace(park(before, stamp.at, stamp), kind=CommitKind.RETRIED, by=by)
    resting = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS if before.requests else WorkflowRunState.IDLE
    return replace(_change_status(before, CommitKind.RETRIED, resting, stamp), by=by)


def restore(head: Checkpoint, source: Checkpoint, stamp: Stamp) -> Commit:
    """Return the commit that moves a run back to an earlier checkpoint, to execute afresh from there.

    What was done since remains readable as history and has no other effect.
    """
    number = head.number + 1
    return replace(
        full_commit(source),
        number=number,
        kind=CommitKind.RESTORED,
        status=_resumed_status(source),
        stamp=stamp,
        # a new place, so that the outcomes of the commits that were undone are not recalled
        place=number,
        # closed before those of the source are opened again: `apply` removes first and adds then
        closed=tuple(head.requests),
        wake=None,
        restored=source.number,
    )


def _resumed_status(source: Checkpoint) -> WorkflowRunState:
    """Return the status of a run that starts from a checkpoint: a failure or cancellation there is over."""
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
        # kept: the deliveries that are still to be made have been attempted under these names
        place=before.place,
        failures=failures,
    )


def drop_undone(commits: Sequence[Commit]) -> list[Commit]:
    """Return the commits that the last one builds on, without those that a restore undid."""
    kept: list[Commit] = []
    # Backwards: at a restore, everything after the checkpoint it went back to is skipped.
    before = commits[-1].number + 1 if commits else 0
    for commit in reversed(commits):
        if commit.number < before:
            kept.append(commit)
            before = commit.number if commit.restored is None else commit.restored + 1
    return kept[::-1]
