"""Moves a run on in the background of an event loop, as long as there is a reason to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from itertools import chain, repeat
from typing import Any, Protocol

from msgspec.structs import replace

from stepwell.engine import watchers
from stepwell.engine.definition import WorkflowDefinition
from stepwell.engine.drive import Drive
from stepwell.engine.open_run import STOPPED, Continue, Fresh, MoveBack, Position, Stopped, check_same_start
from stepwell.errors import CommitConflict, RunBusy, RunError
from stepwell.model.event import WorkflowRunState
from stepwell.model.superstep import Checkpoint
from stepwell.storage import clock
from stepwell.storage.archive import Archive
from stepwell.storage.checkpoint_storage import CheckpointStorage

_LOG = logging.getLogger("stepwell")

_TRY_AGAIN = (0.05, 0.1, 0.25, 0.5)  # seconds between attempts to take over a run that somebody else drives;
_AT_LEAST_EVERY = 1.0  # from then on

AT_REST = (
    WorkflowRunState.IDLE,
    WorkflowRunState.IDLE_WITH_PENDING_REQUESTS,
    WorkflowRunState.FAILED,
    WorkflowRunState.CANCELLED,
)


class Runnable(Protocol):
    """A workflow, as far as those who hold its runs need it."""

    @property
    def name(self) -> str: ...
    @property
    def _definition(self) -> WorkflowDefinition: ...
    def _drive(
        self, position: Position, storage: CheckpointStorage | None, streaming: bool, private: Mapping[str, Any]
    ) -> Drive: ...
    def _archive_on(self, storage: CheckpointStorage) -> Archive: ...


Begun = asyncio.Future[Checkpoint | None]
"""Done when it is stored where a run was begun or moved back to; None if somebody else did that."""


class BackgroundDrive:
    """Moves one run on, for one handle. Whatever it is asked for, one drive at a time does it."""

    def __init__(self, workflow: Runnable, run_id: str, storage: CheckpointStorage, private: Mapping[str, Any]) -> None:
        self._workflow, self._run_id, self._storage, self._private = workflow, run_id, storage, private
        self.key = watchers.key_of(self.archive(), run_id)
        self._onward = Continue(run_id, unless_stopped=True)
        self._task: asyncio.Task[None] | None = None
        self._more = False  # something may have come since the drive that is under way looked
        self._alarm: asyncio.TimerHandle | None = None
        self._failure: tuple[int, RunError] | None = None  # what the commit of that number failed with
        self.error: BaseException | None = None  # what the last time of moving ended with, once it was begun
        self.drives_ended = 0  # that it has moved the run and come to an end

    def archive(self) -> Archive:
        return self._workflow._archive_on(self._storage)

    def drive(self, position: Position) -> Drive:
        return self._workflow._drive(position, self._storage, streaming=True, private=self._private)

    def is_driving(self) -> bool:
        return self._task is not None and not self._task.done()

    def failure_of(self, number: int) -> RunError | None:
        """What a commit says that the run failed with, if it was here that it did."""
        return self._failure[1] if self._failure is not None and self._failure[0] == number else None

    def begin(self, position: Position) -> Begun:
        """Begin a run, or go on with it on purpose, in the background."""
        begun: Begun = asyncio.get_running_loop().create_future()
        self._start(position, begun)
        return begun

    def continue_run(self) -> None:
        """See to it that what was posted is taken in, here or by whoever drives the run, and that it is moved on if
        nobody does. Never resumes a run that failed or was cancelled."""
        self._more = True
        if (restoring := _RESTORING.get(_here(self.key))) is not None:
            restoring.waiting.add(self)  # as soon as it is there
        elif not self.is_driving():
            begun: Begun = asyncio.get_running_loop().create_future()
            begun.set_result(None)
            self._start(self._onward, begun)

    async def restore_run(self, position: MoveBack) -> Checkpoint | None:
        """Move the run back. What moves it in this event loop stops first. Raises RunBusy if somebody else does."""
        restoring = _RESTORING.setdefault(_here(self.key), _Restoring())
        restoring.count += 1
        try:
            async with restoring.turn:
                return await self._restore(position)
        finally:
            restoring.count -= 1
            if restoring.count == 0:
                del _RESTORING[_here(self.key)]
                for drive in restoring.waiting:
                    drive.continue_run()

    async def _restore(self, position: MoveBack) -> Checkpoint | None:
        while True:
            while tasks := _driving_tasks(self.key):
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            try:
                return await asyncio.shield(self.begin(position))
            except RunBusy:
                if not _driving_tasks(self.key):
                    raise  # those who are at it are no handles of this loop

    def _start(self, position: Position, begun: Begun) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._task = asyncio.create_task(self._drive_in_background(position, begun))
        _DRIVING[self._task] = self.key
        self._task.add_done_callback(lambda task: self._finish_task(task, begun))

    def _finish_task(self, task: asyncio.Task[None], begun: Begun) -> None:
        del _DRIVING[task]
        if not begun.done():  # it was stopped, perhaps before its first step
            begun.set_result(None)
        watchers.publish(self.key, watchers.LOOK_AGAIN)

    async def _drive_in_background(self, position: Position, begun: Begun) -> None:
        self.error = None
        try:
            self._wake_later(await self._drive_until_idle(position, begun))
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - told to whoever waits for it
            if not begun.done():
                begun.set_exception(error)
                return
            self.error = error
            if not isinstance(error, RunError):  # those are part of its history
                _LOG.warning("run %r of %r stands still: %s", self._run_id, self._workflow.name, error)
        finally:
            self.drives_ended += 1

    async def _drive_until_idle(self, position: Position, begun: Begun) -> Checkpoint | None:
        """Drive the run, as often as something comes for it. While somebody else drives it, try to take it over."""
        waits = chain(_TRY_AGAIN, repeat(_AT_LEAST_EVERY))
        while True:
            self._more = False
            try:
                at = await self._drive(position, begun)
                position = self._onward
                if not await self._has_more():
                    return at
            except Stopped:
                return None
            except RunBusy:
                if isinstance(position, MoveBack) and not begun.done():
                    raise
                position = await self._position_if_busy(position, begun)
                await asyncio.sleep(next(waits))
                if not await self._is_wanted(position) and not self._more:
                    return None

    async def _drive(self, position: Position, begun: Begun) -> Checkpoint | None:
        drive = self.drive(position)
        try:
            async for _ in drive.events():
                if not begun.done():
                    begun.set_result(drive.at)
            return drive.at
        except RunError as error:
            if drive.at is not None and drive.at.status is WorkflowRunState.FAILED:
                self._failure = drive.at.number, error
            raise
        except CommitConflict as conflict:
            head = await self.archive().head(self._run_id)
            if head is None or drive.at is None or head.number <= drive.at.number:
                raise
            raise RunBusy(str(conflict), run_id=self._run_id, owner="somebody else") from conflict

    async def _has_more(self) -> bool:
        while self._more:
            self._more = False
            if await self._is_wanted(self._onward):
                return True
        return False

    async def _position_if_busy(self, position: Position, begun: Begun) -> Position:
        """Somebody else was first: then the run is begun, provided it is the one that was to begin here."""
        if isinstance(position, Fresh) and not begun.done():
            head = await self.archive().head(self._run_id)
            if head is None:
                return position  # it is just about to begin
            check_same_start(self._workflow._definition, head, position.message)
            begun.set_result(None)
            return replace(self._onward, except_at=head.number)  # if it had stopped there, it is to go on
        return position if isinstance(position, Continue) else self._onward

    async def _is_wanted(self, position: Position) -> bool:
        """Whether there is a reason to drive the run: mail that nobody took in, or somebody who watches."""
        head = await self.archive().head(self._run_id)
        if head is None or not isinstance(position, Continue):
            return True  # it is to be begun
        if head.status in STOPPED:
            return head.number == position.except_at
        if head.status not in AT_REST and watchers.local_drive(self.key) is None and watchers.is_watched(self.key):
            return True
        return bool(await self.archive().pending_signals(self._run_id))

    def _wake_later(self, at: Checkpoint | None) -> None:
        """A run that sleeps holds no more here than a place in the loop's timetable."""
        if at is not None and at.wake is not None and at.status not in AT_REST:
            seconds = max(0.0, clock.until(at.wake).total_seconds())
            self._alarm = asyncio.get_running_loop().call_later(seconds, self.continue_run)


_DRIVING: dict[asyncio.Task[None], watchers.Key] = {}
"""What moves in the background, and which run. A task that nobody holds might be collected."""


class _Restoring:
    """While a run is moved back, one at a time does that, and nobody else begins to move it."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.count = 0  # of those who move it back or wait for their turn
        self.waiting: set[BackgroundDrive] = set()  # who want to move it on


_RESTORING: dict[tuple[watchers.Key, asyncio.AbstractEventLoop], _Restoring] = {}


def _here(key: watchers.Key) -> tuple[watchers.Key, asyncio.AbstractEventLoop]:
    return key, asyncio.get_running_loop()


def _driving_tasks(key: watchers.Key) -> list[asyncio.Task[None]]:
    """Those that move a run on in this event loop."""
    here = asyncio.get_running_loop()
    return [task for task, run in list(_DRIVING.items()) if run == key and task.get_loop() is here and not task.done()]
