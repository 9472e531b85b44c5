"""The handlers of one superstep at work: with or without a reader of their events, and how they are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from stepwell.engine.events.broadcast import Broadcast
from stepwell.engine.superstep.reading_task import ReadingTask
from stepwell.engine.superstep.superstep import Superstep
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowEvent, WorkflowRunState


class SuperstepRun(msgspec.Struct, eq=False):
    """Runs the handlers of a superstep once, by `stream` or by `run`."""

    _superstep: Superstep
    _broadcast: Broadcast
    _at: Checkpoint
    _reading_task: ReadingTask
    _task: asyncio.Task[Any] | None = None
    _cancelled: bool = False
    _stopped: bool = False

    async def stream(self) -> AsyncGenerator[WorkflowEvent, None]:
        """Run the handlers in a task, and yield the events they emit meanwhile."""
        yield self._emit_started()
        live = self._broadcast.live
        self._task = asyncio.create_task(self._superstep.run_handlers())
        self._task.add_done_callback(lambda _: live.put_nowait(None))
        self._reading_task.watch()
        while (event := await live.get()) is not None:
            yield event
            self._reading_task.watch()
        if not self._cancelled and not self._stopped:
            self._task.result()

    async def run(self) -> None:
        """Run the handlers: nobody reads a stream, so events can wait for the commit."""
        self._broadcast.hold((self._emit_started(),))
        try:
            if self._reading_task.has_own_task:
                await self._run_here()
            else:
                self._reading_task.watch()
                self._task = asyncio.create_task(self._superstep.run_handlers())
                await self._task
        except asyncio.CancelledError:
            if not self._cancelled or self._reading_task.is_cancelled:
                raise
        if self._reading_task.is_cancelled:
            # A handler has caught it.
            raise asyncio.CancelledError

    async def _run_here(self) -> None:
        """Run the handlers in the task that reads the drive, which saves one for each superstep."""
        task = self._task = asyncio.current_task()
        assert task is not None
        try:
            await self._superstep.run_handlers()
        except asyncio.CancelledError:
            if self._cancelled:
                task.uncancel()
            raise
        finally:
            self._task = None

    def _emit_started(self) -> WorkflowEvent:
        state = WorkflowRunState.IN_PROGRESS
        return self._broadcast.emit("superstep_started", self._at, state, iteration=self._at.iteration + 1)

    def cancel(self) -> None:
        """Cancel the handlers: the run is cancelled."""
        self._cancelled = self._reading_task.has_left = True
        self._interrupt()

    def stop(self) -> None:
        """Cancel the handlers: the drive stops at the last commit."""
        self._stopped = self._reading_task.has_left = True
        self._interrupt()

    def _interrupt(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def halt(self) -> None:
        """Stop the handlers; store finished outcomes, so that a resume does not execute them again."""
        self._reading_task.has_left = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._superstep.persist()
