"""The base of the faulty stores: a wrapper that forwards all calls to another store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from stepwell.storage.filters import ANY_CHECKPOINT, ANY_REQUEST, ANY_RUN, CheckpointFilter, RequestFilter, RunFilter
from stepwell.storage.lease import Owner
from stepwell.storage.port import Store
from stepwell.storage.stored_values import (
    NO_EFFECTS,
    CommitEffects,
    Entry,
    LeaseReport,
    OpenedRun,
    Record,
    RequestEntry,
    RunEntry,
    SignalRow,
    Survey,
    Wake,
)
from stepwell.storage.transactions import Transaction

P = ParamSpec("P")
T = TypeVar("T")
Call = Callable[[], Awaitable[Any]]


class WrappedStore:
    """Forwards every call to another store, `inner`, and counts its durable `writes`.

    A durable write is an `append`, `write_log`, `send`, `rewrite` or `drop`: everything else a store
    does can be repeated. A subclass overrides `write` or `use` to inject faults.
    """

    # A subclass may hold a write up before it is begun.
    completes_writes = False
    keeps_order = False

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.writes = 0

    async def write(self, name: str, args: tuple[Any, ...], call: Call) -> Any:
        """Make a durable write: `await call()` makes it, `name` and `args` say which it is."""
        return await call()

    async def use(self, name: str, call: Call) -> Any:
        """Make any other async call."""
        return await call()

    async def _write(self, method: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        self.writes += 1
        result: T = await self.write(method.__name__, args, lambda: method(*args, **kwargs))
        return result

    async def _use(self, method: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self.use(method.__name__, lambda: method(*args, **kwargs))
        return result

    # ---------------------------------------------------------------- durable writes

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await self._write(self.inner.append, record, effects)

    async def write_log(self, run_id: str, place: int, key: str, body: bytes, *, fence: int | None = None) -> bool:
        return await self._write(self.inner.write_log, run_id, place, key, body, fence=fence)

    async def send(self, run_id: str, key: str, body: bytes) -> bool:
        return await self._write(self.inner.send, run_id, key, body)

    async def rewrite(
        self,
        run_id: str,
        *,
        insert: Record | None = None,
        replace: Sequence[Record] = (),
        remove: Sequence[int] = (),
        effects: CommitEffects | None = None,
    ) -> int:
        return await self._write(
            self.inner.rewrite, run_id, insert=insert, replace=replace, remove=remove, effects=effects
        )

    async def drop(self, run_id: str) -> bool:
        return await self._write(self.inner.drop, run_id)

    # ---------------------------------------------------------------- called from threads, not awaited

    def transaction(self, run_id: str, place: int, key: str, *, fence: int | None = None) -> Transaction[bytes] | None:
        return self.inner.transaction(run_id, place, key, fence=fence)

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        return self.inner.renew(fences, seconds=seconds)

    # ---------------------------------------------------------------- everything else

    async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
        return await self._use(self.inner.open, run_id, owner=owner, seconds=seconds)

    async def read(self, run_id: str, number: int | None = None) -> list[Record]:
        return await self._use(self.inner.read, run_id, number)

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        return await self._use(self.inner.history, run_id, after=after, upto=upto, outputs_only=outputs_only)

    async def pending_signals(self, run_id: str) -> list[SignalRow]:
        return await self._use(self.inner.pending_signals, run_id)

    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        return await self._use(self.inner.acquire, run_id, owner, seconds=seconds)

    async def release(self, run_id: str, owner: Owner) -> None:
        await self._use(self.inner.release, run_id, owner)

    async def run(self, run_id: str) -> RunEntry | None:
        return await self._use(self.inner.run, run_id)

    async def runs(
        self, run_filter: RunFilter = ANY_RUN, *, past: RunEntry | None = None, limit: int | None = None
    ) -> list[RunEntry]:
        return await self._use(self.inner.runs, run_filter, past=past, limit=limit)

    async def checkpoints(
        self,
        checkpoint_filter: CheckpointFilter = ANY_CHECKPOINT,
        *,
        before: Entry | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        return await self._use(self.inner.checkpoints, checkpoint_filter, before=before, limit=limit)

    async def locate(self, checkpoint_id: str) -> Entry | None:
        return await self._use(self.inner.locate, checkpoint_id)

    async def requests(
        self,
        request_filter: RequestFilter = ANY_REQUEST,
        *,
        past: RequestEntry | None = None,
        limit: int | None = None,
    ) -> list[RequestEntry]:
        return await self._use(self.inner.requests, request_filter, past=past, limit=limit)

    async def wakes(self, *, before: str | None = None, workflow: str | None = None) -> list[Wake]:
        return await self._use(self.inner.wakes, before=before, workflow=workflow)

    async def survey(self) -> Survey:
        return await self._use(self.inner.survey)

    async def numbers(self, run_id: str) -> list[int]:
        return await self._use(self.inner.numbers, run_id)

    async def compact(self) -> int:
        return await self._use(self.inner.compact)

    async def close(self) -> None:
        await self._use(self.inner.close)
