"""A store in memory: for tests, experiments and runs that need not outlive their process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from stepwell.model.checkpoint import FullHistory, Retention
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.encryption import Seal
from stepwell.storage.filters import ALL_RUNS
from stepwell.storage.ids import run_hash
from stepwell.storage.lease import LEASE
from stepwell.storage.live_ring import LiveRing
from stepwell.storage.outbox import WebhookRow
from stepwell.storage.stored_values import Record, Survey
from stepwell.storage.worker_registry import ALIVE_FOR, KEPT_FOR, WorkerRow
from stepwell.stores.runs.run import Run
from stepwell.stores.runs.state import Line, State
from stepwell.stores.runs.store import RunStore

T = TypeVar("T")


class MemoryRun(Run[bytes]):
    """A run. It may have a lease, a log or signals before its first record is stored."""

    def __init__(self, run_id: str) -> None:
        self.run_id, self.hash = run_id, run_hash(run_id)
        self.remove()

    def put(self, line: Line, body: bytes = b"") -> None:
        self.apply(line, body)
        self.state.dead.clear()

    def read(self, body: bytes) -> bytes:
        return body

    def set_lease_text(self, text: bytes) -> None:
        self.state.until = text

    def write_anew(self, records: Iterable[Record]) -> None:
        fresh = MemoryRun(self.run_id)
        self.copy_to(fresh, records)
        self.state, self.records = fresh.state, fresh.records

    def remove(self) -> None:
        self.state, self.records = State(), {}


class MemoryStore(RunStore):
    """Everything in dictionaries.

    Keeps every promise of `Store` except that of outliving the process.

    No method awaits anything, so one lock makes each of them a transaction.
    """

    completes_writes = True
    keeps_order = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, MemoryRun] = {}
        self._workers: dict[str, tuple[str, float, bytes]] = {}  # process, when it was seen, what it says
        self._webhooks: dict[str, WebhookRow] = {}
        self._ring: LiveRing | None = None

    async def survey(self) -> Survey:
        return Survey(await self.runs(ALL_RUNS))

    async def compact(self) -> int:
        return 0  # deleted data takes no space

    async def close(self) -> None:
        """Do nothing: what is stored lives as long as this object."""

    def live_ring(self) -> LiveRing:
        from stepwell.stores.side_ring import SideRing  # lazy: it loads asyncio and SQLite, and few programs watch

        if self._ring is None:
            self._ring = SideRing(":memory:")
        return self._ring

    async def announce_worker(self, name: str, process: str, body: bytes) -> bool:
        with self._lock:
            now = clock.seconds()
            holder, seen, _ = self._workers.get(name, (process, now, b""))
            if holder != process and now - seen <= ALIVE_FOR:
                return False
            self._workers = {n: worker for n, worker in self._workers.items() if now - worker[1] <= KEPT_FOR}
            self._workers[name] = process, now, body
            return True

    async def withdraw_worker(self, name: str, process: str) -> None:
        with self._lock:
            if self._workers.get(name, ("",))[0] == process:
                del self._workers[name]

    async def workers(self) -> list[WorkerRow]:
        with self._lock:
            now = clock.seconds()
            return [
                WorkerRow(name, process, now - seen, body)
                for name, (process, seen, body) in sorted(self._workers.items())
            ]

    async def put_webhook(self, webhook: WebhookRow) -> None:
        with self._lock:
            self._webhooks[webhook.id] = webhook

    async def remove_webhook(self, webhook_id: str) -> bool:
        with self._lock:
            was_there = self._webhooks.pop(webhook_id, None) is not None
        await self._drop_messages(webhook_id)
        return was_there

    def _find_webhooks(self) -> list[WebhookRow]:
        return sorted(self._webhooks.values(), key=lambda webhook: webhook.id)

    async def _write(self, run_id: str, write: Callable[[Run[Any]], T], *, creates: bool = False) -> T:
        with self._lock:
            run = self._runs.get(run_id) or MemoryRun(run_id)
            result = write(run)
            if run.state.is_empty and run.state.owner is None:
                self._runs.pop(run_id, None)
            else:
                self._runs[run_id] = run
            return result

    async def _do(self, work: Callable[[], T]) -> T:
        return self._do_here(work)

    def _do_here(self, work: Callable[[], T]) -> T:
        with self._lock:
            return work()

    def _open(self, run_id: str, *, writes: bool = False) -> AbstractContextManager[MemoryRun]:
        return nullcontext(self._runs.get(run_id) or MemoryRun(run_id))

    def _each_run(self, hashed: int | None = None) -> Iterator[MemoryRun]:
        return (run for run in self._runs.values() if hashed in (None, run.hash))


class InMemoryCheckpointStorage(BuiltInStorage):
    """Runs in the memory of this process, for tests and short-lived programs; lost when it ends."""

    def __init__(self, *, seal: Seal | None = None, retention: Retention = FullHistory, lease: float = LEASE) -> None:
        super().__init__(MemoryStore(), seal=seal, retention=retention, lease=lease)
