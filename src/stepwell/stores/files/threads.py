"""The threads of a store. Writes to one run are done in the order of the calls, and share a sync.

While a thread writes for a run, more writes for it may come: they wait, and are then written
together. Different runs are written side by side.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from stepwell.errors import DurabilityError, StoreUnavailable
from stepwell.stores.files.layout import StoreFolder
from stepwell.stores.files.run_file import RunFile
from stepwell.stores.thread_work import Awaited, wake_up

THREADS = 8
CACHED_RUNS = 1000  # runs of which the state is kept in memory

T = TypeVar("T")
Write = Callable[[RunFile], T]


class _QueuedJob:
    """A write that somebody waits for."""

    __slots__ = ("awaited", "creates", "error", "result", "write")

    def __init__(self, write: Write[Any], *, creates: bool) -> None:
        self.write, self.creates = write, creates
        self.awaited: Awaited[Any] = Awaited(unbroken=True)
        self.result: Any = None
        self.error: BaseException | None = None


class FileThreads:
    """The threads of one process, and the runs that it has read. A forked child needs new ones."""

    def __init__(self, folder: StoreFolder) -> None:
        self.pid, self._folder = os.getpid(), folder
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="stepwell-file")
        self._lock = threading.Lock()
        # By run. A key exists as long as a thread writes for that run, even if nothing waits.
        self._waiting: dict[str, list[_QueuedJob]] = {}
        self._runs: dict[Path, RunFile] = {}

    def run(self, run_id: str) -> RunFile:
        run = self.run_at(self._folder.run_path(run_id))
        run.run_id = run_id
        return run

    def run_at(self, path: Path) -> RunFile:
        """Return the run in a file; its id is known when it was read."""
        run = self._runs.get(path)
        if run is None:
            if len(self._runs) >= CACHED_RUNS:
                self._runs.clear()  # a run that is in use stays with its user
            run = self._runs.setdefault(path, RunFile(path))
        return run

    async def read(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._start(lambda: self.translate(work)))

    async def write(self, run_id: str, write: Write[T], *, creates: bool = False) -> T:
        """Return what `write` returns, once what it has put is durable.

        With `creates`, the file of the run is created if there is none.
        """
        job = _QueuedJob(write, creates=creates)
        with self._lock:
            if run_id in self._waiting:
                self._waiting[run_id].append(job)
            else:
                self._start(lambda: self._write_all(run_id))
                self._waiting[run_id] = [job]
        result: T = await job.awaited
        return result

    async def close(self) -> None:
        await asyncio.to_thread(self._pool.shutdown)

    def _start(self, work: Callable[[], T]) -> Future[T]:
        try:
            return self._pool.submit(work)
        except RuntimeError as error:  # its threads accept no work any more
            raise StoreUnavailable(f"cannot use the store while the program is exiting: {error}") from error

    def _write_all(self, run_id: str) -> None:
        """Do all writes that wait for a run."""
        while jobs := self._take(run_id):
            while jobs:
                done = self._write_some(run_id, jobs)
                for job in done:
                    if job.error is None:
                        job.awaited.set_result(job.result)
                    else:
                        job.awaited.set_exception(job.error)
                wake_up([job.awaited for job in done])

    def _take(self, run_id: str) -> list[_QueuedJob]:
        with self._lock:
            jobs, self._waiting[run_id] = self._waiting[run_id], []
            if not jobs:
                del self._waiting[run_id]
            return jobs

    def _write_some(self, run_id: str, jobs: list[_QueuedJob]) -> list[_QueuedJob]:
        """Do the first of these jobs, as many as can be written together, and return them."""
        done: list[_QueuedJob] = []
        try:
            self.translate(lambda: self._write_together(run_id, jobs, done))
        except BaseException as error:  # noqa: BLE001 - raised in the tasks that wait
            if not done:
                done, jobs[:] = list(jobs), []
            # Each gets an error of its own: one that is raised in several tasks mixes tracebacks.
            for job in [job for job in done if job.error is None]:
                is_ours = isinstance(error, DurabilityError)
                job.error = type(error)(str(error)) if is_ours else StoreUnavailable(repr(error))
                job.error.__cause__ = error
        return done

    def _write_together(self, run_id: str, jobs: list[_QueuedJob], done: list[_QueuedJob]) -> None:
        run = self.run(run_id)
        with run.writing(self._folder.prepare(run.path, creates=any(job.creates for job in jobs))):
            while jobs and not run.is_replaced:
                done.append(job := jobs.pop(0))
                try:
                    job.result = job.write(run)
                except OSError:  # nobody knows what was written: all of them fail
                    raise
                except Exception as error:  # noqa: BLE001 - raised in the task that waits
                    job.error = error

    def translate(self, work: Callable[[], T]) -> T:
        """Do the work; errors of the system become StoreUnavailable."""
        try:
            return work()
        except OSError as error:
            root = self._folder.root
            where = error.filename2 or error.filename or root
            raise StoreUnavailable(f"the store {root} cannot be used: {error.strerror} ({where})") from error
