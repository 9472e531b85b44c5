"""A run held by its name: looked at, answered, stopped and moved back, by whichever programs hold it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from stepwell import kernel
from stepwell.engine import watchers
from stepwell.engine.open_run import STOPPED, Continue, MoveBack, Position
from stepwell.engine.responses import check_no_caller, check_responses, find_overdue, send_responses
from stepwell.engine.superstep_log import is_far
from stepwell.errors import CheckpointMissing, RoutingFailed, RunBusy, RunError
from stepwell.model.event import CheckpointInfo, WorkflowEvent, WorkflowRunState
from stepwell.model.superstep import Checkpoint
from stepwell.storage import clock
from stepwell.storage.archive import Archive
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.storage.ids import new_run_id
from stepwell.storage.signals import cancel_key, input_key, write_cancel, write_input
from stepwell.workflows.background_drive import AT_REST, BackgroundDrive, Begun, Runnable
from stepwell.workflows.result import WorkflowRunResult
from stepwell.workflows.stored_result import failure_at, result_at

_HERE = 5.0  # seconds between two looks at a run that this process moves: whatever happens is told anyway
_ELSEWHERE = 0.25  # at one that another process moves
_ASLEEP = 60.0  # at one that sleeps; at most

_OVER = (WorkflowRunState.IDLE, WorkflowRunState.CANCELLED)


class RunHandle:
    """One run of a workflow, by its id. Any number of programs may hold it; one at a time drives it, all see it.

    A run that was started, answered, sent to or moved back through a handle moves on in the background, as
    long as the event loop runs. Only `result` and `events` take over a run that stands still because whoever
    drove it is gone. A handle belongs to one event loop; another one attaches to the run with its own.
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
        self._begun: Begun | None = None
        if begin is not None:
            self._loop = _running_loop()
            self._begun = self._background.begin(begin)

    async def status(self) -> WorkflowRunState:
        """Where the run is, as of its last commit."""
        return (await self._head()).status

    async def result(self) -> WorkflowRunResult:
        """Wait until the run is done, waits for answers or was cancelled. Raises what it failed with.

        Moves it on if nobody else does. Waits as long as it sleeps.
        """
        head = await self._head()
        while True:
            async for _ in self.events(after=head.number):
                pass
            head = await self._head()
            if head.status in AT_REST:  # otherwise somebody has given it more to do meanwhile
                break
        if head.status is WorkflowRunState.FAILED:
            raise self._background.failure_of(head.number) or await failure_at(self._archive(), head)
        return await result_at(self._archive(), head)

    async def events(self, *, after: int | CheckpointInfo = -1) -> AsyncIterator[WorkflowEvent]:
        """What is told of the run: first its history past a commit, then what happens, without gap or repeat.

        Ends when the run is done, waits for answers, failed or was cancelled. `after` is the `commit` of an
        event, or a checkpoint of the run. Moves the run on if nobody else does. Of a run that another process
        drives only what is committed is told.
        """
        await self._ready()
        drives_ended = self._background.drives_ended
        last = self._check_own(after).number if isinstance(after, CheckpointInfo) else after
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
                        break  # something was missed: it is in the history
                    if batch.after < last:
                        continue  # the history has told it, or what came of it
                    last = last if batch.number is None else batch.number
                    for event in batch.events:
                        yield event

    async def checkpoints(self) -> list[CheckpointInfo]:
        """The checkpoints of the run, oldest first: what `restore` and `run(checkpoint_id=...)` take."""
        await self._ready()
        checkpoints = await self._archive().checkpoints(self.run_id)
        if not checkpoints:
            raise self._missing()
        return checkpoints

    async def send(self, message: Any) -> None:
        """Give further input to the start executor. It is kept when this returns, and taken in, in the order in which
        it was sent, when the run is done or waits. Raises RunError if it failed or was cancelled."""
        head = await self._head()
        check_no_caller(head)
        graph = self._workflow._definition.graph
        start = graph.executors[graph.start]
        if not start.can_handle(message):
            raise RoutingFailed(
                f"the start executor {start.id!r} does not take the {type(message).__name__} that was sent",
                run_id=self.run_id,
            )
        self._check_active(head, "send to it")
        payload = self._workflow._definition.codec.pack(message, "$.message")
        await self._archive().send(self.run_id, input_key(head.header.epoch, new_run_id()), write_input(payload))
        await self._continue_after_send(head)

    async def respond(self, responses: Mapping[str, Any]) -> None:
        """Answer what the run asks, by request id. The first answer wins, for ever. It is kept when this returns, also
        if another process drives the run just now. Raises RunError if the run failed or was cancelled."""
        if not isinstance(responses, Mapping):
            raise TypeError(f"responses is a mapping from request ids to answers, not a {type(responses).__name__}")
        head = await self._head()
        check_no_caller(head)
        self._check_active(head, "answer it")
        definition = self._workflow._definition
        answers = check_responses(definition.graph, head, responses, definition.codec.pack)
        await send_responses(self._archive(), head, answers)
        await self._continue_after_send(head)

    async def cancel(self) -> WorkflowRunState:
        """Stop the run on purpose, wherever it is driven: handlers may clean up, and it ends CANCELLED at its last
        commit. Gives where it ended; a run that is done already stays done. It can be resumed on purpose."""
        head = await self._head()
        number, seems_over = head.number, head.status in _OVER
        with watchers.Watcher(self._background.key) as watcher:
            while True:
                if (drive := watchers.local_drive(self._background.key)) is not None:
                    drive.cancel()
                    await drive.read_to_end()
                    while watchers.local_drive(self._background.key) is drive:
                        await watcher.next(_HERE)
                else:
                    try:
                        return await self._stop()
                    except RunBusy:
                        if not seems_over:  # otherwise somebody is just letting it go, or has resumed it
                            await self._send_cancel(number)
                        seems_over = False
                        await watcher.next(_ELSEWHERE)
                for commit in await self._archive().commits(self.run_id, after=number):
                    number = commit.number
                    if commit.status in _OVER:
                        return commit.status

    async def restore(self, checkpoint: CheckpointInfo | str) -> CheckpointInfo:
        """Move this very run back to one of its checkpoints, given by its info or its id, and go on from there,
        executing afresh. Gives where the run is now: `events(after=...)` of that tells what it does from here on.

        Raises CheckpointMissing if it is not one of this run, RunBusy if somebody drives it who holds no handle in
        this event loop.
        """
        check_no_caller(await self._head())
        checkpoint_id = await self._find_own(checkpoint)
        try:
            at = await self._background.restore_run(MoveBack(self.run_id, checkpoint_id))
        except Exception:
            self._background.continue_run()  # what was moving it goes on
            raise
        assert at is not None
        return CheckpointInfo(self.run_id, at.stamp.checkpoint_id, at.number)

    def __repr__(self) -> str:
        return f"<RunHandle of {self.run_id!r} in {self._workflow.name!r}>"

    # ------------------------------------------------------------------------------------ looking

    def _archive(self) -> Archive:
        return self._background.archive()

    async def _ready(self) -> None:
        """Wait until the run is stored. Raises what kept it from being begun."""
        here = _running_loop()
        if self._loop is not here:
            if self._loop is not None and not self._loop.is_closed():
                raise RuntimeError(
                    f"this handle of run {self.run_id!r} belongs to another event loop; get one for this loop with "
                    f"workflow.attach({self.run_id!r})"
                )
            if self._loop is not None:  # what moved there was left with the loop
                self._background = BackgroundDrive(self._workflow, self.run_id, self._storage, self._private)
                self._begun = self._begun if self._begun is not None and self._begun.done() else None
            self._loop = here
        if self._begun is not None:
            await asyncio.shield(self._begun)

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
        """The id of a stored checkpoint of this run. Raises CheckpointMissing if it is not one."""
        if isinstance(checkpoint, str):
            checkpoint_id = checkpoint
        elif isinstance(checkpoint, CheckpointInfo):
            checkpoint_id = self._check_own(checkpoint).checkpoint_id
        else:
            raise TypeError(f"a checkpoint is a CheckpointInfo or its id, not a {type(checkpoint).__name__}")
        stored = await self._archive().find(checkpoint_id)
        if stored is None:
            raise CheckpointMissing(f"checkpoint {checkpoint_id!r} of run {self.run_id!r} is not stored")
        if stored.run_id != self.run_id:
            raise self._of_another_run(checkpoint_id, stored.run_id)
        return checkpoint_id

    def _of_another_run(self, checkpoint_id: str, run_id: str) -> CheckpointMissing:
        return CheckpointMissing(f"checkpoint {checkpoint_id!r} is one of run {run_id!r}, not of {self.run_id!r}")

    def _check_active(self, head: Checkpoint, what: str) -> None:
        if head.status in STOPPED:
            raise RunError(
                f"run {self.run_id!r} is {head.status.value}; resume it with run(run_id=...) before you {what}",
                run_id=self.run_id,
            )

    async def _patience(self, last: int, drives_ended: int) -> float | None:
        """How long to wait for news; None if there will be none. What stands still but could go on is moved on.

        `drives_ended` is how often the run had come to rest here when somebody began to wait.
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
            raise self._background.error  # it cannot be moved on
        if head.wake is not None and is_far(head.wake):
            return min(_ASLEEP, clock.until(head.wake).total_seconds())
        self._background.continue_run()
        return _ELSEWHERE

    async def _can_continue(self, head: Checkpoint) -> bool:
        """False for a run that is at rest, unless something came for it or a question of it has run out of time."""
        if head.status in STOPPED:
            return False  # that is for somebody to decide
        return (
            head.status not in AT_REST
            or bool(find_overdue(head))
            or bool(await self._archive().pending_signals(self.run_id))
        )

    # ------------------------------------------------------------------------------------- acting

    async def _continue_after_send(self, before: Checkpoint) -> None:
        """Have what was posted taken in. Raises RunError if it was meant for what is no more."""
        if (await self._head()).header.epoch != before.header.epoch:
            raise RunError(
                f"run {self.run_id!r} was moved back meanwhile, and what you posted counts no more; look at it again",
                run_id=self.run_id,
            )
        self._background.continue_run()

    async def _send_cancel(self, number: int) -> None:
        """Leave word that the run is to stop, for whoever drives it. It was not over at that commit."""
        key = cancel_key((await self._head()).header.epoch, number)
        await self._archive().send(self.run_id, key, write_cancel(number))

    async def _stop(self) -> WorkflowRunState:
        """Stop a run that nobody drives. Raises RunBusy if somebody does."""
        drive = self._background.drive(Continue(self.run_id))
        drive.cancel()
        async for _ in drive.events():
            pass
        assert drive.at is not None
        return drive.at.status


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "a handle needs a running event loop to move its run on; in a program without one use run_sync()"
        ) from None
