"""Wakes those in this process who wait for the next commit of a run.

A hint and nothing more: another process commits without it, so a follower also looks from time to
time. It does not import asyncio, because every program that opens a store imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Key = tuple[int, str]
"""A store, by its identity, and a run."""

EXPECTING: dict[Key, list[Callable[[], object]]] = {}
"""Those who wait, by what they wait for."""


@contextmanager
def expect_appends(store: object, run_id: str, notify: Callable[[], object]) -> Iterator[None]:
    """Inside the block, have `notify` called whenever this process has appended to the run through that store
    object, in the thread that did it."""
    key = (id(store), run_id)
    EXPECTING.setdefault(key, []).append(notify)
    try:
        yield
    finally:
        EXPECTING[key].remove(notify)
        if not EXPECTING[key]:
            del EXPECTING[key]


def announce_append(store: object, run_id: str) -> None:
    for notify in tuple(EXPECTING.get((id(store), run_id), ())):
        with suppress(RuntimeError):  # the event loop of a follower is closed
            notify()
