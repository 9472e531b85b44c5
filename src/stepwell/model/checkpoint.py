"""A checkpoint: the whole of a run at a commit, and which checkpoints of a run are kept."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from stepwell.model.child import Child
from stepwell.model.commit import Stamp
from stepwell.model.event import WorkflowRunState
from stepwell.model.message import Held, RoutedMessage
from stepwell.model.payload import Payload
from stepwell.model.request import Request


class Retention(StrEnum):
    """Which checkpoints of a run are kept."""

    FullHistory = "full-history"  # all of them
    # the newest; superseded data is deleted at the latest when the run rests
    LatestOnly = "latest-only"


FullHistory = Retention.FullHistory
"""Keep every checkpoint of a run."""


LatestOnly = Retention.LatestOnly
"""Keep only the newest checkpoint of a run."""


class RunHeader(msgspec.Struct, frozen=True):
    """What stays the same in a run from commit to commit.

    A restore increments the epoch. A restore or a migration may replace the signature of the graph
    and the version.
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
    priority: int = 0  # which of several ready runs is driven first: the one with the highest
    # What named its code on the command line when it was started: MODULE:WORKFLOW, or a file and its
    # options. For people: nothing is loaded by it.
    code: tuple[str, ...] = ()


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
    # by executor and name: when it is due
    timers: Mapping[str, Mapping[str, str]] = {}
    # the time before which there is nothing to do
    wake: str | None = None

    @property
    def run_id(self) -> str:
        return self.header.run_id
