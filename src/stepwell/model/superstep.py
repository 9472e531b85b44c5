"""The values that flow through a superstep. All frozen; none knows how it is stored.

RoutedMessage  → route →  Delivery  → handler →  Outcome  → merge →  Commit  → apply →  Checkpoint
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
    """Which question a message answers."""

    request_id: str
    question: Payload
    child: str | None = None  # the run inside this one that asked it


def is_text(name: str) -> bool:
    """False for a string with half a character in it (a lone surrogate): no file and no database takes it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class RoutedMessage(msgspec.Struct, frozen=True):
    """A payload on its way. Who takes it was decided when it was sent, once, and is part of it."""

    id: str
    source: str | None  # None: from outside
    payload: Payload
    target: str | None = None  # the one asked for; None: whoever the edges say
    takers: tuple[str, ...] = ()  # executors it is delivered to
    joins: tuple[str, ...] = ()  # fan-ins that hold it until they are complete
    reply: Reply | None = None


class Delivery(msgspec.Struct, frozen=True):
    """One handler call to make in this superstep."""

    id: str
    executor: str
    payload: Payload
    sources: tuple[str, ...]
    reply: Reply | None = None


class Child(msgspec.Struct, frozen=True):
    """A run inside a run that waits for answers: where it was left."""

    run_id: str
    executor: str
    checkpoint_id: str
    number: int
    caller: str  # whose it is; whoever is another (a fork) makes a fork of it

    @staticmethod
    def caller_of(run_id: str, epoch: int) -> str:
        return f"{epoch}/{run_id}"


class LogEntry(msgspec.Struct, frozen=True):
    """Something noted inside a superstep: a timer, an attempt that failed and when the next one is due, or what came of
    a step."""

    due: str
    failure: WorkflowErrorDetails | None = None
    final: bool = False  # the attempt was the last one: it was given up
    value: Payload | None = None  # what a step gave; with a failure, the arguments of its error
    call: str | None = None  # what a step called: the name of the function, and digests of the arguments


def timer_key(delivery: str, number: int, branch: str = "") -> str:
    return f"{delivery}/timer/{number}{_in_branch(branch)}"


def attempt_key(delivery: str, number: int) -> str:
    return f"{delivery}/attempt/{number}"


def step_key(delivery: str, name: str, number: int, branch: str = "") -> str:
    """Steps of one name are distinguished by their branch, and there by the order in which they are asked for."""
    return f"{delivery}/step/{number}{_in_branch(branch)}/{name}"


def stated_step_key(delivery: str, name: str, digest: str) -> str:
    """The key of a step whose identity the caller states; the digest is that of what the caller said."""
    return f"{delivery}/step/={digest}/{name}"


def _in_branch(branch: str) -> str:
    return f"@{branch}" if branch else ""  # none: the handler itself


Held = Mapping[str, Mapping[str, tuple[Payload, ...]]]
"""What fan-ins hold: fan-in → source → payloads, oldest first."""


class Plan(msgspec.Struct, frozen=True):
    """The handler calls of one superstep, and what the fan-ins hold once they are made."""

    deliveries: tuple[Delivery, ...]
    held: Held


class Assigned(msgspec.Struct, frozen=True):
    value: Payload


class Deleted(msgspec.Struct, frozen=True):
    pass


class Appended(msgspec.Struct, frozen=True):
    items: tuple[Payload, ...]


Write = Assigned | Deleted | Appended


class Edit(Protocol):
    """A change to a value, as it was read from where it is stored."""

    def apply_to(self, before: Payload | None) -> Payload:
        """The value after the change."""


class Edited(msgspec.Struct, frozen=True):
    edit: Edit


class Sent(msgspec.Struct, frozen=True):
    payload: Payload
    target: str | None


class Output(msgspec.Struct, frozen=True):
    kind: Literal["output", "intermediate"]
    payload: Payload


class Outcome(msgspec.Struct, frozen=True):
    """Everything one delivery wants to happen, staged until the commit."""

    delivery: str
    executor: str
    sent: tuple[Sent, ...] = ()
    outputs: tuple[Output, ...] = ()
    writes: Mapping[str, Write] = {}
    saved: Payload | None = None  # the executor's own state afterwards; None: it keeps none
    requests: tuple[Request, ...] = ()
    children: Mapping[str, Child | None] = {}  # None: it waits no more
    attempts: int = 1  # how often the handler was called for it
    version: int = 1  # of the workflow whose handler that was


class RecalledLog(msgspec.Struct, frozen=True):
    """What was finished or noted inside a superstep before it was committed."""

    outcomes: Mapping[str, Outcome] = {}  # by delivery
    entries: Mapping[str, LogEntry] = {}  # by timer_key or attempt_key


class Routed(msgspec.Struct, frozen=True):
    """Who takes one sent message; where nobody does, the words why."""

    takers: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    missing: str | None = None  # there is no way for it to go
    declined: str | None = None  # there are ways, and the user's conditions all said no


class Retention(StrEnum):
    """Which checkpoints of a run are kept."""

    FullHistory = "full-history"  # every one
    LatestOnly = "latest-only"  # the newest; what is superseded leaves the store at the latest when the run rests


FullHistory, LatestOnly = Retention.FullHistory, Retention.LatestOnly


class CommitKind(StrEnum):
    INPUT = "input"
    INTAKE = "intake"  # answers and messages that came from outside
    SUPERSTEP = "superstep"
    FAILED = "failed"
    CANCELLED = "cancelled"
    FORKED = "forked"
    PARKED = "parked"  # nothing can be done before a certain time
    RESTORED = "restored"  # moved back to an earlier checkpoint of the same run
    MIGRATED = "migrated"  # taken over by code whose graph or version is another
    SAVED = "saved"  # a checkpoint that was handed to a storage by hand


class Stamp(msgspec.Struct, frozen=True):
    """What only the world outside the kernel can know of a commit."""

    checkpoint_id: str
    at: str


class Done(msgspec.Struct, frozen=True):
    """The summary of one outcome: what its events are computed from."""

    delivery: str
    executor: str
    sent: tuple[str, ...]  # ids of messages
    outputs: tuple[Output, ...]
    asked: tuple[str, ...] = ()  # ids of requests
    attempts: int = 1


class Commit(msgspec.Struct, frozen=True):
    """One step of a run's history: what changed, and what was done to change it."""

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
    closed: tuple[str, ...] = ()  # requests that are open no more
    children: Mapping[str, Child | None] = {}  # those that changed; None: it waits no more
    wake: str | None = None  # nothing can be done before
    restored: int | None = None  # the number of the commit that the run was moved back to
    migrated: tuple[str, ...] = ()  # what changed when other code took the run over, in words
    done: tuple[Done, ...] = ()
    failures: tuple[WorkflowErrorDetails, ...] = ()
    warnings: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}  # what users added to a checkpoint; plain JSON data


class RunHeader(msgspec.Struct, frozen=True):
    """What never changes in a run, but for the epoch, which counts how often the run was moved back, and for the graph
    and its version: they are those of the code that took it over last."""

    run_id: str
    workflow: str
    signature: Mapping[str, Any]
    input_digest: str
    epoch: int = 0
    parent_id: str | None = None  # the checkpoint this run was forked from,
    caller: str | None = None  # the run this one works for: that one speaks for it to the world outside
    trace: str | None = None  # the trace it was begun in, as a W3C traceparent
    parent_run: str | None = None  # whose checkpoint that was,
    parent_number: int | None = None  # and its number: it may be gone by now
    tags: Mapping[str, str] = {}
    retention: Retention = Retention.FullHistory
    version: int = 1  # of the workflow, as its code says


class Checkpoint(msgspec.Struct, frozen=True):
    """The whole of a run at a commit: enough to go on from nothing else."""

    header: RunHeader
    number: int
    stamp: Stamp
    previous_id: str | None
    status: WorkflowRunState
    iteration: int  # supersteps of the run
    since_input: int  # supersteps since the last message from outside
    place: int  # the commit that put the messages here: deliveries are named after it
    messages: tuple[RoutedMessage, ...] = ()
    held: Held = {}
    state: Mapping[str, Payload] = {}
    executors: Mapping[str, Payload] = {}
    requests: Mapping[str, Request] = {}
    children: Mapping[str, Child] = {}  # by the id of the run that was called first
    wake: str | None = None  # nothing can be done before

    @property
    def run_id(self) -> str:
        return self.header.run_id
