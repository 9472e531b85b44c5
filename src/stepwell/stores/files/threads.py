"""The threads of a store. Writes to one run are done in the order of the calls, and share a sync.

While a thread writes for a run, more writes for it may come: they wait, and are then written
together. Different runs are written side by side.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from stepwell.errors import StoreUnavailable
from stepwell.stores.files.layout import StoreFolder, run_name
from stepwell.stores.files.run_file import RunFile
from stepwell.stores.jobs import Awaited, Job, fail, settle, submit

THREADS = 8
CACHED_RUNS = 1000  # runs of which the state is kept in memory

T = TypeVar("T")


class FileThreads:
    """The threads of one process, and the runs that it has read. A forked child needs new ones."""

    def __init__(self, folder: StoreFolder) -> None:
        self._folder = folder
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="stepwell-file")
        self._lock = threading.Lock()
        # By run. A key exists as long as a thread writes for that run, even if nothing waits.
        self._waiting: dict[str, list[Job]] = {}
        self._runs: dict[str, RunFile] = {}  # by the names of their files

    def run(self, run_id: str) -> RunFile:
        run = self.run_in(run_name(run_id))
        run.run_id = run_id
        return run

    def run_in(self, name: str) -> RunFile:
        """Return the run in the file of that name; its id is known when it was read."""
        run = self._runs.get(name)
        if run is None:
            if len(self._runs) >= CACHED_RUNS:
                self._runs.clear()  # a run that is in use stays with its user
            run = self._runs.setdefault(name, RunFile(self._folder.path_of(name)))
        return run

    async def read(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(submit(self._pool, lambda: self.translate(work)))

    async def write(self, run_id: str, write: Callable[[RunFile], T], *, creates: bool = False) -> T:
        """Return what `write` returns, once what it has put is durable.

        With `creates`, the file of the run is created if there is none.
        """
        awaited: Awaited[T] = Awaited(unbroken=True)
        job = Job(write, awaited, creates=creates)
        with self._lock:
            if run_id in self._waiting:
                self._waiting[run_id].append(job)
            else:
                submit(self._pool, lambda: self._write_all(run_id))
                self._waiting[run_id] = [job]
        return await awaited

    async def close(self) -> None:
        await asyncio.to_thread(self._pool.shutdown)

    def translate(self, work: Callable[[], T]) -> T:
        """Do the work; errors of the system become StoreUnavailable."""
        try:
            return work()
        except OSError as error:
            root = self._folder.root
            where = error.filename2 or error.filename or root
            raise StoreUnavailable(f"the store {root} cannot be used: {error.strerror} ({where})") from error

    def _write_all(self, run_id: str) -> None:
        """Do all writes that wait for a run."""
        while jobs := self._take(run_id):
            while jobs:
                settle(self._write_some(run_id, jobs))

    def _take(self, run_id: str) -> list[Job]:
        with self._lock:
            jobs, self._waiting[run_id] = self._waiting[run_id], []
            if not jobs:
                del self._waiting[run_id]
            return jobs

    def _write_some(self, run_id: str, jobs: list[Job]) -> list[Job]:
        """Do the first of these jobs, as many as can be written together, and return them."""
        done: list[Job] = []
        try:
            self.translate(lambda: self._write_together(run_id, jobs, done))
        except BaseException as error:  # noqa: BLE001 - raised in the tasks that wait
            if not done:
                done, jobs[:] = list(jobs), []
            fail([job for job in done if job.error is None], error)
        return done

    def _write_together(self, run_id: str, jobs: list[Job], done: list[Job]) -> None:
        run = self.run(run_id)
        with run.writing(self._folder.prepare(run.folder, creates=any(job.creates for job in jobs))):
            while jobs and not run.is_replaced:
                done.append(job := jobs.pop(0))
                try:
                    job.result = job.work(run)
                except OSError:  # nobody knows what was written: all of them fail
                    raise
                except Exception as error:  # noqa: BLE001 - raised in the task that waits
                    job.error = error
