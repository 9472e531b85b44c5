"""A commit: one entry of a run's history."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from stepwell.model.child import Child
from stepwell.model.event import WorkflowErrorDetails, WorkflowRunState
from stepwell.model.message import Held, Output, RoutedMessage
from stepwell.model.payload import Payload
from stepwell.model.request import AnswerRecord, Request
from stepwell.model.state_writes import Edited, Write
from stepwell.model.timing import CallTime, StepRecord


class CommitKind(StrEnum):
    """Why a commit was made."""

    INPUT = "input"
    INTAKE = "intake"  # signals were applied
    SUPERSTEP = "superstep"
    FAILED = "failed"
    CANCELLED = "cancelled"
    FORKED = "forked"
    PARKED = "parked"  # nothing to do before a certain time
    RETRIED = "retried"  # a run that had stopped is ready again
    RESTORED = "restored"  # moved back to an earlier checkpoint of the same run
    MIGRATED = "migrated"  # code with another graph or version continues the run
    SAVED = "saved"  # a checkpoint that a user passed to `CheckpointStorage.save`


# What nobody but a person, or a program on behalf of one, brings about.
DECIDED = frozenset({CommitKind.CANCELLED, CommitKind.FORKED, CommitKind.RETRIED, CommitKind.RESTORED})


def decides(kind: str, *, caller: str | None, by: str | None, has_answers: bool) -> bool:
    """Return whether a commit of that kind puts on record what somebody decided: an answer, a cancel, a fork.

    What was decided for the run of a sub-workflow is on record in its caller.
    """
    return caller is None and (has_answers or by is not None or kind in DECIDED)


class Stamp(msgspec.Struct, frozen=True):
    """The id and time of a commit, which the pure kernel cannot make up itself."""

    checkpoint_id: str
    at: str


class Done(msgspec.Struct, frozen=True):
    """The summary of one outcome in a commit, from which its events are computed."""

    delivery: str
    executor: str
    sent: tuple[str, ...]  # ids of messages
    outputs: tuple[Output, ...]
    asked: tuple[str, ...] = ()  # ids of requests
    attempts: int = 1
    time: CallTime | None = None  # of the attempt that succeeded
    steps: tuple[StepRecord, ...] = ()


class Commit(msgspec.Struct, frozen=True):
    """One entry of a run's history: what changed, and what was done to change it.

    Most contain only changes, so that their size does not grow with the run. A forked, restored,
    migrated or saved one contains the whole checkpoint, because it is not applied to the one before
    it.
    """

    number: int
    kind: CommitKind
    stamp: Stamp
    status: WorkflowRunState
    # supersteps since the run, or the one it was forked from, started
    iteration: int
    # supersteps since the last message from outside, input or response; `max_iterations` limits it
    since_input: int
    # the number of the commit that put the messages in flight: see `stepwell.kernel`
    place: int
    messages: tuple[RoutedMessage, ...] | None = None  # None: as before
    held: Held | None = None  # None: as before
    state: Mapping[str, Write | Edited] = {}
    executors: Mapping[str, Payload | Edited] = {}
    asked: tuple[Request, ...] = ()
    # ids of those that handlers wait for since this commit; of an intake: that it closes before the superstep in which
    # they were made is committed
    questions: tuple[str, ...] = ()
    # ids of requests that are no longer open
    closed: tuple[str, ...] = ()
    # the responses that closed some of them
    answers: tuple[AnswerRecord, ...] = ()
    # ids of those that handlers took back
    withdrawn: tuple[str, ...] = ()
    # those that changed; None: it no longer waits
    children: Mapping[str, Child | None] = {}
    # the tags of the run that changed; None: removed
    tags: Mapping[str, str | None] = {}
    # by executor and name, those that changed: when it is due; None: it is not set any more
    timers: Mapping[str, Mapping[str, str | None]] = {}
    # the time before which there is nothing to do
    wake: str | None = None
    # the number of the commit that the run was moved back to
    restored: int | None = None
    # what the migration to other code changed, one sentence each
    migrated: tuple[str, ...] = ()
    done: tuple[Done, ...] = ()
    failures: tuple[WorkflowErrorDetails, ...] = ()
    warnings: tuple[str, ...] = ()
    # who started, resumed, cancelled, forked or moved back the run with this commit, and why
    by: str | None = None
    reason: str | None = None
    # what users added to a checkpoint; plain JSON data
    metadata: Mapping[str, Any] = {}
