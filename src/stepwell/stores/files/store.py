"""The port on a directory of files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from stepwell.errors import CheckpointCorrupt
from stepwell.model.checkpoint import FullHistory, Retention
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.encryption import Seal
from stepwell.storage.filters import ALL_RUNS
from stepwell.storage.lease import LEASE
from stepwell.storage.live_ring import LiveRing
from stepwell.storage.outbox import WebhookRow
from stepwell.storage.permissions import OWNER_ONLY, validate_mode
from stepwell.storage.posix import require_posix
from stepwell.storage.stored_values import DamagedRun, RunEntry, Survey
from stepwell.storage.worker_registry import WorkerRow
from stepwell.stores.files.layout import StoreFolder
from stepwell.stores.files.run_file import RunFile
from stepwell.stores.files.threads import FileThreads
from stepwell.stores.files.webhooks import WebhookFolder
from stepwell.stores.files.workers import WorkerFolder
from stepwell.stores.fork_hooks import Reopenable
from stepwell.stores.runs.store import RunStore

T = TypeVar("T")

if TYPE_CHECKING:
    from stepwell.stores.side_ring import SideRing


class FileStore(RunStore, Reopenable[FileThreads]):
    """A store in the directory `path`, which is created at the first write, with its parents.

    Any number of processes of one machine may use it at once. A store of a newer Stepwell is
    refused and left unchanged. A damaged file is named in CheckpointCorrupt and never skipped.
    """

    completes_writes = True
    keeps_order = True

    def __init__(self, path: str | os.PathLike[str], *, mode: int = OWNER_ONLY) -> None:
        self._root = Path(os.path.abspath(path))
        require_posix(f"the file store {str(self._root)!r}", "file locks")
        self._folder = StoreFolder(self._root, validate_mode(mode))
        self._ring: SideRing | None = None
        self._workers, self._webhooks = WorkerFolder(self._folder), WebhookFolder(self._folder)
        super().__init__()

    async def survey(self) -> Survey:
        return await self._do(self._survey)

    def _survey(self) -> Survey:
        runs: list[RunEntry] = []
        damaged: list[DamagedRun] = []
        for run in self._files():
            try:
                with run.reading():
                    runs += filter(None, [run.listed()])
            except (CheckpointCorrupt, OSError) as error:
                why = f"{run.path} cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
                damaged.append(DamagedRun(run.run_id or None, why))
        return Survey(ALL_RUNS.page(runs, None, None), damaged)

    async def compact(self) -> int:
        return await self._do(lambda: sum(run.compact() for run in self._files()))

    def live_ring(self) -> LiveRing:
        from stepwell.stores.side_ring import SideRing  # lazy: it loads asyncio and SQLite, and few programs watch

        if self._ring is None:
            self._ring = SideRing(f"{self._root}.live")
        return self._ring

    async def close(self) -> None:
        if self._ring is not None:
            self._ring.close()
        with self._lock:
            threads = self._detach()
        if threads is not None:
            await threads.close()

    # ---------------------------------------------------------------- workers

    async def announce_worker(self, name: str, process: str, body: bytes) -> bool:
        return await self._do(lambda: self._workers.announce(name, process, body))

    async def withdraw_worker(self, name: str, process: str) -> None:
        await self._do(lambda: self._workers.withdraw(name, process))

    async def workers(self) -> list[WorkerRow]:
        return await self._do(self._workers.read)

    # ---------------------------------------------------------------- webhooks

    async def put_webhook(self, webhook: WebhookRow) -> None:
        await self._do(lambda: self._webhooks.put(webhook))

    async def remove_webhook(self, webhook_id: str) -> bool:
        was_there = await self._do(lambda: self._webhooks.remove(webhook_id))
        await self._drop_messages(webhook_id)
        return was_there

    def _find_webhooks(self) -> Sequence[WebhookRow]:
        return self._webhooks.read()

    # ---------------------------------------------------------------- threads

    def _start(self) -> FileThreads:
        return FileThreads(self._folder)

    async def _write(self, run_id: str, write: Callable[[RunFile], T], *, creates: bool = False) -> T:
        return await self._get_locked().write(run_id, write, creates=creates)

    async def _do(self, work: Callable[[], T]) -> T:
        return await self._get_locked().read(work)

    def _do_here(self, work: Callable[[], T]) -> T:
        return self._get_locked().translate(work)

    # ---------------------------------------------------------------- in a thread

    @contextmanager
    def _open(self, run_id: str, *, writes: bool = False) -> Iterator[RunFile]:
        self._folder.check()
        run = self._get_locked().run(run_id)
        with run.writing() if writes else run.reading():
            yield run

    def _files(self, hashed: int | None = None) -> Iterator[RunFile]:
        """Yield all runs, or those with that hash. None of them is open."""
        self._folder.check()
        yield from map(self._get_locked().run_in, self._folder.names(hashed))

    def _each_run(self, hashed: int | None = None) -> Iterator[RunFile]:
        for run in self._files(hashed):
            with run.reading():
                yield run


class FileCheckpointStorage(BuiltInStorage):
    """Runs in a directory that people can read: one file per run, one line per commit.

    Several processes of one machine may share it. Files of a new store get the permissions `mode`;
    an existing store keeps its own.
    """

    def __init__(
        self,
        storage_path: str | os.PathLike[str],
        *,
        seal: Seal | None = None,
        retention: Retention = FullHistory,
        mode: int = OWNER_ONLY,
        lease: float = LEASE,
    ) -> None:
        super().__init__(FileStore(storage_path, mode=mode), seal=seal, retention=retention, lease=lease)
