"""Tells those who look for work that a run of a store may have some.

Inside a process, a run that is submitted or gets a signal is announced here. Across processes a
store has to be looked at, unless it can notify them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from stepwell.storage.posix import call_after_process_fork


@runtime_checkable
class Notifications(Protocol):
    """What a store implements that can notify other processes."""

    async def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` when a run may have got work in any process, until cancelled.

        A notification may be late or get lost. Raises StoreUnavailable if the store goes away.
        """


_LISTENERS: dict[int, list[Callable[[str], None]]] = {}  # by store


@contextmanager
def listening(store: object, listener: Callable[[str], None]) -> Iterator[None]:
    """Have `listener` called with the id of each run of the store that may have got work, from any thread."""
    listeners = _LISTENERS.setdefault(id(store), [])
    listeners.append(listener)
    try:
        yield
    finally:
        listeners.remove(listener)
        if not listeners:
            _LISTENERS.pop(id(store), None)


def publish(store: object, run_id: str) -> None:
    """Announce that a run of the store may have got work."""
    for listener in list(_LISTENERS.get(id(store), ())):
        listener(run_id)


call_after_process_fork(_LISTENERS.clear)
