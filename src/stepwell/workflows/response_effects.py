"""Finds in the history of a sub-workflow run what a response to it, or one of its timers, led to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from stepwell import kernel
from stepwell.kernel import find_fired
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, CommitKind
from stepwell.model.message import Reply
from stepwell.model.request import Request


def find_effects(
    commits: Sequence[Commit], answers: Collection[str], open_now: Collection[str]
) -> Sequence[Commit] | None:
    """Return the commits between a response and the next response or timer; None if it was never applied.

    `answers` has the id of its request; if it is empty, the commits are those that follow a timer. If several
    responses were applied at once, the commits belong to the first of them. `open_now` are the requests that are open
    afterwards: if it is one of them, the handler that waits has rejected the response.
    """
    if not answers:
        return _find_timer_effects(commits)
    (request_id,) = answers
    begin = next((n for n, commit in enumerate(commits) if request_id in _applied_requests(commit)), None)
    if begin is None and request_id in open_now:
        return ()
    if begin is None:
        # The handler that waited for it was called again, and has returned without it.
        last = next((n for n, commit in enumerate(commits) if request_id in commit.closed), None)
        moved = last is not None and len(_until_next(commits[: last + 1], timers=True)) == last + 1
        return _until_next(commits, timers=True) if moved else None
    if _applied_requests(commits[begin])[0] != request_id:
        return ()
    # An intake only sends it on; a handler that waited has used it in the commit itself.
    first = [] if commits[begin].kind is CommitKind.INTAKE else [commits[begin]]
    return [*first, *_until_next(commits[begin + 1 :], timers=True)]


def _find_timer_effects(commits: Sequence[Commit]) -> Sequence[Commit]:
    """Return the commits between the first timer that fired and the next response; empty if none fired."""
    begin = next((n for n, commit in enumerate(commits) if _has_timers(commit)), len(commits))
    return _until_next(commits[begin + 1 :], timers=False)


def read_effects(
    commits: Sequence[Commit], at: Checkpoint, open_now: Mapping[str, Request], answers: Collection[str]
) -> tuple[list[Any], list[Request]]:
    """Return the outputs of some commits, and those of their requests that are still open.

    With them, what is open beside the checkpoint, and what is open again because its response was rejected.
    """
    # A commit may be a snapshot: what is new in it is read from its outcomes.
    outputs: list[Any] = []
    requests: list[Request] = []
    for commit in commits:
        outputs += [o.payload.open() for done in commit.done for o in done.outputs if o.kind == "output"]
        new = {*commit.questions, *(id for done in commit.done for id in done.asked)}
        # Requests that are answered already are not asked again.
        requests += [request for request in commit.asked if request.id in new and request.id in at.requests]
    known = {request.id for request in requests}
    requests += [r for id, r in open_now.items() if id not in known and (id not in at.requests or id in answers)]
    return outputs, requests


def compare_requests(
    caller: Checkpoint,
    key: str,
    open_now: Mapping[str, Request],
    found: Iterable[Request],
    *,
    answers: Collection[str],
) -> tuple[list[str], list[Request]]:
    """Compare what is open in a sub-workflow run with what its caller asks for it.

    Returns the ids of the caller's requests that the run has closed itself, and those of the
    requests found in it that the caller is to ask. `answers` are the requests that have just been
    answered.
    """
    asked = {(kernel.inner_id(id, key), r.at): id for id, r in caller.requests.items() if r.child == key}
    closed = [id for (inner, at), id in asked.items() if inner not in open_now or open_now[inner].at != at]
    # Answers to others are on the way to this run, in other deliveries of the superstep.
    replies = [m.reply for m in caller.messages if m.reply is not None and m.reply.child == key and not m.is_held]
    on_the_way = {kernel.inner_id(reply.request_id, key) for reply in replies}.difference(answers)
    return closed, [r for r in found if (r.id, r.at) not in asked and r.id not in on_the_way]


def is_new(caller: Checkpoint, key: str, request: Request, applied: Reply | None) -> bool:
    """Return whether a request of a sub-workflow run is to be listed before its caller's superstep is committed.

    Not if the caller asks it already, or a response to it is under way. `applied` is the response that the run just
    got: it may ask again under the same id.
    """
    asked = {(kernel.inner_id(id, key), r.at) for id, r in caller.requests.items() if r.child == key}
    replies = [m.reply for m in caller.messages if m.reply is not None and m.reply.child == key and m.reply != applied]
    answered = {kernel.inner_id(reply.request_id, key) for reply in replies}
    return (request.id, request.at) not in asked and request.id not in answered


def _until_next(commits: Sequence[Commit], *, timers: bool) -> Sequence[Commit]:
    """Return the commits before the first that applied a response or, with `timers`, a timer."""
    ends = (n for n, commit in enumerate(commits) if commit.answers or (timers and _has_timers(commit)))
    return commits[: next(ends, len(commits))]


def _has_timers(commit: Commit) -> bool:
    return commit.kind is CommitKind.INTAKE and bool(find_fired(commit))


def _applied_requests(commit: Commit) -> list[str]:
    """Return the requests whose responses a commit applied."""
    return [answer.request_id for answer in commit.answers]
