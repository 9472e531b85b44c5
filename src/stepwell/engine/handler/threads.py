"""Runs plain functions in threads, so that one that computes or blocks does not stall the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from stepwell.storage.posix import call_after_process_fork


def _new_pool() -> ThreadPoolExecutor:
    # More threads than asyncio's default pool has: they mostly wait for a network or a model.
    return ThreadPoolExecutor(max_workers=64, thread_name_prefix="stepwell")


# One pool for the process: it must outlive event loops, and all runs share its limit.
_pool = _new_pool()


def _after_fork() -> None:
    """Replace the pool in a forked child: threads do not survive a fork."""
    global _pool
    _pool = _new_pool()


call_after_process_fork(_after_fork)


async def run_in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call a plain function in a thread, with the caller's context variables."""
    call = partial(contextvars.copy_context().run, _call, function, args)
    return await asyncio.get_running_loop().run_in_executor(_pool, call)


def _call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return function(*args)
    except (StopIteration, GeneratorExit) as error:
        # Both have a special meaning inside a coroutine.
        raise RuntimeError(f"{getattr(function, '__name__', function)!r} raised {type(error).__name__}") from error


async def run_in_own_thread(
    function: Callable[..., Any], *args: Any, name: str, on_abandon: Callable[[], None] = lambda: None
) -> Any:
    """Call a plain function in a thread of its own, for a caller that may stop waiting for it.

    A thread cannot be stopped. An abandoned one is marked in its name, takes no thread from the pool and
    does not keep the process alive. `on_abandon` is called then.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()
    call = partial(contextvars.copy_context().run, _call, function, args)
    thread = threading.Thread(target=_deliver, args=(call, answer, loop), name=f"stepwell {name}", daemon=True)
    thread.start()
    try:
        return await answer
    except asyncio.CancelledError:
        if answer.cancelled():
            thread.name = f"stepwell {name} (abandoned)"
            on_abandon()
        elif answer.exception() is None:
            # It returned just before the cancellation.
            _drop(answer.result())
        raise


def _deliver(call: Callable[[], Any], answer: asyncio.Future[Any], loop: asyncio.AbstractEventLoop) -> None:
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
        hand_over = partial(_settle, answer, answer.set_exception, error)
    else:
        hand_over = partial(_settle, answer, answer.set_result, result)
    try:
        loop.call_soon_threadsafe(hand_over)
    except RuntimeError:
        # The loop is closed, and nobody waits any more.
        _drop(hand_over.args[-1])


def _settle(answer: asyncio.Future[Any], settle: Callable[[Any], None], value: Any) -> None:
    if answer.done():
        _drop(value)
    else:
        settle(value)


def _drop(value: Any) -> None:
    """Discard a result that nobody waits for; a coroutine is closed so that it does not warn."""
    if inspect.iscoroutine(value):
        value.close()
