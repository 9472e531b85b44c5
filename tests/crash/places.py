"""Where the runs are kept that many processes drive, and stores that write down what they have acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stepwell import CommitConflict, FileCheckpointStorage, PostgresCheckpointStorage, SQLiteCheckpointStorage
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import Owner
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, OpenedRun, Record
from stepwell.worker import Polling, Procrastinate, WorkerDispatcher

from .ledger import Ledger

KINDS = ("file", "sqlite", "postgres")
HINTED = "procrastinate"  # on PostgreSQL, with that dispatcher
WORKER_KINDS = (*KINDS, HINTED)
PATIENCE = 300.0  # seconds; a server that is away comes back


@dataclass(frozen=True)
class Place:
    """A store that any process can open."""

    kind: str
    folder: str  # of the ledger, and of the store if it is one of files
    dsn: str = ""
    schema: str = ""

    @classmethod
    def told(cls, text: str) -> Place:
        return cls(**json.loads(text))

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    @property
    def path(self) -> Path:
        return Path(self.folder)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.path / "ledger")

    def open(self) -> BuiltInStorage:
        if self.dsn:
            return PostgresCheckpointStorage(self.dsn, schema=self.schema, timeout=PATIENCE)
        if self.kind == "sqlite":
            return SQLiteCheckpointStorage(self.path / "runs.db")
        return FileCheckpointStorage(self.path / "runs")

    def dispatcher(self) -> WorkerDispatcher:
        return Procrastinate() if self.kind == HINTED else Polling()

    def announcing(self, storage: BuiltInStorage) -> contextlib.AbstractAsyncContextManager[None]:
        """Inside the block, what is stored is announced as the dispatcher wants it."""
        return Procrastinate().announcing(storage) if self.kind == HINTED else contextlib.nullcontext()

    def prepare(self) -> None:
        """Create what the dispatcher needs."""

        async def migrate() -> None:
            async with self.open() as storage:
                await Procrastinate().migrate(storage)

        if self.kind == HINTED:
            asyncio.run(migrate())

    def witnessed(self) -> BuiltInStorage:
        """The same, and whatever it acknowledges is written down."""
        storage = self.open()
        self.witness(storage)
        return storage

    def witness(self, storage: BuiltInStorage) -> None:
        Witness(storage._store.inner, self.ledger).watch()  # type: ignore[attr-defined]


def shorten_lease(storage: BuiltInStorage, seconds: float) -> BuiltInStorage:
    """The same storage, with a lease that is shorter than one may ask for: a test has little time."""
    storage._lease = seconds
    return storage


class Witness:
    """Takes the place of some methods of one store. What it tells is true before it is told."""

    def __init__(self, store: Any, ledger: Ledger) -> None:
        self._store, self._ledger = store, ledger
        self._append, self._write_log = store.append, store.write_log
        self._open, self._acquire, self._release = store.open, store.acquire, store.release

    def watch(self) -> None:
        for name in ("append", "write_log", "open", "acquire", "release"):
            setattr(self._store, name, getattr(self, name))

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        entry = record.entry
        await self._accepted(lambda: self._append(record, effects), entry.run_id, f"commit {entry.number}")
        self._ledger.write(
            "committed",
            entry.run_id,
            number=entry.number,
            stamp=entry.at,
            settled=effects.drop_log_through,
            status=entry.status,
        )
        if effects.release:
            self._ledger.write("released", entry.run_id)

    async def write_log(self, run_id: str, place: int, key: str, body: bytes, **options: Any) -> bool:
        writing = lambda: self._write_log(run_id, place, key, body, **options)  # noqa: E731
        is_new: bool = await self._accepted(writing, run_id, f"memory {key}")
        self._ledger.write("kept", run_id, key=key, new=is_new)
        return is_new

    async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
        opened: OpenedRun = await self._open(run_id, owner=owner, seconds=seconds)
        if owner is not None:
            self._ledger.write("claimed", run_id, fence=opened.fence)
        return opened

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        fence: int = await self._acquire(run_id, owner, seconds=seconds)
        self._ledger.write("claimed", run_id, fence=fence)
        return fence

    async def release(self, run_id: str, owner: Owner, *, stalls: bool = False) -> None:
        await self._release(run_id, owner, stalls=stalls)
        self._ledger.write("released", run_id)

    async def _accepted(self, write: Callable[[], Awaitable[Any]], run_id: str, what: str) -> Any:
        try:
            return await write()
        except CommitConflict as conflict:
            self._ledger.write("refused", run_id, writing=what, why=str(conflict))
            raise
