"""A run to its end, or as a stream: iterate over its events, await its result, leave it early, or cancel it."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

from stepwell.engine.drive.drive import Drive
from stepwell.errors import RunError
from stepwell.model.event import WorkflowEvent

R = TypeVar("R")


class EarlyRequests:
    """The requests that a reader has seen before their commit, which emits them again."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def repeats(self, event: WorkflowEvent) -> bool:
        """Return whether the reader has seen a request before."""
        if event.type == "request_answered":
            self._ids.discard(event.request_id)
        if event.type != "request_info" or event.path:
            return False
        if event.commit is None:
            self._ids.add(event.request_id)
            return False
        is_repeated = event.request_id in self._ids
        self._ids.discard(event.request_id)
        return is_repeated


class RunStream(Generic[R]):
    """The events of a run as they happen; awaited, its result.

    The run moves only as far as the stream is read: leaving the loop stops it at its last commit. It is not
    cancelled and can be resumed.

    It shows the events of the run itself: those of sub-workflows are added with `nested`, outputs from before a
    resume with `replay`. The result is made of all events.
    """

    def __init__(
        self,
        begin: Callable[[], Drive],
        finish: Callable[[list[WorkflowEvent]], R],
        *,
        nested: bool = False,
        replay: bool = False,
    ) -> None:
        self._begin, self._finish = begin, finish
        self._nested, self._replay = nested, replay
        self._watched: _WatchedDrive | None = None
        self._events: list[WorkflowEvent] = []  # so far, for the result

    @property
    def run_id(self) -> str | None:
        """The id of the run; None until it is known."""
        return self._watched.drive.run_id if self._watched else None

    def __aiter__(self) -> AsyncIterator[WorkflowEvent]:
        if self._watched is not None:
            raise RuntimeError("this stream was read already; await it for the result, or resume the run by its run_id")
        return _EventReader(self._watch(), nested=self._nested, replay=self._replay)

    def __await__(self) -> Generator[Any, None, R]:
        return self._result().__await__()

    async def get_final_response(self) -> R:
        """Read the stream to its end and return the result, as `await` does."""
        return await self._result()

    async def _result(self) -> R:
        watched = self._watch()
        await watched.finish()
        if watched.error is not None:
            raise watched.error
        if watched.left:
            drive = watched.drive
            hint = f"resume it with run(run_id={drive.run_id!r})" if drive.is_stored else "the run is not stored"
            raise RunError(f"this stream was left before the run ended; {hint}", run_id=drive.run_id or "")
        return self._finish(self._events)

    async def cancel(self) -> None:
        """Cancel the run: handlers may clean up, and it ends CANCELLED at its last commit."""
        watched = self._watch()
        watched.drive.cancel()
        await watched.finish()

    def _watch(self) -> _WatchedDrive:
        if self._watched is None:
            self._watched = _WatchedDrive(self._begin(), self)
        return self._watched

    async def aclose(self) -> None:
        """Leave the stream: the run stops at its last commit, and can be resumed."""
        if self._watched is not None:
            await self._watched.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class _WatchedDrive:
    """A drive and its events, shared by those who iterate and those who await."""

    def __init__(self, drive: Drive, stream: RunStream[Any]) -> None:
        self.drive = drive
        drive.reader = self.finish
        # Weak: once the stream object is dropped nobody can await it, and events need not be collected.
        self._stream = weakref.ref(stream)
        self.left = False  # before the end
        self.error: BaseException | None = None
        self.read = False  # somebody iterates
        # Read by those who await; still to be iterated over.
        self._unread: deque[WorkflowEvent] = deque()
        self._ended = False
        self._generator: AsyncGenerator[WorkflowEvent, None] = drive.events()
        self._turn = asyncio.Lock()
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    async def next(self) -> WorkflowEvent:
        """Return the next event of the iteration. Raises StopAsyncIteration at the end."""
        async with self._turn:
            return self._unread.popleft() if self._unread else await self._pull()

    async def finish(self) -> None:
        """Read to the end."""
        while not self._ended:
            async with self._turn:
                with suppress(StopAsyncIteration):
                    event = await self._pull()
                    if self.read:
                        self._unread.append(event)

    async def close(self) -> None:
        """Stop the run at its last commit."""
        self.left = self.left or not self._ended
        self.drive.stop()
        async with self._turn:
            await self._generator.aclose()
            self._ended = True

    def abandon(self) -> None:
        """Close soon, because nobody iterates any more."""
        self.read = False
        if not self._ended:
            self.left = True
            self.drive.leave()
            if threading.get_ident() == self._thread and self._loop.is_running():
                # At once: `asyncio.run` cancels the tasks it finds, and must find this one.
                self._close_soon()
            else:
                # The loop is closed, and the drive with it.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._close_soon)

    async def _pull(self) -> WorkflowEvent:
        try:
            event = await anext(self._generator)
        except StopAsyncIteration:
            self._ended = True
            raise
        except asyncio.CancelledError:
            # The task that reads was cancelled: that is one way to leave.
            self._ended = self.left = True
            raise
        except BaseException as error:
            self._ended, self.error = True, error
            raise
        stream = self._stream()
        if stream is not None and event.type != "checkpoint":  # stored anyway, and large
            stream._events.append(event)
        return event

    def _close_soon(self) -> None:
        task = self._loop.create_task(self.close())
        _CLOSING.add(task)
        task.add_done_callback(_CLOSING.discard)


# An event loop holds only weak references to tasks: without this set one might be collected before it has closed.
_CLOSING: set[asyncio.Task[None]] = set()


class _EventReader(AsyncIterator[WorkflowEvent]):
    """The iterator of a `for` loop: when the loop is left, this is dropped, and the drive is closed."""

    def __init__(self, watched: _WatchedDrive, *, nested: bool, replay: bool) -> None:
        self._watched, self._nested, self._replay = watched, nested, replay
        self._early_requests = EarlyRequests()
        watched.read = True

    async def __anext__(self) -> WorkflowEvent:
        while not self._is_shown(event := await self._watched.next()):
            pass
        return event

    def _is_shown(self, event: WorkflowEvent) -> bool:
        if event.path:
            return self._nested
        if self._early_requests.repeats(event):
            return False
        is_repeated = event.replayed and event.type in ("output", "intermediate")
        # Of a run that was completed before, they are all there is.
        return not is_repeated or self._replay or self._watched.drive.was_completed

    async def aclose(self) -> None:
        await self._watched.close()

    def __del__(self) -> None:
        self._watched.abandon()


async def run_to_end(begin: Callable[[], Drive], finish: Callable[[list[WorkflowEvent]], R]) -> R:
    """Drive a run until it stops, and return what `finish` makes of its events."""
    drive = begin()
    drive.gathers = True

    async def read() -> list[WorkflowEvent]:
        return [event async for batch in drive.batches() for event in batch]

    return finish(await drive.reading_task.read(read()))
