"""The base of the faulty stores: a wrapper that forwards all calls to another store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

WRITES = ("append", "put", "remove", "thin_out", "drop", "write_log", "send")
"""The methods that make something durable. Everything else a store does can be repeated."""

_DIRECT = ("runs_with_signals", "renew", "transaction")  # called from threads, not awaited

Call = Callable[[], Awaitable[Any]]


class WrappedStore:
    """Forwards every call to another store, `inner`, and counts its durable `writes`.

    A subclass overrides `write` or `use` to inject faults.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        # Without `inner` (before __init__, or while unpickling) the lookup below would recurse
        # without end.
        if name == "inner":
            raise AttributeError(name)
        method = getattr(self.inner, name)
        return self._forward(name, method) if callable(method) and name not in _DIRECT else method

    async def write(self, name: str, args: tuple[Any, ...], call: Call) -> Any:
        """Make a durable write: `await call()` makes it, `name` and `args` say which it is."""
        return await call()

    async def use(self, name: str, call: Call) -> Any:
        """Make any other async call."""
        return await call()

    def _forward(self, name: str, method: Callable[..., Awaitable[Any]]) -> Any:
        async def forward(*args: Any, **kwargs: Any) -> Any:
            def call() -> Awaitable[Any]:
                return method(*args, **kwargs)

            if name not in WRITES:
                return await self.use(name, call)
            self.writes += 1
            return await self.write(name, args, call)

        return forward
