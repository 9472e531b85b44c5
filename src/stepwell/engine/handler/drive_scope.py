"""What all handler calls of one drive share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import msgspec

from stepwell.codec.codec import Codec
from stepwell.engine.opening.definition import WorkflowDefinition
from stepwell.engine.opening.drive_options import DriveOptions
from stepwell.engine.opening.executor_state import RunExecutors
from stepwell.errors import PrivateMissing
from stepwell.graph.graph import Graph
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowEvent
from stepwell.model.payload import Pack
from stepwell.storage.archive import Archive


class PrivateValues(Mapping[str, Any]):
    """The values passed as `run(private={...})`: readable by handlers, never stored."""

    def __init__(self, run_id: str, values: Mapping[str, Any]) -> None:
        self._run_id, self._values = run_id, values

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            raise PrivateMissing(
                f"run {self._run_id!r} was not passed the private value {key!r}; private values are never stored: "
                f"pass run(..., private={{{key!r}: ...}}) at every start and every resume",
                run_id=self._run_id,
            )
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    # Names only: a secret must not end up in a log.
    def __repr__(self) -> str:
        return f"<private values {sorted(self._values)}>"


class DriveScope(msgspec.Struct, frozen=True):
    """What all handler calls of one drive share."""

    graph: Graph
    codec: Codec
    run_id: str
    epoch: int
    archive: Archive
    executors: RunExecutors
    private: PrivateValues
    options: DriveOptions
    emit: Callable[[WorkflowEvent], None]
    # True once the run is left where it is: nothing new begins in its handlers.
    is_left: Callable[[], bool]
    # False once another process has acquired the run.
    holds_lease: Callable[[], Awaitable[bool]]
    pack: Pack  # of the archive
    streaming: bool  # somebody reads the events while handlers run
    # A commit may be held up, by an async condition or a slow reader of events.
    may_wait: bool
    loop: asyncio.AbstractEventLoop
    thread: int  # of the loop


def create_scope(
    definition: WorkflowDefinition,
    options: DriveOptions,
    at: Checkpoint,
    *,
    archive: Archive,
    executors: RunExecutors,
    emit: Callable[[WorkflowEvent], None],
    is_left: Callable[[], bool],
    holds_lease: Callable[[], Awaitable[bool]],
) -> DriveScope:
    """Return what the handler calls of a drive share that starts at a checkpoint, on the loop of the caller."""
    return DriveScope(
        definition.graph,
        definition.codec,
        run_id=at.run_id,
        epoch=at.header.epoch,
        archive=archive,
        executors=executors,
        private=PrivateValues(at.run_id, options.private),
        options=options,
        emit=emit,
        is_left=is_left,
        holds_lease=holds_lease,
        pack=archive.pack,
        streaming=options.streaming,
        may_wait=archive.is_durable and (options.streaming or definition.graph.has_conditions),
        loop=asyncio.get_running_loop(),
        thread=threading.get_ident(),
    )
