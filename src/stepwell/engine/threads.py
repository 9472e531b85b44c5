"""Plain functions run in threads, so that one that computes or blocks does not stall the others."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from stepwell.storage.system import call_in_forked_child


def _new_pool() -> ThreadPoolExecutor:
    # More than asyncio's own pool has: these threads mostly wait for somebody else's answer.
    return ThreadPoolExecutor(max_workers=64, thread_name_prefix="stepwell")


_pool = _new_pool()


def _after_fork() -> None:
    """Threads do not follow into a forked child: it needs some of its own."""
    global _pool
    _pool = _new_pool()


call_in_forked_child(_after_fork)


async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call a plain function in a thread, with the caller's context variables."""
    call = partial(contextvars.copy_context().run, _call, function, args)
    return await asyncio.get_running_loop().run_in_executor(_pool, call)


def _call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return function(*args)
    except (StopIteration, GeneratorExit) as error:  # these mean something else to whoever awaits a future
        raise RuntimeError(f"{getattr(function, '__name__', function)!r} raised {type(error).__name__}") from error


async def in_own_thread(
    function: Callable[..., Any], *args: Any, name: str, on_abandon: Callable[[], None] = lambda: None
) -> Any:
    """Call a plain function in a thread of its own, for a caller who may give up on it.

    A thread cannot be stopped. One that was given up on is marked so in its name, takes no thread from the
    others and does not keep the process alive. `on_abandon` is called then.
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
        elif answer.exception() is None:  # it had just returned
            _drop(answer.result())
        raise


def _deliver(call: Callable[[], Any], answer: asyncio.Future[Any], loop: asyncio.AbstractEventLoop) -> None:
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the answer
        hand_over = partial(_settle, answer, answer.set_exception, error)
    else:
        hand_over = partial(_settle, answer, answer.set_result, result)
    try:
        loop.call_soon_threadsafe(hand_over)
    except RuntimeError:  # the loop is gone, and with it whoever waited
        _drop(hand_over.args[-1])


def _settle(answer: asyncio.Future[Any], settle: Callable[[Any], None], value: Any) -> None:
    if answer.done():
        _drop(value)
    else:
        settle(value)


def _drop(value: Any) -> None:
    """Nobody will ever wait for what a function returned."""
    if inspect.iscoroutine(value):
        value.close()
