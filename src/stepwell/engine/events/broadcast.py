"""Emits the events of a drive: to the reader of its stream, and to watchers in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any

from stepwell import kernel
from stepwell.engine.events.watchers import WATCHERS, EmittedEvents, Key, key_of, publish
from stepwell.engine.failures import details_of
from stepwell.engine.opening.open_run import StartingPoint
from stepwell.errors import DurabilityError
from stepwell.graph.graph import Graph
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, CommitKind
from stepwell.model.event import WorkflowEvent, WorkflowEventSource, WorkflowRunState
from stepwell.model.message import Plan
from stepwell.storage.archive import Archive
from stepwell.storage.checkpoint import WorkflowCheckpoint, view


class Broadcast:
    """Creates the events of one drive. Live events wait in `live` for a reader, or for `drain` if there is none."""

    def __init__(self, archive: Archive, streaming: bool) -> None:
        self._archive, self._streaming = archive, streaming
        self._key: Key = key_of(archive, "")  # until `set_run`
        # The number of the latest commit that was emitted.
        self._number = -1
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.live: asyncio.Queue[WorkflowEvent | None] = asyncio.Queue()
        self._waiting: list[WorkflowEvent] = []
        self._add: Callable[[WorkflowEvent], None] = self.live.put_nowait if streaming else self._waiting.append

    def set_run(self, run_id: str) -> None:
        """Set the run that the events belong to."""
        self._key = key_of(self._archive, run_id)

    def emit_live(self, event: WorkflowEvent) -> None:
        """Emit an event of a handler, from any thread."""
        if self._key in WATCHERS:
            publish(self._key, EmittedEvents(self._number, [event]))
        if threading.get_ident() == self._thread:
            self._add(event)
        else:
            self._loop.call_soon_threadsafe(self._add, event)

    def hold(self, events: Iterable[WorkflowEvent]) -> None:
        """Let events wait for `drain`."""
        self._waiting += events

    def drain(self) -> list[WorkflowEvent]:
        """Return the events that wait; with a reader, also those that came after its last handler."""
        events: list[WorkflowEvent] = []
        while not self.live.empty():
            if (event := self.live.get_nowait()) is not None:
                events.append(event)
        events += self._waiting
        self._waiting.clear()
        return events

    def emit_commit(self, commit: Commit, at: Checkpoint) -> list[WorkflowEvent]:
        """Return the events of a commit, and publish them to watchers."""
        stored = self._archive.is_durable
        seen = _CheckpointView(at, commit) if stored and self._streaming else None
        events = kernel.events(at.header.run_id, commit, stored=stored, seen=seen)
        if self._key in WATCHERS:
            publish(self._key, EmittedEvents(commit.number - 1, events, commit.number))
        self._number = commit.number
        return events

    def emit(
        self, type: str, at: Checkpoint, state: WorkflowRunState | None = None, **attributes: Any
    ) -> WorkflowEvent:
        """Create an event of the engine itself, and publish it unless it is part of a commit."""
        origin = WorkflowEventSource.FRAMEWORK
        event = WorkflowEvent(type, run_id=at.header.run_id, state=state or at.status, origin=origin, **attributes)
        if event.commit is None and self._key in WATCHERS:
            publish(self._key, EmittedEvents(self._number, [event]))
        return event

    def emit_store_failure(self, at: Checkpoint, error: DurabilityError) -> list[WorkflowEvent]:
        """Return the events of a failure that could not be stored: they are live only."""
        details = details_of(None, error)
        return [self.emit(type, at, details=details, state=WorkflowRunState.FAILED) for type in ("failed", "status")]

    async def emit_opening(
        self,
        graph: Graph,
        run: StartingPoint,
        at: Checkpoint,
        first: Commit | None,
        *,
        plan: Plan,
        answered: AbstractSet[str],
        rests: bool,
    ) -> list[WorkflowEvent]:
        """Return the events before the first superstep: where the run is, its outputs so far and its open requests.

        `first` is the commit that was made on opening; `answered` are requests whose response has arrived. `rests`:
        its handlers sleep or wait, and there is nothing to do yet.
        """
        self._number = at.number if first is None else at.number - 1
        asleep = at.wake is not None
        state = WorkflowRunState.IN_PROGRESS if plan.deliveries and not asleep and not rests else at.status
        events = [self.emit("started", at, state=state)]
        if plan.deliveries:
            events.append(self.emit("status", at, state=state))
        if self._archive.shortcomings:
            events.append(self.emit("warning", at, state=state, data=self._archive.shortcomings))
        if first is not None:
            events += self.emit_commit(first, at)
        events += await self._replay_outputs(run, at)
        events += [e for e in kernel.request_events(at.run_id, at) if e.request_id not in answered]
        if at.wake is not None:
            events.append(
                self.emit("sleeping", at, data=datetime.fromisoformat(at.wake), commit=at.number, replayed=True)
            )
        if not plan.deliveries and not answered:
            events.append(self.emit("status", at, commit=at.number, replayed=True))
        if run.is_continued:
            # Withdraw updates that an earlier drive may have emitted before it died: those handlers run again.
            streaming = [d for d in plan.deliveries if graph.executors[d.executor]._streams_updates]
            again = [d for d in streaming if d.id not in run.log.outcomes]
            events += [self.emit("withdrawn", at, executor_id=d.executor, delivery=d.id) for d in again]
        return events

    async def _replay_outputs(self, run: StartingPoint, at: Checkpoint) -> list[WorkflowEvent]:
        if run.first is CommitKind.INPUT:
            return []
        commits = await self._archive.output_commits(at)
        return [event for run_id, commit in commits for event in kernel.output_events(run_id, commit)]


class _CheckpointView:
    """A checkpoint that is decoded only if somebody looks at it."""

    __slots__ = ("_at", "_commit")

    def __init__(self, at: Checkpoint, commit: Commit) -> None:
        self._at, self._commit = at, commit

    def open(self) -> WorkflowCheckpoint:
        return view(self._at, self._commit)
