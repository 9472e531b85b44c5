"""A command's own work, on the store that is meant, from beginning to end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from .settings import Settings
from .stores import opened

if TYPE_CHECKING:
    from ..durable.storage import BuiltInStorage


def on_the_store(work: Callable[[BuiltInStorage], Awaitable[None]]) -> None:
    """Do the work on the store that is meant."""
    settings = click.get_current_context().ensure_object(Settings)

    async def done() -> None:
        async with opened(settings) as storage:
            await work(storage)

    asyncio.run(done())
