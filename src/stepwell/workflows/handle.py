"""A handle to a run: watch it, answer it, send to it, cancel it or move it back, from any process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Generic

from stepwell import kernel
from stepwell.engine.drive.cancellation import OVER, cancel_or_signal, send_cancel
from stepwell.engine.drive.run_stream import EarlyRequests
from stepwell.engine.durability.superstep_log import is_far
from stepwell.engine.events import watchers
from stepwell.engine.intake.responses import check_no_caller, find_overdue, has_passed
from stepwell.engine.opening.open_run import STOPPED, Position, RestoreRun, ResumeRun
from stepwell.errors import CheckpointMissing, RunBusy
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import CheckpointInfo, WorkflowEvent, WorkflowRunState
from stepwell.model.valid_text import check_words
from stepwell.storage import clock
from stepwell.storage.archive import Archive
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.storage.filters import check_after
from stepwell.workflows.background_drive import AT_REST, BackgroundDrive, Runnable, StartFuture
from stepwell.workflows.result import OutputT, WorkflowRunResult
from stepwell.workflows.run_signals import read_head, send_answers, send_input
from stepwell.workflows.stored_result import events_before, failure_at, open_requests, result_at

# Seconds between two looks at the history of a run: one that this process drives (events arrive anyway), one that
# another process drives, and, at most, one that sleeps.
_HERE = 5.0
_ELSEWHERE = 0.25
_ASLEEP = 60.0
_AT_MOST = 1.0  # the longest time between two looks of a handle that only watches
_QUIET = 3  # looks after which it warns that nobody drives the run: somebody may be about to

# How a run stands when nothing more happens in it, and when something would, but for a driver.
_RESTING = ("waiting", "completed", "failed", "cancelled")
_UNDRIVEN = ("queued", "stalled")

_LOG = logging.getLogger("stepwell")


class RunHandle(Generic[OutputT]):
    """One run of a workflow, by its id. Any number of processes may have a handle; one at a time drives the run.

    A handle of `attach` watches: what is sent through it is stored, and left to the process that drives the run. One
    of `start`, or of `attach(drive=True)`, also drives: a run that was started, answered, sent to or moved back
    through it continues in the background, as long as the event loop runs, and `result` and `events` take over a run
    that nobody drives. A handle belongs to one event loop; another one needs a handle of its own.
    """

    def __init__(
        self,
        workflow: Runnable,
        run_id: str,
        storage: CheckpointStorage,
        private: Mapping[str, Any],
        begin: Position | None = None,
        *,
        drive: bool,
    ) -> None:
        self.run_id = run_id
        self._drives, self._warned = drive, False
        self._workflow, self._storage, self._private = workflow, storage, private
        self._loop: asyncio.AbstractEventLoop | None = None
        self._background = BackgroundDrive(workflow, run_id, storage, private)
        self._started: StartFuture | None = None
        if begin is not None:
            self._loop = _running_loop()
            self._started = self._background.begin(begin)

    async def status(self) -> WorkflowRunState:
        """Return the status of the run, as of its last commit."""
        return (await self._head()).status

    async def result(self) -> WorkflowRunResult[OutputT]:
        """Wait until the run is completed, waits for responses or is cancelled. Raises what it failed with.

        Waits as long as the run sleeps. Drives it if nobody else does; a handle that only watches waits, and logs a
        warning once.
        """
        head = await self._head()
        while True:
            async for _ in self._follow(head.number):
                pass
            head = await self._head()
            # If not, it has got something new to do meanwhile.
            if head.status in AT_REST:
                break
        if head.status is WorkflowRunState.FAILED:
            raise self._background.failure_of(head.number) or await failure_at(self._archive(), head)
        return await result_at(self._archive(), head, self._workflow)

    async def events(self, *, after: int | CheckpointInfo = -1, nested: bool = False) -> AsyncIterator[WorkflowEvent]:
        """Yield the events of the run: first its history after a commit, then what happens, without gap or repeat.

        Open requests come first if they are older. Of a run at rest there is always something: if nothing is newer
        than `after`, its status, and the outputs of a completed one. With `nested`, the events of sub-workflows are
        yielded as they happen.

        Ends when the run is completed, waits for responses, has failed or was cancelled. `after` is the `commit` of
        an event, or a checkpoint of the run. Drives the run if nobody else does, unless the handle only watches. Of a
        run that another process drives, only committed events are seen.
        """
        last = self._check_own(after).number if isinstance(after, CheckpointInfo) else check_after(after)
        requested: set[str] = set()
        early = EarlyRequests()
        async for event in self._follow(last, from_before=True):
            if early.repeats(event):
                continue
            if event.type == "request_info":
                requested.add(event.request_id)
            if nested or not event.path:
                yield event
        # Those that a restore has opened again.
        for event in open_requests(await self._head()):
            if event.request_id not in requested:
                yield event

    async def _follow(self, last: int, *, from_before: bool = False) -> AsyncIterator[WorkflowEvent]:
        """Yield the history after a commit, then what happens, until the run rests.

        With `from_before`, begin with what is always yielded and is not in that history.
        """
        await self._ready()
        drives_ended = self._background.drives_ended
        # The watcher is registered before the history is read: what happens in between is in both, never in neither.
        quiet = 0  # looks in a row that found nothing
        with watchers.Watcher(self._background.key) as watcher:
            head = await self._head() if from_before else None
            commits = await self._archive().commits(self.run_id, after=last)
            if head is not None:
                rests = (last < 0 or not commits) and not await self._can_continue(head)
                # A commit in between has consumed the signals with which it could continue.
                rests = rests and (await self._head()).number == head.number
                for event in await events_before(self._archive(), head, commits, rests=rests):
                    yield event
            while True:
                quiet += 1
                for commit in commits:
                    last, quiet = commit.number, 0
                    for event in kernel.events(self.run_id, commit, stored=True, replayed=True):
                        yield event
                patience = await (self._patience(last, drives_ended) if self._drives else self._watch(last, quiet))
                if patience is None:
                    return
                while (batch := await watcher.next(patience)) is not None and batch.events:
                    if batch.after > last:
                        # A batch was missed: read it from the history.
                        break
                    if batch.after < last:
                        continue  # the history has it already
                    last = last if batch.number is None else batch.number
                    for event in batch.events:
                        yield event
                commits = await self._archive().commits(self.run_id, after=last)

    async def checkpoints(self) -> list[CheckpointInfo]:
        """Return the checkpoints of the run, oldest first: what `restore` and `run(checkpoint_id=...)` accept."""
        await self._ready()
        checkpoints = await self._archive().checkpoints(self.run_id)
        if not checkpoints:
            await self._head()  # raises, unless it was stored meanwhile
        return checkpoints

    async def send(self, message: Any) -> None:
        """Send further input to the start executor. It is durable when this returns, and applied, in the order
        sent, when the run is completed or waits. Raises RunError if the run failed or was cancelled."""
        await self._ready()
        await send_input(self._workflow._definition, self._archive(), self.run_id, message)
        self._continue_run()

    async def respond(self, responses: Mapping[str, Any], *, by: str | None = None, comment: str | None = None) -> None:
        """Answer open requests, by request id. The first response wins. It is durable when this returns, even if
        another process drives the run. `by` and `comment` are stored with it: who answers, and what they add.
        Raises RunError if the run failed or was cancelled."""
        await self._ready()
        definition = self._workflow._definition
        await send_answers(definition, self._archive(), self.run_id, responses, by=by, comment=comment)
        self._continue_run()

    async def cancel(self, *, reason: str | None = None, by: str | None = None) -> WorkflowRunState:
        """Cancel the run, wherever it is driven: handlers may clean up, and it ends CANCELLED at its last commit.
        Returns its final status; a completed run stays completed. It can be resumed on purpose. `reason` and `by`
        are stored with the commit that cancels it.

        A handle that only watches does not wait for the driver to stop, and returns the status of the last commit."""
        check_words("reason", reason)
        check_words("by", by)
        head = await self._head()
        if not self._drives:
            check_no_caller(head)
            at = await cancel_or_signal(self._archive(), head, by=by, reason=reason)
            if at.status not in OVER and (drive := watchers.local_drive(self._background.key)) is not None:
                drive.cancel(by=by, reason=reason)  # at once: it would find the signal later
            return at.status
        number, seems_over = head.number, head.status in OVER
        with watchers.Watcher(self._background.key) as watcher:
            while True:
                if (drive := watchers.local_drive(self._background.key)) is not None:
                    drive.cancel(by=by, reason=reason)
                    await drive.read_to_end()
                    while watchers.local_drive(self._background.key) is drive:
                        await watcher.next(_HERE)
                else:
                    try:
                        return await self._stop(by, reason)
                    except RunBusy:
                        # A run that seemed over is just being released, or was resumed: look again first.
                        if not seems_over:
                            await send_cancel(self._archive(), await self._head(), number, by=by, reason=reason)
                        seems_over = False
                        await watcher.next(_ELSEWHERE)
                for commit in await self._archive().commits(self.run_id, after=number):
                    number = commit.number
                    if commit.status in OVER:
                        return commit.status

    async def restore(self, checkpoint: CheckpointInfo | str, *, by: str | None = None) -> CheckpointInfo:
        """Move this run back to one of its checkpoints, named by its info or its id, and continue from there,
        executing afresh; a handle that only watches leaves that to others. Returns where the run is now:
        `events(after=...)` of that yields what follows. `by` is stored with the commit that moves it.

        Raises CheckpointMissing if it is not a checkpoint of this run, RunBusy if the run is driven by something
        else than a handle of this event loop.
        """
        check_words("by", by)
        check_no_caller(await self._head())
        checkpoint_id = await self._find_own(checkpoint)
        try:
            at = await self._background.restore_run(RestoreRun(self.run_id, checkpoint_id, by), drive=self._drives)
        except Exception:
            # The restore has stopped the drives of this loop.
            self._continue_run()
            raise
        assert at is not None
        return CheckpointInfo(self.run_id, at.stamp.checkpoint_id, at.number)

    def __repr__(self) -> str:
        return f"<RunHandle of {self.run_id!r} in {self._workflow.name!r}>"

    # ------------------------------------------------------------------------------------ reading

    def _archive(self) -> Archive:
        return self._background.archive()

    async def _ready(self) -> None:
        """Wait until the run is stored. Raises what prevented its start."""
        here = _running_loop()
        if self._loop is not here:
            if self._loop is not None and not self._loop.is_closed():
                raise RuntimeError(
                    f"this handle to run {self.run_id!r} belongs to another event loop; get one for this loop with "
                    f"workflow.attach({self.run_id!r})"
                )
            # Background work ended with its loop.
            if self._loop is not None:
                self._background = BackgroundDrive(self._workflow, self.run_id, self._storage, self._private)
                self._started = self._started if self._started is not None and self._started.done() else None
            self._loop = here
        if self._started is not None:
            await asyncio.shield(self._started)

    async def _head(self) -> Checkpoint:
        await self._ready()
        return await read_head(self._archive(), self.run_id)

    def _check_own(self, checkpoint: CheckpointInfo) -> CheckpointInfo:
        if checkpoint.run_id != self.run_id:
            raise self._of_another_run(checkpoint.checkpoint_id, checkpoint.run_id)
        return checkpoint

    async def _find_own(self, checkpoint: CheckpointInfo | str) -> str:
        """Return the id of a stored checkpoint of this run. Raises CheckpointMissing if it is not one."""
        if isinstance(checkpoint, str):
            checkpoint_id = checkpoint
        elif isinstance(checkpoint, CheckpointInfo):
            checkpoint_id = self._check_own(checkpoint).checkpoint_id
        else:
            raise TypeError(f"checkpoint must be a CheckpointInfo or an id, not a {type(checkpoint).__name__}")
        stored = await self._archive().find(checkpoint_id)
        if stored is None:
            raise CheckpointMissing(f"checkpoint {checkpoint_id!r} of run {self.run_id!r} is not stored")
        if stored.run_id != self.run_id:
            raise self._of_another_run(checkpoint_id, stored.run_id)
        return checkpoint_id

    def _of_another_run(self, checkpoint_id: str, run_id: str) -> CheckpointMissing:
        return CheckpointMissing(f"checkpoint {checkpoint_id!r} belongs to run {run_id!r}, not to {self.run_id!r}")

    async def _patience(self, last: int, drives_ended: int) -> float | None:
        """Return how long to wait for events; None if there will be none. A run that nobody drives is continued.

        `drives_ended` is the count at the time when the caller began to wait.
        """
        if watchers.local_drive(self._background.key) is not None:
            return _HERE
        if self._background.is_driving():
            return _ELSEWHERE
        head = await self._head()
        if last < head.number:
            return 0.0
        if not await self._can_continue(head):
            return None
        if self._background.error is not None and self._background.drives_ended > drives_ended:
            # A drive of ours has failed since: another one would, too.
            raise self._background.error
        if head.wake is not None and is_far(head.wake):
            return min(_ASLEEP, clock.until(head.wake).total_seconds())
        self._background.continue_run()
        return _ELSEWHERE

    async def _watch(self, last: int, quiet: int) -> float | None:
        """Return how long to wait for the events of a run that others drive; None if there will be none."""
        if watchers.local_drive(self._background.key) is not None:
            return _HERE
        run = await self._archive().run_info(self.run_id)
        if run is None:  # it is gone, or its storage does not know how it stands
            head = await self._head()
            newest, is_over = head.number, not await self._can_continue(head)
        else:
            newest, is_over = run.number, run.standing in _RESTING
            if run.standing in _UNDRIVEN and quiet > _QUIET and not self._warned:
                self._warned = True
                _LOG.warning(
                    "run %r is %s: no process drives it, and this handle only watches; attach(%r, drive=True) drives",
                    self.run_id,
                    run.standing,
                    self.run_id,
                )
        if last < newest:
            return 0.0
        return None if is_over else min(_ELSEWHERE * (1 + quiet), _AT_MOST)

    async def _can_continue(self, head: Checkpoint) -> bool:
        """Return False for a run at rest, unless something of it is due or it has signals."""
        if head.status in STOPPED:
            # Resuming it is for somebody to decide.
            return False
        return (
            head.status not in AT_REST
            or has_passed(head.wake)
            or bool(find_overdue(head))
            or bool(await self._archive().pending_signals(self.run_id))
        )

    # ------------------------------------------------------------------------------------- acting

    def _continue_run(self) -> None:
        if self._drives:
            self._background.continue_run()

    async def _stop(self, by: str | None, reason: str | None) -> WorkflowRunState:
        """Cancel a run that nobody drives. Raises RunBusy if somebody does."""
        drive = self._background.drive(ResumeRun(self.run_id))
        drive.cancel(by=by, reason=reason)
        async for _ in drive.events():
            pass
        assert drive.at is not None
        return drive.at.status


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "a handle needs a running event loop to drive its run; in a program without one use run_sync()"
        ) from None
