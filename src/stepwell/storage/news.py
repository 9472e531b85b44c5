"""Tells those in this process who look for work that a run of a store may have some.

Across processes a store has to be looked at. Inside one, a run that is submitted or gets a signal
is announced here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stepwell.storage.posix import call_after_process_fork

_LISTENERS: dict[int, list[Callable[[], None]]] = {}  # by store


@contextmanager
def listening(store: object, listener: Callable[[], None]) -> Iterator[None]:
    """Have `listener` called, from any thread, whenever a run of the store may have got work."""
    listeners = _LISTENERS.setdefault(id(store), [])
    listeners.append(listener)
    try:
        yield
    finally:
        listeners.remove(listener)
        if not listeners:
            _LISTENERS.pop(id(store), None)


def publish(store: object) -> None:
    """Announce that a run of the store may have got work."""
    for listener in list(_LISTENERS.get(id(store), ())):
        listener()


call_after_process_fork(_LISTENERS.clear)
