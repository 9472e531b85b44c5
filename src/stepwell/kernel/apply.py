"""Turns a commit into the next checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.child import Child
from stepwell.model.commit import Commit
from stepwell.model.payload import Payload
from stepwell.model.request import Request
from stepwell.model.state import apply_write
from stepwell.model.state_writes import Edited


def apply(
    header: RunHeader, before: Checkpoint | None, commit: Commit, *, previous_id: str | None = None
) -> Checkpoint:
    """Return the checkpoint that a commit leads to.

    `before` is None for a commit that contains everything; `previous_id` names its predecessor then.
    Parts that did not change are shared with `before`, so the cost grows with what changed.
    """
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
    still_open = {id: request for id, request in before.items() if id not in commit.closed}
    return still_open | {request.id: request for request in commit.asked}
