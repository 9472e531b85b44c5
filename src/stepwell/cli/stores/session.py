"""Run the work of a command on the store that is meant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from stepwell.cli.stores.option import find_location
from stepwell.cli.type_names import BuiltInStorage

T = TypeVar("T")


def run_on_store(
    work: Callable[[BuiltInStorage], Awaitable[T]],
    *,
    make: bool = False,
    waits_for_nothing_else: bool = False,
    patient: bool = False,
) -> T:
    """Do the work on the store, and return its result. Raises CommandFailed if there is none.

    `make` allows to create the store. `patient` is for work that takes long: a server may be away
    for a while. `waits_for_nothing_else` promises that the work awaits nothing but its store; then
    a store that can do without an event loop is used without one, which saves loading asyncio.
    """
    location = find_location()

    async def work_on_store() -> T:
        # Opened before it is checked: that only builds the object, and reports a bad address or
        # missing keys first.
        storage = location.open_storage(patient=patient)
        location.check(make=make)
        try:
            return await work(storage)
        finally:
            await storage.close()

    if waits_for_nothing_else and not location.needs_loop:
        return _run_without_loop(work_on_store())
    import asyncio  # lazy: 15 ms, and `list` on SQLite does without it

    return asyncio.run(work_on_store())


def _run_without_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    # One `send` runs a coroutine to its end, unless it awaits something that is not ready.
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("the work awaits something other than its store")
