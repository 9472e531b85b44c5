"""A command's own work, on the store that is meant, from beginning to end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from .settings import Settings
from .stores import opened

if TYPE_CHECKING:
    from ..durable.storage import BuiltInStorage

T = TypeVar("T")


def on_the_store(work: Callable[[BuiltInStorage], Awaitable[T]], *, make: bool = False) -> T:
    """Do the work on the store that is meant; what comes of it. Raises CommandFailed if there is none, unless it is to
    be made."""
    settings = click.get_current_context().ensure_object(Settings)

    async def done() -> T:
        async with opened(settings, make=make) as storage:
            return await work(storage)

    return asyncio.run(done())
