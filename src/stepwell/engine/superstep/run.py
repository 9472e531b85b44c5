"""The handlers of one superstep at work: with or without a reader of their events, and how they are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from stepwell.engine.events.broadcast import Broadcast
from stepwell.engine.superstep.superstep import Superstep
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowEvent, WorkflowRunState


class SuperstepRun(msgspec.Struct, eq=False):
    """Runs the handlers of a superstep once, by `stream` or by `run`."""

    _superstep: Superstep
    _broadcast: Broadcast
    _at: Checkpoint
    _task: asyncio.Task[Any] | None = None
    _cancelled: bool = False
    _stopped: bool = False

    async def stream(self) -> AsyncGenerator[WorkflowEvent, None]:
        """Run the handlers in a task, and yield the events they emit meanwhile."""
        yield self._emit_started()
        live = self._broadcast.live
        self._task = asyncio.create_task(self._superstep.run_handlers())
        self._task.add_done_callback(lambda _: live.put_nowait(None))
        while (event := await live.get()) is not None:
            yield event
        if not self._cancelled and not self._stopped:
            self._task.result()

    async def run(self) -> None:
        """Run the handlers in the caller's task: nobody reads a stream, so events can wait for the commit."""
        self._broadcast.hold((self._emit_started(),))
        self._task = asyncio.current_task()
        try:
            await self._superstep.run_handlers()
        except asyncio.CancelledError:
            if not self._cancelled or self._task is None or self._task.uncancel() > 0:
                raise  # somebody else cancelled the task
        finally:
            self._task = None

    def _emit_started(self) -> WorkflowEvent:
        state = WorkflowRunState.IN_PROGRESS
        return self._broadcast.emit("superstep_started", self._at, state, iteration=self._at.iteration + 1)

    def cancel(self) -> None:
        """Cancel the handlers: the run is cancelled."""
        self._cancelled = True
        self._interrupt()

    def stop(self) -> None:
        """Cancel the handlers: the drive stops at the last commit."""
        self._stopped = True
        self._interrupt()

    def _interrupt(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def halt(self) -> None:
        """Stop the handlers; store finished outcomes, so that a resume does not execute them again."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._superstep.persist()
