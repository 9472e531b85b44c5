"""A command's own work, on the store that is meant, from beginning to end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stepwell.cli.settings import Settings
from stepwell.cli.stores.option import find_location, open_store

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage

T = TypeVar("T")


def run_on_store(
    work: Callable[[BuiltInStorage], Awaitable[T]],
    *,
    make: bool = False,
    waits_for_nothing_else: bool = False,
    patient: bool = False,
) -> T:
    """Do the work on the store that is meant; what comes of it. Raises CommandFailed if there is none, unless it is to
    be made.

    For work that waits for nothing but its store no event loop is loaded, if the store can do without. Work that takes
    long is patient: a server that is there at first may be away for a while.
    """
    location = find_location(click.get_current_context().ensure_object(Settings))

    async def work_on_store() -> T:
        async with open_store(location, make=make, patient=patient) as storage:
            return await work(storage)

    if waits_for_nothing_else and not location.needs_loop:
        return _run_without_loop(work_on_store())
    import asyncio  # lazy: 25 ms, and `list` on SQLite does without

    return asyncio.run(work_on_store())


def _run_without_loop(work: Coroutine[Any, Any, T]) -> T:
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("the work waits for something that is no store")
