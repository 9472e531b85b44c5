"""What one call of `run` asks for, and where a drive gets its executors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from stepwell.codec.codec import Codec
from stepwell.engine.durability import Durability
from stepwell.engine.open_run import Position
from stepwell.graph.executor import Executor
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit
from stepwell.storage.archive import Archive

OnChangedStep = Literal["refuse", "recall"]
"""What to do when a step is called with other arguments than those of its stored result."""


def no_archive(name: str, codec: Codec) -> Archive | None:
    """Return no archive: the sub-workflow runs of a run that is not stored are not stored either."""
    return None


class Options(msgspec.Struct, frozen=True):
    """The options of one drive."""

    position: Position
    archive: Archive | None
    streaming: bool
    private: Mapping[str, Any]
    responses: Mapping[str, Any]
    # Opens the archive of a sub-workflow, given its name and codec.
    archive_for: Callable[[str, Codec], Archive | None] = no_archive
    # The id of the run that this one is a sub-workflow run of.
    caller: str | None = None
    durability: Durability = "sync"
    # Asked when another drive holds the lease: a caller that still holds its own lease may take over its child.
    may_take_over: Callable[[], Awaitable[bool]] | None = None
    # Use a stored step result even if its arguments have changed.
    recall_changed: bool = False


class ExecutorSource(msgspec.Struct, frozen=True):
    """Where a drive acquires its executors, and where it releases them to."""

    acquire: Callable[[], Mapping[str, Executor]]
    release: Callable[[Mapping[str, Executor], Checkpoint | None, Sequence[Commit]], None]
