"""A store that simulates the crash of its process, before or after its n-th durable write."""

from __future__ import annotations

from typing import Any

from stepwell.error_ids import ErrorId
from stepwell.storage.port import Store
from stepwell.testing.faults.wrapped_store import Call, WrappedStore


class Crash(BaseException):
    """A simulated crash of the process.

    Not an Exception, so that no handler catches it and carries on.
    """

    id = ErrorId.Crash


class CrashingStore(WrappedStore):
    """Forwards every call to another store, until its n-th durable write raises Crash.

    With `after` that write is made, otherwise it is not. All later writes raise Crash, too. Without
    `at` it never crashes. `writes` counts the durable writes.
    """

    def __init__(self, inner: Store, at: int | None = None, *, after: bool = False) -> None:
        super().__init__(inner)
        self.at, self._after = at, after

    @property
    def is_dead(self) -> bool:
        # `>=`, because a process that is dead writes nothing more, although its tasks still run in
        # this one.
        return self.at is not None and self.writes >= self.at

    async def write(self, name: str, args: tuple[Any, ...], call: Call) -> Any:
        dying = self.is_dead
        if dying and not (self._after and self.writes == self.at):
            raise Crash
        result = await call()
        if dying:
            raise Crash
        return result
