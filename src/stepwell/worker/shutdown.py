"""SIGTERM and SIGINT: the first one asks a process to leave its runs in good order, the second to leave at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_AT_ONCE = 2.0  # seconds that a process has after the second signal


@contextmanager
def stopping_on_signals(stop: Callable[..., None]) -> Iterator[None]:
    """Call `stop()` at the first SIGTERM or SIGINT and `stop(at_once=True)` at the second, inside the block.

    `stop` must be safe to call from a signal handler. A process that is still there two seconds
    after the second signal is ended: a handler that blocks the event loop cannot keep it. Must be
    entered in the main thread.
    """
    received = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received == 1:
            stop()
            return
        stop(at_once=True)
        exit_soon(128 + number)

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_soon(code: int) -> None:
    """End the process in two seconds if it does not end by itself: at exit, Python waits for blocked threads."""
    timer = threading.Timer(_AT_ONCE, os._exit, (code,))
    timer.daemon = True
    timer.start()
