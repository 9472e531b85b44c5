"""A handle to a run: watch it, answer it, send to it, cancel it or move it back, from any process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Generic

from stepwell import kernel
from stepwell.engine import watchers
from stepwell.engine.open_run import STOPPED, Position, RestoreRun, ResumeRun
from stepwell.engine.responses import check_no_caller, check_responses, find_overdue, send_responses
from stepwell.engine.superstep_log import is_far
from stepwell.errors import CheckpointMissing, RoutingFailed, RunBusy, RunError
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import CheckpointInfo, WorkflowEvent, WorkflowRunState
from stepwell.model.signal import ReceivedCancel, ReceivedInput
from stepwell.model.status_words import status_word
from stepwell.model.valid_text import check_words
from stepwell.storage import clock
from stepwell.storage.archive import Archive
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.storage.ids import new_run_id
from stepwell.storage.signals import cancel_key, input_key
from stepwell.workflows.background_drive import AT_REST, BackgroundDrive, Runnable, StartFuture
from stepwell.workflows.result import OutputT, WorkflowRunResult
from stepwell.workflows.stored_result import failure_at, result_at

# Seconds between two looks at the history of a run: one that this process drives (events arrive anyway), one that
# another process drives, and, at most, one that sleeps.
_HERE = 5.0
_ELSEWHERE = 0.25
_ASLEEP = 60.0

_OVER = (WorkflowRunState.IDLE, WorkflowRunState.CANCELLED)


class RunHandle(Generic[OutputT]):
    """One run of a workflow, by its id. Any number of processes may have a handle; one at a time drives the run.

    A run that was started, answered, sent to or moved back through a handle continues in the background, as long
    as the event loop runs. Only `result` and `events` take over a run whose driver is gone. A handle belongs to one
    event loop; another one needs a handle of its own: `attach`.
    """

    def __init__(
        self,
        workflow: Runnable,
        run_id: str,
        storage: CheckpointStorage,
        private: Mapping[str, Any],
        begin: Position | None = None,
    ) -> None:
        self.run_id = run_id
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

        Drives the run if nobody else does. Waits as long as it sleeps.
        """
        head = await self._head()
        while True:
            async for _ in self.events(after=head.number):
                pass
            head = await self._head()
            # If not, it has got something new to do meanwhile.
            if head.status in AT_REST:
                break
        if head.status is WorkflowRunState.FAILED:
            raise self._background.failure_of(head.number) or await failure_at(self._archive(), head)
        return await result_at(self._archive(), head, self._workflow)

    async def events(self, *, after: int | CheckpointInfo = -1) -> AsyncIterator[WorkflowEvent]:
        """Yield the events of the run: first its history after a commit, then what happens, without gap or repeat.

        Ends when the run is completed, waits for responses, has failed or was cancelled. `after` is the `commit` of
        an event, or a checkpoint of the run. Drives the run if nobody else does. Of a run that another process
        drives, only committed events are seen.
        """
        await self._ready()
        drives_ended = self._background.drives_ended
        last = self._check_own(after).number if isinstance(after, CheckpointInfo) else after
        # The watcher is registered before the history is read: what happens in between is in both, never in neither.
        with watchers.Watcher(self._background.key) as watcher:
            while True:
                for commit in await self._archive().commits(self.run_id, after=last):
                    last = commit.number
                    for event in kernel.events(self.run_id, commit, stored=True, replayed=True):
                        yield event
                patience = await self._patience(last, drives_ended)
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

    async def checkpoints(self) -> list[CheckpointInfo]:
        """Return the checkpoints of the run, oldest first: what `restore` and `run(checkpoint_id=...)` accept."""
        await self._ready()
        checkpoints = await self._archive().checkpoints(self.run_id)
        if not checkpoints:
            raise self._missing()
        return checkpoints

    async def send(self, message: Any) -> None:
        """Send further input to the start executor. It is durable when this returns, and applied, in the order
        sent, when the run is completed or waits. Raises RunError if the run failed or was cancelled."""
        head = await self._head()
        check_no_caller(head)
        graph = self._workflow._definition.graph
        start = graph.executors[graph.start]
        if not start.can_handle(message):
            raise RoutingFailed(
                f"the start executor {start.id!r} does not accept a {type(message).__name__}",
                run_id=self.run_id,
            )
        self._check_active(head, "send to it")
        payload = self._workflow._definition.codec.pack(message, "$.message")
        # The random part of the key keeps inputs apart; a response has a fixed key, so that the first one wins.
        key = input_key(head.header.epoch, new_run_id())
        await self._archive().send(self.run_id, key, ReceivedInput(payload))
        await self._continue_after_send(head)

    async def respond(self, responses: Mapping[str, Any], *, by: str | None = None, comment: str | None = None) -> None:
        """Answer open requests, by request id. The first response wins. It is durable when this returns, even if
        another process drives the run. `by` and `comment` are stored with it: who answers, and what they add.
        Raises RunError if the run failed or was cancelled."""
        check_words("by", by)
        check_words("comment", comment)
        if not isinstance(responses, Mapping):
            raise TypeError(f"responses must be a mapping of request ids to answers, not a {type(responses).__name__}")
        head = await self._head()
        check_no_caller(head)
        self._check_active(head, "answer it")
        definition = self._workflow._definition
        answers = check_responses(definition.graph, head, responses, definition.codec.pack)
        archive = self._archive()
        pending = await archive.pending_signals(self.run_id)
        await send_responses(archive, head, answers, pending, by=by, comment=comment)
        await self._continue_after_send(head)

    async def cancel(self, *, reason: str | None = None, by: str | None = None) -> WorkflowRunState:
        """Cancel the run, wherever it is driven: handlers may clean up, and it ends CANCELLED at its last commit.
        Returns its final status; a completed run stays completed. It can be resumed on purpose. `reason` and `by`
        are stored with the commit that cancels it."""
        check_words("reason", reason)
        check_words("by", by)
        head = await self._head()
        number, seems_over = head.number, head.status in _OVER
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
                            await self._send_cancel(ReceivedCancel(number, by, reason, at=clock.stamp()))
                        seems_over = False
                        await watcher.next(_ELSEWHERE)
                for commit in await self._archive().commits(self.run_id, after=number):
                    number = commit.number
                    if commit.status in _OVER:
                        return commit.status

    async def restore(self, checkpoint: CheckpointInfo | str, *, by: str | None = None) -> CheckpointInfo:
        """Move this run back to one of its checkpoints, named by its info or its id, and continue from there,
        executing afresh. Returns where the run is now: `events(after=...)` of that yields what follows. `by` is
        stored with the commit that moves it.

        Raises CheckpointMissing if it is not a checkpoint of this run, RunBusy if the run is driven by something
        else than a handle of this event loop.
        """
        check_words("by", by)
        check_no_caller(await self._head())
        checkpoint_id = await self._find_own(checkpoint)
        try:
            at = await self._background.restore_run(RestoreRun(self.run_id, checkpoint_id, by))
        except Exception:
            # The restore has stopped the drives of this loop.
            self._background.continue_run()
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
        head = await self._archive().head(self.run_id)
        if head is None:
            raise self._missing()
        return head

    def _missing(self) -> CheckpointMissing:
        return CheckpointMissing(f"no run {self.run_id!r} is stored; start it with workflow.start(message, run_id=...)")

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

    def _check_active(self, head: Checkpoint, what: str) -> None:
        if head.status in STOPPED:
            raise RunError(
                f"run {self.run_id!r} is {status_word(head.status)}; resume it with run(run_id=...) before you {what}",
                run_id=self.run_id,
            )

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

    async def _can_continue(self, head: Checkpoint) -> bool:
        """Return False for a run at rest, unless it has signals or an overdue request."""
        if head.status in STOPPED:
            # Resuming it is for somebody to decide.
            return False
        return (
            head.status not in AT_REST
            or bool(find_overdue(head))
            or bool(await self._archive().pending_signals(self.run_id))
        )

    # ------------------------------------------------------------------------------------- acting

    async def _continue_after_send(self, before: Checkpoint) -> None:
        """Have signals applied. Raises RunError if the run was moved back meanwhile, which discards them."""
        if (await self._head()).header.epoch != before.header.epoch:
            raise RunError(
                f"run {self.run_id!r} was moved back meanwhile, and what you sent is discarded; look at it again",
                run_id=self.run_id,
            )
        self._background.continue_run()

    async def _send_cancel(self, cancel: ReceivedCancel) -> None:
        """Send a cancel signal, for the process that drives the run. It was not over at that commit."""
        key = cancel_key((await self._head()).header.epoch, cancel.number)
        await self._archive().send(self.run_id, key, cancel)

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
