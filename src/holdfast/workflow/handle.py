"""A run held by its name: looked at, answered, stopped and moved back, by whichever programs hold it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from itertools import chain, repeat
from typing import Any, Protocol

from .. import kernel
from ..core.errors import CheckpointMissing, HandlerFailed, RoutingFailed, RunBusy, RunError
from ..core.events import CheckpointInfo, WorkflowEvent, WorkflowRunState
from ..core.model import Checkpoint, Commit, CommitKind
from ..durable import clock
from ..durable.archive import Archive
from ..durable.contract import CheckpointStorage
from ..durable.ids import new_run_id
from ..durable.letters import cancel_key, cancel_letter, input_key, input_letter
from ..kernel.history import still_true
from ..runtime import watching
from ..runtime.answering import checked, overdue, post_answers
from ..runtime.engine import Drive
from ..runtime.opening import Back, Continue, Definition, Position
from ..runtime.timers import is_far
from .result import WorkflowRunResult

_LOOK_AGAIN = 0.25  # seconds between two looks at a run that another process moves
_ASLEEP_AT_MOST = 60.0  # seconds between two looks at a run that sleeps

_AT_REST = (
    WorkflowRunState.IDLE,
    WorkflowRunState.IDLE_WITH_PENDING_REQUESTS,
    WorkflowRunState.FAILED,
    WorkflowRunState.CANCELLED,
)


class Runnable(Protocol):
    """A workflow, as far as a handle needs it."""

    @property
    def name(self) -> str: ...
    @property
    def definition(self) -> Definition: ...
    def drive(
        self, position: Position, storage: CheckpointStorage | None, streaming: bool, private: Mapping[str, Any]
    ) -> Drive: ...
    def archive_on(self, storage: CheckpointStorage) -> Archive: ...


class RunHandle:
    """One run of a workflow, by its id. Any number of programs may hold it; one at a time drives it, all see it.

    A run that was started, answered, sent to or moved back through a handle moves on in the background, as
    long as the event loop runs. Only `result` and `events` take over a run that stands still because whoever
    drove it is gone.
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
        self._moving: asyncio.Task[None] | None = None
        self._opened = asyncio.Event()
        self._error: Exception | None = None  # of the last drive of this handle
        self._wake: asyncio.TimerHandle | None = None
        if begin is None:
            self._opened.set()
        else:
            self._move(begin)

    async def status(self) -> WorkflowRunState:
        """Where the run is, as of its last commit."""
        return (await self._head()).status

    async def result(self) -> WorkflowRunResult:
        """Wait until the run is done or waits for answers. Raises what it failed with.

        Moves it on if nobody else does. Waits as long as it sleeps.
        """
        async for _ in self.events(after=(await self._head()).number):
            pass
        commits = still_true(await self._archive().commits(self.run_id))
        if commits[-1].status is WorkflowRunState.FAILED:
            raise self._error if isinstance(self._error, RunError) else _failed(self.run_id, commits)
        return WorkflowRunResult(
            event for commit in commits for event in kernel.events(self.run_id, commit, stored=True, replayed=True)
        )

    async def events(self, *, after: int | CheckpointInfo = -1) -> AsyncIterator[WorkflowEvent]:
        """What is told of the run: first its history past a commit, then what happens, without gap or repeat.

        Ends when the run is done, waits for answers, failed or was cancelled. `after` is the `commit` of an
        event, or the checkpoint of one. Moves the run on if nobody else does. Of a run that another process drives
        only what is committed is told.
        """
        await self._begun()
        last = after.number if isinstance(after, CheckpointInfo) else after
        watcher = watching.Watcher(self._key())
        try:
            while True:
                for commit in await self._archive().commits(self.run_id, after=last):
                    last = commit.number
                    for event in kernel.events(self.run_id, commit, stored=True, replayed=True):
                        yield event
                patience = await self._patience(last, watcher)
                if patience is None:
                    return
                while (told := await watcher.next(patience)) is not None and told.events:
                    if told.number is not None and told.number != last + 1:
                        if told.number > last:
                            break  # something was missed: it is in the history
                        continue  # the history had it already
                    last = last if told.number is None else told.number
                    for event in told.events:
                        yield event
        finally:
            watcher.close()

    async def checkpoints(self) -> list[CheckpointInfo]:
        """The checkpoints of the run, oldest first: what `restore` and `run(checkpoint_id=...)` take."""
        await self._begun()
        return await self._archive().checkpoints(self.run_id)

    async def send(self, message: Any) -> None:
        """Give further input to a run that is done or waits. It goes to the start executor, durably, in order."""
        head = await self._head()
        graph = self._workflow.definition.graph
        start = graph.executors[graph.start]
        if not start.can_handle(message):
            raise RoutingFailed(
                f"the start executor {start.id!r} does not take the {type(message).__name__} that was sent",
                run_id=self.run_id,
            )
        if head.status in (WorkflowRunState.FAILED, WorkflowRunState.CANCELLED):
            raise RunError(
                f"run {self.run_id!r} is {head.status.value}; resume it with run(run_id=...) before you send to it",
                run_id=self.run_id,
            )
        parcel = self._workflow.definition.codec.pack(message, "$.message")
        archive = self._archive()
        await archive.post(self.run_id, input_key(head.header.epoch, new_run_id()), input_letter(parcel))
        self._move(Continue(self.run_id))

    async def respond(self, responses: Mapping[str, Any]) -> None:
        """Answer what the run asks, by request id. The first answer wins, for ever.

        The answers are kept also if another process drives the run just now: it takes them in.
        """
        head = await self._head()
        definition = self._workflow.definition
        answers = checked(definition.graph, head, responses, definition.codec.pack)
        await post_answers(self._archive(), head, answers)
        self._move(Continue(self.run_id))

    async def cancel(self) -> WorkflowRunState:
        """Stop the run on purpose, wherever it is driven: handlers may clean up, and it ends CANCELLED at its last
        commit. Gives where it ended; a run that is done already stays done. It can be resumed on purpose."""
        await self._begun()
        while True:
            head = await self._head()
            if head.status in (WorkflowRunState.IDLE, WorkflowRunState.CANCELLED):
                return head.status
            if (drive := watching.local_drive(self._key())) is not None:
                drive.cancel()
            else:
                epoch = head.header.epoch
                await self._archive().post(self.run_id, cancel_key(epoch, head.number), cancel_letter(head.number))
                await self._moved(Continue(self.run_id))
            await asyncio.sleep(0.01 if drive is not None else _LOOK_AGAIN / 5)

    async def restore(self, checkpoint: CheckpointInfo) -> None:
        """Move this very run back to one of its checkpoints, and go on from there, executing afresh.

        Raises CheckpointMissing if it is not one of this run, RunBusy if another process drives it.
        """
        await self._begun()
        await self._stop_moving()
        if checkpoint.run_id != self.run_id:
            raise CheckpointMissing(
                f"checkpoint {checkpoint.checkpoint_id!r} is one of run {checkpoint.run_id!r}, not of {self.run_id!r}"
            )
        self._opened.clear()
        self._move(Back(self.run_id, checkpoint.checkpoint_id))
        await self._opened.wait()
        if isinstance(self._error, (CheckpointMissing, RunBusy)):
            raise self._error

    def __repr__(self) -> str:
        return f"<RunHandle of {self.run_id!r} in {self._workflow.name!r}>"

    # ------------------------------------------------------------------------------------ reading

    def _archive(self) -> Archive:
        return self._workflow.archive_on(self._storage)

    def _key(self) -> watching.Key:
        return watching.key_of(self._archive(), self.run_id)

    async def _begun(self) -> None:
        """Wait until the run is stored. Raises what kept it from being begun."""
        await self._opened.wait()
        if self._error is not None and await self._archive().head(self.run_id) is None:
            raise self._error

    async def _head(self) -> Checkpoint:
        await self._begun()
        head = await self._archive().head(self.run_id)
        if head is None:
            raise CheckpointMissing(
                f"no run {self.run_id!r} is stored; start it with workflow.start(message, run_id=...)"
            )
        return head

    async def _patience(self, last: int, watcher: watching.Watcher) -> float | None:
        """How long to wait for news; None if there will be none. What stands still but could go on is moved on."""
        if self._is_moving() or watching.local_drive(self._key()) is not None or not watcher.empty():
            return _LOOK_AGAIN
        head = await self._head()
        if last < head.number:
            return 0.0
        if head.status in _AT_REST and not await self._can_go_on(head):
            return None
        if head.wake is not None and is_far(head.wake):
            return min(_ASLEEP_AT_MOST, clock.until(head.wake).total_seconds())
        await self._moved(Continue(self.run_id))
        if self._error is not None and (await self._head()).number == head.number:
            raise self._error  # it cannot be moved on
        return 0.0

    async def _can_go_on(self, head: Checkpoint) -> bool:
        """Whether something came for a run that is done or waits, or a question of it has run out of time."""
        if head.status in (WorkflowRunState.FAILED, WorkflowRunState.CANCELLED):
            return False  # that is for somebody to decide
        return bool(overdue(head)) or bool(await self._archive().mail(self.run_id))

    # ------------------------------------------------------------------------------------- moving

    def _is_moving(self) -> bool:
        return self._moving is not None and not self._moving.done()

    def _move(self, position: Position) -> None:
        """Move the run on in the background. What is under way takes in what was posted, or is followed by this."""
        before = self._moving if self._is_moving() else None
        self._moving = asyncio.create_task(self._drive(position, before))
        _TASKS.add(self._moving)
        self._moving.add_done_callback(self._rested)

    def _rested(self, moving: asyncio.Task[None]) -> None:
        _TASKS.discard(moving)
        watching.publish(self._key(), watching.Told(None, ()))

    async def _moved(self, position: Position) -> None:
        """Move the run on, unless somebody does, and wait for that."""
        if not self._is_moving():
            self._move(position)
        if self._moving is not None:
            await asyncio.wait([self._moving])

    async def _drive(self, position: Position, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        at = None
        self._error = None
        try:
            at = await self._driven(position)
        except Exception as error:  # noqa: BLE001 - told to whoever asks for the result
            self._error = error
        finally:
            self._opened.set()
        self._wake_later(at)

    async def _driven(self, position: Position) -> Checkpoint | None:
        """Drive the run. While another process does, see to it that somebody takes in what was posted."""
        for wait in chain((0.05, 0.1, 0.25, 0.5), repeat(1.0)):
            drive = self._workflow.drive(position, self._storage, streaming=True, private=self._private)
            try:
                async for _ in drive.events():
                    self._opened.set()
                return drive.at
            except RunBusy:
                if isinstance(position, Back):
                    raise
            self._opened.set()
            await asyncio.sleep(wait)
            if not await self._archive().mail(self.run_id):
                break
        return None

    def _wake_later(self, at: Checkpoint | None) -> None:
        """A run that sleeps holds no more here than a place in the loop's timetable."""
        if at is None or at.wake is None or at.status in _AT_REST:
            return
        loop = asyncio.get_running_loop()
        seconds = max(0.0, clock.until(at.wake).total_seconds())
        self._wake = loop.call_later(seconds, self._wake_up)

    def _wake_up(self) -> None:
        if not self._is_moving():
            self._move(Continue(self.run_id))

    async def _stop_moving(self) -> None:
        """Leave the run at its last commit, if it is this process that moves it."""
        if self._wake is not None:
            self._wake.cancel()
        if self._is_moving() and self._moving is not None:
            self._moving.cancel()
            with suppress(asyncio.CancelledError):
                await self._moving


_TASKS: set[asyncio.Task[None]] = set()
"""What moves in the background must not be collected."""


def _failed(run_id: str, commits: list[Commit]) -> RunError:
    """The error of a run that failed elsewhere, as far as it is stored."""
    last = next(commit for commit in reversed(commits) if commit.kind is CommitKind.FAILED)
    details = last.failures[0]
    return HandlerFailed(
        f"run {run_id!r} failed: {details.error_type}: {details.message}",
        run_id=run_id,
        executor_id=details.executor_id or "",
    )
