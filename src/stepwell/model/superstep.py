"""The values that flow through a superstep. All are frozen; none knows how it is stored.

    RoutedMessage → plan → Delivery → handler → Outcome → route, merge → Commit → apply → Checkpoint

The theory behind them (commit number, place, epoch) is in `stepwell.kernel`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, Protocol

import msgspec

from stepwell.model.event import WorkflowErrorDetails, WorkflowRunState
from stepwell.model.payload import Payload
from stepwell.model.request import Request


class Reply(msgspec.Struct, frozen=True):
    """The request that a message is the response to."""

    request_id: str
    # the handler of a response also receives the request
    question: Payload
    # the sub-workflow run that made the request, if it was one
    child: str | None = None


def is_text(name: str) -> bool:
    """Return False for a string with a lone surrogate, which no file system and no database accepts."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class RoutedMessage(msgspec.Struct, frozen=True):
    """A message in flight. Its receivers were decided once, when it was sent, and are part of it."""

    id: str
    source: str | None  # None: from outside
    payload: Payload
    # the receiver that the sender named; None: all that the edges lead to
    target: str | None = None
    takers: tuple[str, ...] = ()  # the executors it is delivered to
    # the fan-ins that hold it until they are complete
    joins: tuple[str, ...] = ()
    reply: Reply | None = None


class Delivery(msgspec.Struct, frozen=True):
    """One handler call to make in this superstep. Its id, `place.index`, is the same in every attempt."""

    id: str
    executor: str
    payload: Payload
    sources: tuple[str, ...]
    reply: Reply | None = None


class Child(msgspec.Struct, frozen=True):
    """A sub-workflow run that waits for responses, and the commit at which it waits."""

    run_id: str
    executor: str
    checkpoint_id: str
    number: int
    # The run, and its epoch, that started it. A fork of that run, or the same run after a restore,
    # must not move this one, so it makes a fork of it.
    caller: str

    @staticmethod
    def caller_of(run_id: str, epoch: int) -> str:
        return f"{epoch}/{run_id}"


class LogEntry(msgspec.Struct, frozen=True):
    """An entry of the superstep log: a timer, a failed attempt and when the next is due, or a step's result."""

    due: str
    failure: WorkflowErrorDetails | None = None
    final: bool = False  # no further attempt is made
    # the result of a step; with a failure, the arguments of its error
    value: Payload | None = None
    # what the step called: the name of the function and digests of its arguments
    call: str | None = None


def timer_key(delivery: str, number: int, branch: str = "") -> str:
    return f"{delivery}/timer/{number}{_in_branch(branch)}"


def attempt_key(delivery: str, number: int) -> str:
    return f"{delivery}/attempt/{number}"


def step_key(delivery: str, name: str, number: int, branch: str = "") -> str:
    """Return the key of a step: its name, its branch, and how many steps of that name the branch made before."""
    return f"{delivery}/step/{number}{_in_branch(branch)}/{name}"


def explicit_step_key(delivery: str, name: str, digest: str) -> str:
    """Return the key of a step that the caller identifies by an explicit key, given here as its digest."""
    return f"{delivery}/step/={digest}/{name}"


def _in_branch(branch: str) -> str:
    # no branch means the handler itself
    return f"@{branch}" if branch else ""


Held = Mapping[str, Mapping[str, tuple[Payload, ...]]]
"""What the fan-ins hold: fan-in → source → payloads, oldest first."""


class Plan(msgspec.Struct, frozen=True):
    """The deliveries of one superstep, and what the fan-ins hold once these are made."""

    deliveries: tuple[Delivery, ...]
    held: Held


class Assigned(msgspec.Struct, frozen=True):
    """A write that replaces the value of a state key."""

    value: Payload


class Deleted(msgspec.Struct, frozen=True):
    """A write that removes a state key."""


class Appended(msgspec.Struct, frozen=True):
    """A write that extends the list of a state key."""

    items: tuple[Payload, ...]


Write = Assigned | Deleted | Appended


class Edit(Protocol):
    """A change to part of a value, as `storage` reads it from a delta."""

    def apply_to(self, before: Payload | None) -> Payload:
        """Return the value after the change."""


class Edited(msgspec.Struct, frozen=True):
    """A value of which only the changed part is stored. Handlers never write it; reading a delta gives it."""

    edit: Edit


class Sent(msgspec.Struct, frozen=True):
    """A message that a handler sent and that is not routed yet."""

    payload: Payload
    target: str | None


class Output(msgspec.Struct, frozen=True):
    """A value that a handler yielded."""

    kind: Literal["output", "intermediate"]
    payload: Payload


class Outcome(msgspec.Struct, frozen=True):
    """Everything that one delivery wants to happen, staged until the commit."""

    delivery: str
    executor: str
    sent: tuple[Sent, ...] = ()
    outputs: tuple[Output, ...] = ()
    writes: Mapping[str, Write] = {}
    # the executor's own state afterwards; None: it has none
    saved: Payload | None = None
    requests: tuple[Request, ...] = ()
    children: Mapping[str, Child | None] = {}  # None: it no longer waits
    attempts: int = 1  # how often the handler was called
    # the version of the workflow that the handler belongs to
    version: int = 1


class RecalledLog(msgspec.Struct, frozen=True):
    """The superstep log as it is read back: what was done in a superstep that is not committed yet."""

    outcomes: Mapping[str, Outcome] = {}  # by delivery
    # by timer_key, attempt_key or step_key
    entries: Mapping[str, LogEntry] = {}


class Routed(msgspec.Struct, frozen=True):
    """Who receives one sent message; if nobody does, the reason."""

    takers: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    # no edge or no handler for it: an error, unless the graph says otherwise
    missing: str | None = None
    # there are edges, but every condition said no: a warning
    declined: str | None = None


class Retention(StrEnum):
    """Which checkpoints of a run are kept."""

    FullHistory = "full-history"  # all of them
    # the newest; superseded data is deleted at the latest when the run rests
    LatestOnly = "latest-only"


FullHistory = Retention.FullHistory
"""Keep every checkpoint of a run."""

LatestOnly = Retention.LatestOnly
"""Keep only the newest checkpoint of a run."""


class CommitKind(StrEnum):
    """Why a commit was made."""

    INPUT = "input"
    INTAKE = "intake"  # signals were applied
    SUPERSTEP = "superstep"
    FAILED = "failed"
    CANCELLED = "cancelled"
    FORKED = "forked"
    PARKED = "parked"  # nothing to do before a certain time
    RESTORED = "restored"  # moved back to an earlier checkpoint of the same run
    MIGRATED = "migrated"  # adopted by code with another graph or version
    SAVED = "saved"  # a checkpoint that a user passed to `CheckpointStorage.save`


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


class Commit(msgspec.Struct, frozen=True):
    """One step of a run's history: what changed, and what was done to change it.

    Contains only changes, so that its size does not grow with the run.
    """

    number: int
    kind: CommitKind
    stamp: Stamp
    status: WorkflowRunState
    iteration: int
    since_input: int
    place: int
    messages: tuple[RoutedMessage, ...] | None = None  # None: as before
    held: Held | None = None  # None: as before
    state: Mapping[str, Write | Edited] = {}
    executors: Mapping[str, Payload | Edited] = {}
    asked: tuple[Request, ...] = ()
    # ids of requests that are no longer open
    closed: tuple[str, ...] = ()
    # those that changed; None: it no longer waits
    children: Mapping[str, Child | None] = {}
    # the time before which there is nothing to do
    wake: str | None = None
    # the number of the commit that the run was moved back to
    restored: int | None = None
    # what changed when other code adopted the run, one sentence each
    migrated: tuple[str, ...] = ()
    done: tuple[Done, ...] = ()
    failures: tuple[WorkflowErrorDetails, ...] = ()
    warnings: tuple[str, ...] = ()
    # what users added to a checkpoint; plain JSON data
    metadata: Mapping[str, Any] = {}


class RunHeader(msgspec.Struct, frozen=True):
    """What stays the same in a run from commit to commit.

    Only a restore increments the epoch, and only a migration replaces the signature of the graph and
    the version.
    """

    run_id: str
    workflow: str
    signature: Mapping[str, Any]
    input_digest: str
    epoch: int = 0
    # the checkpoint that this run was forked from, which may be deleted by now
    parent_id: str | None = None
    # of a sub-workflow: the run that called it, which makes its requests for it
    caller: str | None = None
    # the trace in which the run was started, as a W3C traceparent
    trace: str | None = None
    parent_run: str | None = None  # the run of that checkpoint
    parent_number: int | None = None  # and its number
    tags: Mapping[str, str] = {}
    retention: Retention = Retention.FullHistory
    # of the workflow, as its code declares it
    version: int = 1


class Checkpoint(msgspec.Struct, frozen=True):
    """The whole of a run at a commit: all that is needed to resume it."""

    header: RunHeader
    number: int
    stamp: Stamp
    previous_id: str | None
    status: WorkflowRunState
    iteration: int  # the number of supersteps so far
    # the number of supersteps since the last message from outside
    since_input: int
    # the commit that put the messages in flight; deliveries are named after it
    place: int
    messages: tuple[RoutedMessage, ...] = ()
    held: Held = {}
    state: Mapping[str, Payload] = {}
    executors: Mapping[str, Payload] = {}
    requests: Mapping[str, Request] = {}
    # by the id of the run that was called first, whatever forks followed
    children: Mapping[str, Child] = {}
    # the time before which there is nothing to do
    wake: str | None = None

    @property
    def run_id(self) -> str:
        return self.header.run_id
