"""The base of the faulty stores: a wrapper that forwards all calls to another store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from stepwell.storage.port import Store
from stepwell.storage.stored_values import LeaseReport
from stepwell.storage.transactions import Transaction

P = ParamSpec("P")
T = TypeVar("T")
Call = Callable[[], Awaitable[Any]]


def _forward(
    method: Callable[Concatenate[Any, P], Awaitable[T]], *, durable: bool = False
) -> Callable[Concatenate[WrappedStore, P], Coroutine[Any, Any, T]]:
    """Return a method of the wrapper, for one of the port, that calls it through `write` or `use`."""
    name = method.__name__

    @wraps(method)
    async def forward(self: WrappedStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = partial(getattr(self.inner, name), *args, **kwargs)
        self.writes += durable
        result: T = await (self.write(name, args, call) if durable else self.use(name, call))
        return result

    return forward


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
        """Make a durable write: `await call()` makes it, its `name` and positional `args` say which it is."""
        return await call()

    async def use(self, name: str, call: Call) -> Any:
        """Make any other async call."""
        return await call()

    append = _forward(Store.append, durable=True)
    write_log = _forward(Store.write_log, durable=True)
    send = _forward(Store.send, durable=True)
    rewrite = _forward(Store.rewrite, durable=True)
    drop = _forward(Store.drop, durable=True)

    open = _forward(Store.open)
    read = _forward(Store.read)
    history = _forward(Store.history)
    pending_signals = _forward(Store.pending_signals)
    acquire = _forward(Store.acquire)
    release = _forward(Store.release)
    run = _forward(Store.run)
    runs = _forward(Store.runs)
    checkpoints = _forward(Store.checkpoints)
    locate = _forward(Store.locate)
    requests = _forward(Store.requests)
    ready = _forward(Store.ready)
    survey = _forward(Store.survey)
    numbers = _forward(Store.numbers)
    compact = _forward(Store.compact)
    close = _forward(Store.close)

    # Called from threads, not awaited.

    def transaction(self, run_id: str, place: int, key: str, *, fence: int | None = None) -> Transaction[bytes] | None:
        return self.inner.transaction(run_id, place, key, fence=fence)

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        return self.inner.renew(fences, seconds=seconds)
