"""A store around another one: it passes everything on, and whoever derives from it may meddle with what it passes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

WRITES = ("append", "put", "remove", "thin_out", "drop", "write_log", "send")
"""What makes something durable. Everything else a store does can be done again."""

_DIRECT = ("runs_with_signals", "renew", "transaction")  # called from threads, not awaited

Call = Callable[[], Awaitable[Any]]


class WrappedStore:
    """Passes everything on to another store, and counts its durable `writes`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # it is not there yet, or no more: asking for it again would never end
            raise AttributeError(name)
        method = getattr(self.inner, name)
        return self._forward(name, method) if callable(method) and name not in _DIRECT else method

    async def write(self, name: str, args: tuple[Any, ...], call: Call) -> Any:
        """A durable write: `call` makes it."""
        return await call()

    async def use(self, name: str, call: Call) -> Any:
        """Anything else that is awaited."""
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
