"""The life of a run outside supersteps: its first commit, the intake of signals, changes of status, restore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from stepwell.graph.graph import Graph
from stepwell.kernel.requests import find_left
from stepwell.kernel.superstep import CommitDecision, plan, status_of
from stepwell.kernel.timers import DueTimer, TimerChanges, next_timer
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.child import Child
from stepwell.model.commit import Commit, CommitKind, Stamp
from stepwell.model.event import WorkflowErrorDetails, WorkflowRunState
from stepwell.model.log_keys import RecalledLog
from stepwell.model.message import Reply, RoutedMessage
from stepwell.model.payload import Pack, Payload, pack_copy
from stepwell.model.request import AnswerRecord, Request
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
    source = _without_asks(source)
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
        timers=checkpoint.timers,
        wake=checkpoint.wake,
    )


def intake(
    graph: Graph,
    before: Checkpoint,
    arrived: Sequence[ReceivedResponse | ReceivedInput],
    stamp: Stamp,
    *,
    due: Sequence[DueTimer] = (),
    early: Mapping[str, Request] = {},
    is_late: bool = False,
    pack: Pack = pack_copy,
) -> CommitDecision:
    """Return the commit that applies these signals and the timers that are due, and the plan that follows from it.

    A response to a request that is not open is ignored: it was refused when it was sent, or the
    request was closed since. `is_late`: they join a superstep that has been tried; `early` are the
    requests that were made in it.
    """
    number = before.number + 1
    answers, answered_early = [], []
    messages, still_open = list(before.messages), {**early, **before.requests}
    # Numbered by position in `arrived`, ignored signals included: the ids then depend on nothing else
    for n, signal in enumerate(arrived):
        if isinstance(signal, ReceivedInput):
            messages.append(RoutedMessage(f"{number}.{n}", None, signal.value, graph.start, (graph.start,)))
        # popped, so that a second response to the same request finds it closed
        elif (request := still_open.pop(signal.request_id, None)) is not None:
            answers.append(_record_answer(request, signal, stamp))
            reply, asker = Reply(request.id, request.payload, request.child), request.executor
            takers = (asker,) if request.id in before.requests else ()  # none: it is held
            messages.append(RoutedMessage(f"{number}.{n}", None, signal.value, asker, takers, reply=reply))
            if not takers:
                answered_early.append(request)
    for n, timer in enumerate(due, len(arrived)):
        name, target = pack(timer.name, "$.timer"), timer.executor
        messages.append(RoutedMessage(f"{number}.{n}", None, name, target=target, takers=(target,), timer=timer.due))
    timers, children = _end_timers(before, due) if due else ({}, {})
    place = before.place if is_late else number
    waiting = any(id in before.requests for id in still_open)
    following, wake = plan(graph, place, messages, before.held), None
    if not following.deliveries and (before.timers or before.children):
        wake = next_timer(before.timers, before.children)
    commit = Commit(
        number=number,
        kind=CommitKind.INTAKE,
        stamp=stamp,
        status=status_of(following, waiting=waiting, wake=wake),
        iteration=before.iteration,
        since_input=0,  # the limit on supersteps counts from the last message that came from outside
        place=place,
        messages=tuple(messages),
        asked=tuple(answered_early),
        questions=tuple(request.id for request in answered_early),
        closed=tuple(answer.request_id for answer in answers),
        answers=tuple(answers),
        timers=timers,
        children=children,
        wake=wake,
    )
    return CommitDecision(commit, following)


def _record_answer(request: Request, signal: ReceivedResponse, stamp: Stamp) -> AnswerRecord:
    at = signal.at or stamp.at
    return AnswerRecord(request.id, request.executor, signal.value, at=at, by=signal.by, comment=signal.comment)


def _end_timers(before: Checkpoint, due: Sequence[DueTimer]) -> tuple[TimerChanges, Mapping[str, Child]]:
    """Return the timers that end because they are due, and the sub-workflow runs that are woken by theirs."""
    timers: dict[str, dict[str, None]] = {}
    children: dict[str, Child] = {}
    for timer in due:
        if timer.name in before.timers.get(timer.executor, {}):
            timers.setdefault(timer.executor, {})[timer.name] = None
        else:
            children[timer.name] = replace(before.children[timer.name], wake=None)
    return timers, children


def fail(before: Checkpoint, failures: tuple[WorkflowErrorDetails, ...], stamp: Stamp) -> Commit:
    """Return the commit of a run that fails; its messages stay in flight, for a resume."""
    return _change_status(before, CommitKind.FAILED, WorkflowRunState.FAILED, stamp, failures)


def cancel(before: Checkpoint, stamp: Stamp, *, by: str | None = None, reason: str | None = None) -> Commit:
    """Return the commit of a run that is stopped on purpose; it can still be resumed."""
    commit = _change_status(before, CommitKind.CANCELLED, WorkflowRunState.CANCELLED, stamp)
    return replace(commit, by=by, reason=reason)


def park(before: Checkpoint, wake: str | None, stamp: Stamp) -> Commit:
    """Return the commit of a run that has nothing to do before `wake`; its messages stay in flight."""
    # In progress and not idle: there are messages to deliver, and only `wake` keeps it from that
    waiting = WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS if before.requests else WorkflowRunState.IN_PROGRESS
    return replace(_change_status(before, CommitKind.PARKED, waiting, stamp), wake=wake)


def retry(before: Checkpoint, stamp: Stamp, *, by: str | None = None) -> Commit:
    """Return the commit of a run that had failed or was cancelled, and is ready to be driven again."""
    if before.messages or next_timer(before.timers, before.children) is not None:
        # `wake` says that it was resumed on purpose: failures that are logged have been reported.
        return replace(park(before, stamp.at, stamp), kind=CommitKind.RETRIED, by=by)
    resting = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS if before.requests else WorkflowRunState.IDLE
    return replace(_change_status(before, CommitKind.RETRIED, resting, stamp), by=by)


def settle_asks(before: Checkpoint, commit: Commit, log: RecalledLog) -> Commit:
    """Return the commit that ends or parks a superstep with what its handlers have asked and were answered.

    A question is part of a checkpoint only while the run rests; in between it is an entry of the superstep log. Its
    answer is on record in the first commit after it was used. One whose handler has returned without its answer ends,
    and is withdrawn if an earlier commit has said that it is asked.
    """
    asked = log.asked
    used = [(entry.answer, entry.due) for entry in log.entries.values() if entry.answer is not None]
    answered = {answer.request_id for answer, _ in used}
    answers = tuple(answer for answer, at in used if answer.request_id in before.requests or is_later(at, before.stamp))
    left = find_left(before, log)
    ended = asked if commit.kind is CommitKind.SUPERSTEP else ()  # their entries of the log are dropped
    closed = dict.fromkeys((*commit.closed, *(id for id in answered if id in before.requests), *left, *ended))
    withdrawn = (*commit.withdrawn, *(id for id in left if id in before.requests))
    # Not before an answer that it records, or the next commit would record it again: clocks differ.
    last = max(
        (at for _, at in used if is_later(at, commit.stamp)), key=datetime.fromisoformat, default=commit.stamp.at
    )
    stamp = replace(commit.stamp, at=last)
    commit = replace(commit, stamp=stamp, answers=answers, closed=tuple(closed), withdrawn=withdrawn)
    if commit.kind is not CommitKind.PARKED:
        return commit
    # Those of sub-workflow runs are asked when their handler returns.
    awaited = {id: request for id, request in {**before.requests, **asked}.items() if request.is_awaited}
    waiting = {id: request for id, request in awaited.items() if id not in answered and id not in left}
    new = tuple(request for id, request in waiting.items() if id not in before.requests)
    # Those that are still open when nobody waits for an answer are answered when the superstep has ended.
    open_later = commit.status if before.requests.keys() - closed.keys() else WorkflowRunState.IN_PROGRESS
    status = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS if waiting else open_later
    return replace(commit, asked=new, questions=tuple(request.id for request in new), status=status)


def is_later(at: str, stamp: Stamp) -> bool:
    """Return whether a time is later than that of a commit."""
    return datetime.fromisoformat(at) > datetime.fromisoformat(stamp.at)


def _without_asks(source: Checkpoint) -> Checkpoint:
    """Return a checkpoint whose superstep starts afresh: its handlers ask again."""
    requests = {id: request for id, request in source.requests.items() if not request.is_awaited}
    messages = tuple(message for message in source.messages if not message.is_held)
    if len(requests) == len(source.requests) and len(messages) == len(source.messages):
        return source
    status = WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS if requests else WorkflowRunState.IN_PROGRESS
    return replace(source, requests=requests, messages=messages, status=status)


def restore(head: Checkpoint, source: Checkpoint, stamp: Stamp) -> Commit:
    """Return the commit that moves a run back to an earlier checkpoint, to execute afresh from there.

    What was done since remains readable as history and has no other effect.
    """
    number, source = head.number + 1, _without_asks(source)
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
