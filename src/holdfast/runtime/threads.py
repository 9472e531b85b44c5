"""Plain functions run in threads, so that one that computes or blocks does not stall the others."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any


def _new_pool() -> ThreadPoolExecutor:
    # More than asyncio's own pool has: these threads mostly wait for somebody else's answer.
    return ThreadPoolExecutor(max_workers=64, thread_name_prefix="holdfast")


_pool = _new_pool()


def _after_fork() -> None:
    """Threads do not follow into a forked child: it needs some of its own."""
    global _pool
    _pool = _new_pool()


os.register_at_fork(after_in_child=_after_fork)


async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call a plain function in a thread, with the caller's context variables."""
    call = partial(contextvars.copy_context().run, _call, function, args)
    return await asyncio.get_running_loop().run_in_executor(_pool, call)


def _call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return function(*args)
    except (StopIteration, GeneratorExit) as error:  # these mean something else to whoever awaits a future
        raise RuntimeError(f"{getattr(function, '__name__', function)!r} raised {type(error).__name__}") from error
