"""What one call of `run` asks for, and where a drive gets its executors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from stepwell.codec.codec import Codec
from stepwell.engine.durability.deferred_archive import Durability
from stepwell.engine.opening.open_run import Position
from stepwell.graph.executor import Executor
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.request import Request
from stepwell.storage.archive import Archive

ListRequest = Callable[[Request, bool], Awaitable[None]]
"""Lists a request of a sub-workflow run with the run that people know; with False, takes it off the list."""

OnChangedStep = Literal["refuse", "recall"]
"""What to do when a step is called with other arguments than those of its stored result."""


class DriveOptions(msgspec.Struct, frozen=True):
    """The options of one drive."""

    position: Position
    archive: Archive
    streaming: bool
    private: Mapping[str, Any]
    responses: Mapping[str, Any]
    # Opens the archive of a sub-workflow, given its name, its codec and the commit that its caller refers to.
    archive_for: Callable[[str, Codec, int | None], Archive]
    # The id of the run that this one is a sub-workflow run of.
    caller: str | None = None
    # The id of the outermost run that this one works for; None: it is that run.
    root: str | None = None
    durability: Durability = "sync"
    # Asked when another drive holds the lease: a caller that still holds its own lease may take over its child.
    may_take_over: Callable[[], Awaitable[bool]] | None = None
    # Use a stored step result even if its arguments have changed.
    recall_changed: bool = False
    # Execute no step: one that has no stored result waits for ever.
    only_replay: bool = False
    # Of a sub-workflow run: its timers that were due by then fire; None: none does.
    timers_until: str | None = None
    # Of a sub-workflow run: lists a request with the run that people know, before this one rests.
    list_request: ListRequest | None = None
    # How many drivers in a row may be lost without a commit, before the run is set aside; None: any number.
    most_takeovers: int | None = None
    # Emit spans; counts and durations are recorded in any case.
    emits_spans: bool = True


class ExecutorSource(msgspec.Struct, frozen=True):
    """Where a drive acquires its executors, and where it releases them to."""

    acquire: Callable[[], Mapping[str, Executor]]
    # Called with the executors, where the run is, and the archive it is in.
    release: Callable[[Mapping[str, Executor], Checkpoint | None, Archive], None]
    # The executors are those that the run had when it was left, as they were.
    are_live: bool = False
