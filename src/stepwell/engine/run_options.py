"""What one call of `run` asks for, and who plays in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from stepwell.codec.codec import Codec
from stepwell.engine.durability import Durability
from stepwell.engine.open_run import Position
from stepwell.graph.executor import Executor
from stepwell.model.superstep import Checkpoint, Commit
from stepwell.storage.archive import Archive

OnChangedStep = Literal["refuse", "recall"]
"""What happens if a step is asked for with other arguments than those its stored result came of."""


def no_archive(name: str, codec: Codec) -> Archive | None:
    """Where the runs inside a run are kept that is kept nowhere."""
    return None


class Options(msgspec.Struct, frozen=True):
    """What one call of `run` asks for."""

    position: Position
    archive: Archive | None
    streaming: bool
    private: Mapping[str, Any]
    responses: Mapping[str, Any]
    archive_for: Callable[[str, Codec], Archive | None] = no_archive  # of a workflow inside this one
    caller: str | None = None  # the run this one works for
    durability: Durability = "sync"
    by_right: Callable[[], Awaitable[bool]] | None = None  # whether who wants to drive it may take it from others
    recall_changed: bool = False  # the stored result of a step is taken even if it came of another call


class Troupe(msgspec.Struct, frozen=True):
    """Where a drive gets its executors, and gives them back to."""

    take: Callable[[], Mapping[str, Executor]]
    give_back: Callable[[Mapping[str, Executor], Checkpoint | None, Sequence[Commit]], None]
