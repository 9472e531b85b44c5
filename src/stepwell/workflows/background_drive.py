"""Drives a run in the background of an event loop, as long as there is a reason to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import aclosing
from itertools import chain, repeat
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from stepwell.engine.drive.drive import Drive
from stepwell.engine.events import watchers
from stepwell.engine.opening.definition import WorkflowDefinition
from stepwell.engine.opening.open_run import (
    STOPPED,
    Position,
    RestoreRun,
    ResumeRun,
    StartRun,
    Stopped,
    check_same_start,
)
from stepwell.errors import CommitConflict, ResponseRejected, RunBusy, RunError
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowRunState
from stepwell.storage import clock
from stepwell.storage.archive import Archive
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.viz.workflow_diagram import Drawable

_LOG = logging.getLogger("stepwell")

# Seconds between attempts to acquire a run that another process drives, and the interval from then on.
_TRY_AGAIN = (0.05, 0.1, 0.25, 0.5)
_AT_LEAST_EVERY = 1.0

_WAITING = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
AT_REST = (
    WorkflowRunState.IDLE,
    _WAITING,
    WorkflowRunState.FAILED,
    WorkflowRunState.CANCELLED,
)


class Runnable(Drawable, Protocol):
    """A workflow, as handles of its runs need it."""

    @property
    def name(self) -> str: ...
    @property
    def _definition(self) -> WorkflowDefinition: ...
    def _drive(
        self, position: Position, storage: CheckpointStorage | None, streaming: bool, private: Mapping[str, Any]
    ) -> Drive: ...
    def _archive_on(self, storage: CheckpointStorage) -> Archive: ...


StartFuture = asyncio.Future[Checkpoint | None]
"""Done when the run is stored where it was started or moved back to; None if another process did that."""


class BackgroundDrive:
    """Drives one run for one handle, with one drive at a time."""

    def __init__(self, workflow: Runnable, run_id: str, storage: CheckpointStorage, private: Mapping[str, Any]) -> None:
        self._workflow, self._run_id, self._storage, self._private = workflow, run_id, storage, private
        self.key = watchers.key_of(self.archive(), run_id)
        self._resume_position = ResumeRun(run_id, unless_stopped=True)
        self._task: asyncio.Task[None] | None = None
        # Something may have arrived since the current drive looked.
        self._has_news = False
        self._wake_timer: asyncio.TimerHandle | None = None
        self._failure: tuple[int, RunError] | None = None  # a failed commit and its error
        # What the latest drive ended with, if it had started.
        self.error: BaseException | None = None
        self.drives_ended = 0  # how many drives have ended

    def archive(self) -> Archive:
        return self._workflow._archive_on(self._storage)

    def drive(self, position: Position) -> Drive:
        return self._workflow._drive(position, self._storage, streaming=True, private=self._private)

    def is_driving(self) -> bool:
        return self._task is not None and not self._task.done()

    def failure_of(self, number: int) -> RunError | None:
        """Return the error that a commit reports, if it happened in this process."""
        return self._failure[1] if self._failure is not None and self._failure[0] == number else None

    def begin(self, position: Position) -> StartFuture:
        """Start a run, or resume it on purpose, in the background."""
        started: StartFuture = asyncio.get_running_loop().create_future()
        self._start(position, started)
        return started

    def continue_run(self) -> None:
        """Have signals applied, here or by the process that drives the run, and drive it if nobody does. Never
        resumes a run that failed or was cancelled."""
        self._has_news = True
        if _loop_state().is_leaving:
            return  # another process continues it
        if (restore := _loop_state().restores.get(self.key)) is not None:
            # Continued when the restore is done.
            restore.waiting.add(self)
        elif not self.is_driving():
            started: StartFuture = asyncio.get_running_loop().create_future()
            started.set_result(None)
            self._start(self._resume_position, started)

    async def restore_run(self, position: RestoreRun, *, drive: bool) -> Checkpoint | None:
        """Move the run back, and, with `drive`, continue it. Drives of this event loop are stopped first. Raises
        RunBusy if another one holds it."""
        restores = _loop_state().restores
        restore = restores.setdefault(self.key, _Restore())
        restore.count += 1
        try:
            async with restore.turn:
                return await self._restore(position, drive)
        finally:
            restore.count -= 1
            if restore.count == 0:
                del restores[self.key]
                for waiting in restore.waiting:
                    waiting.continue_run()

    async def _restore(self, position: RestoreRun, drive: bool) -> Checkpoint | None:
        while True:
            # A cancelled drive may be replaced by one that was just about to start, hence the loop.
            while tasks := _driving_tasks(self.key):
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            try:
                return await asyncio.shield(self.begin(position)) if drive else await self._commit_restore(position)
            except RunBusy:
                if not _driving_tasks(self.key):
                    # The run is driven by something else than a handle of this loop.
                    raise

    async def _commit_restore(self, position: RestoreRun) -> Checkpoint | None:
        drive = self.drive(position)
        drive.hands_over = True
        # The first event means that the run was moved back; closing the stream leaves it there.
        async with aclosing(drive.events()) as events:
            await anext(events)
            return drive.at

    def _start(self, position: Position, started: StartFuture) -> None:
        if self._wake_timer is not None:
            self._wake_timer.cancel()
        self._task = asyncio.create_task(self._drive_in_background(position, started))
        _loop_state().tasks[self._task] = self.key
        self._task.add_done_callback(lambda task: self._finish_task(task, started))

    def _finish_task(self, task: asyncio.Task[None], started: StartFuture) -> None:
        del _loop_state().tasks[task]
        # It was cancelled, perhaps before it ran at all.
        if not started.done():
            started.set_result(None)
        watchers.publish(self.key, watchers.LOOK_AGAIN)

    async def _drive_in_background(self, position: Position, started: StartFuture) -> None:
        self.error = None
        try:
            self._wake_later(await self._drive_until_idle(position, started))
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
            if not started.done():
                started.set_exception(error)
                return
            self.error = error
            # Nobody may ever await the result.
            if isinstance(error, ResponseRejected):  # its request is free again
                level, end = logging.WARNING, "waits for another response"
            else:
                has_failed = self._failure is not None and self._failure[1] is error
                level, end = logging.ERROR, "failed" if has_failed else "has stopped"
            _LOG.log(level, "run %r of %r %s: %s", self._run_id, self._workflow.name, end, error)
        finally:
            self.drives_ended += 1

    async def _drive_until_idle(self, position: Position, started: StartFuture) -> Checkpoint | None:
        """Drive the run as long as signals arrive. While another process drives it, try to acquire it."""
        waits = chain(_TRY_AGAIN, repeat(_AT_LEAST_EVERY))
        while True:
            self._has_news = False
            try:
                at = await self._drive(position, started)
                position = self._resume_position
                if _loop_state().is_leaving:
                    return None
                if not await self._needs_another_drive():
                    return at
            except Stopped:
                return None
            except RunBusy:
                if isinstance(position, RestoreRun) and not started.done():
                    raise
                position = await self._position_if_busy(position, started)
                await asyncio.sleep(next(waits))
                if _loop_state().is_leaving or (not await self._is_wanted(position) and not self._has_news):
                    return None

    async def _drive(self, position: Position, started: StartFuture) -> Checkpoint | None:
        drive, state, seen = self.drive(position), _loop_state(), None
        try:
            async with aclosing(drive.events()) as events:
                # The first event means that the run is stored where it starts.
                async for _ in events:
                    if not started.done():
                        started.set_result(drive.at)
                    # Left after a commit. A run that has failed is not left: its error comes next.
                    at = drive.at
                    if state.is_leaving and at is not None and at is not seen and at.status not in STOPPED:
                        drive.hands_over = True
                        break
                    seen = drive.at
            return drive.at
        except RunError as error:
            if drive.at is not None and drive.at.status is WorkflowRunState.FAILED:
                self._failure = drive.at.number, error
            raise
        except CommitConflict as conflict:
            head = await self.archive().head(self._run_id)
            if head is None or drive.at is None or head.number <= drive.at.number:
                # Nobody has moved the run: a real conflict.
                raise
            # Another drive has taken over, and that is not an error of this run.
            raise RunBusy(str(conflict), run_id=self._run_id, owner="somebody else") from conflict

    async def _needs_another_drive(self) -> bool:
        while self._has_news:
            self._has_news = False
            if await self._is_wanted(self._resume_position):
                return True
        return False

    async def _position_if_busy(self, position: Position, started: StartFuture) -> Position:
        """Another process was first: check that it has started the same run, and continue that one."""
        if isinstance(position, StartRun) and not started.done():
            head = await self.archive().head(self._run_id)
            if head is None:
                return position  # it is about to be started
            check_same_start(self._workflow._definition, head, position.message)
            started.set_result(None)
            # If it had stopped at this very commit, the caller's start counts as resuming it on purpose.
            return replace(self._resume_position, except_at=head.number)
        return position if isinstance(position, ResumeRun) else self._resume_position

    async def _is_wanted(self, position: Position) -> bool:
        """Return whether there is a reason to drive the run: signals to apply, or somebody who watches."""
        head = await self.archive().head(self._run_id)
        if head is None or not isinstance(position, ResumeRun):
            return True  # it has not been started yet
        if head.status in STOPPED:
            return head.number == position.except_at
        if head.status not in AT_REST and watchers.local_drive(self.key) is None and self.key in watchers.WATCHERS:
            return True
        return bool(await self.archive().pending_signals(self._run_id))

    def _wake_later(self, at: Checkpoint | None) -> None:
        """Set a timer for a parked run: that is all it costs while it sleeps."""
        may_sleep = at is not None and (at.status not in AT_REST or at.status is _WAITING)
        if at is not None and at.wake is not None and may_sleep:
            seconds = max(0.0, clock.until(at.wake).total_seconds())
            self._wake_timer = asyncio.get_running_loop().call_later(seconds, self.continue_run)


class _Restore:
    """A restore of a run: one at a time, while no drive of this loop may start."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        # How many restore the run or wait for their turn.
        self.count = 0
        self.waiting: set[BackgroundDrive] = set()  # drives to continue afterwards


class _LoopState:
    """The background drives of one event loop."""

    def __init__(self) -> None:
        # A loop holds only weak references to its tasks, so they are kept here; the key says which run.
        self.tasks: dict[asyncio.Task[None], watchers.Key] = {}
        self.restores: dict[watchers.Key, _Restore] = {}
        self.is_leaving = False  # the process is about to end


# Several handles of one run must find each other's drives, but only in their own event loop: a task or lock of
# another one cannot be awaited.
_STATES: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopState] = WeakKeyDictionary()


def _loop_state() -> _LoopState:
    return _STATES.setdefault(asyncio.get_running_loop(), _LoopState())


def _driving_tasks(key: watchers.Key) -> list[asyncio.Task[None]]:
    """Return the tasks of this event loop that drive a run."""
    return [task for task, run in _loop_state().tasks.items() if run == key and not task.done()]


async def leave_runs(*, grace: float = 10.0) -> None:
    """Leave the runs that handles of this event loop drive, because the process is about to end.

    Supersteps under way may end within `grace` seconds; then handlers are cancelled. Each run is left
    at its last commit, with its lease free, so that a worker or another process continues it at once.
    From now on, handles of this event loop drive nothing more than the first commit of a new run.
    """
    state = _loop_state()
    state.is_leaving = True
    if state.tasks:
        await asyncio.wait(list(state.tasks), timeout=grace)
    tasks = list(state.tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
