"""Threads and connections of stores, over forks and at the end of the program.

Before the process forks, every store pauses; afterwards it resumes in the parent and starts afresh in the
child, where its threads do not exist. When the program ends, each store that is still open gets a moment to
finish its writes.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from stepwell.errors import StoreUnavailable

R = TypeVar("R")


class Reopenable(ABC, Generic[R]):
    """What owns threads and connections: opened at the first use, and at the first one after `_detach` or a fork.

    The calls for one fork always come as a pair, from the thread that forks.
    """

    def __init__(self) -> None:
        # Held while work is handed over, so that nobody closes what is used.
        self._lock = threading.Lock()
        self._opened: R | None = None
        self._is_exiting = False
        _stores.add(self)

    @abstractmethod
    def _start(self) -> R:
        """Open threads and connections."""

    def _get(self) -> R:
        """Return what is open. The lock is held."""
        if self._is_exiting:
            raise StoreUnavailable("cannot use the store while the program is exiting")
        if self._opened is None:
            self._opened = self._start()
        return self._opened

    def _get_locked(self) -> R:
        """Do the same, if the lock is not held."""
        with self._lock:
            return self._get()

    def _detach(self) -> R | None:
        """Return what is open, if anything is, to be closed. The lock is held."""
        opened, self._opened = self._opened, None
        return opened

    def before_fork(self) -> None:
        """Pause: nothing that a child must not inherit may be in use until `after_fork`."""
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        """Resume in the parent; in the child, forget threads and connections."""
        if in_child:  # neither the threads of the parent exist here, nor those that wait for the lock
            _inherited.append(self._detach())
            self._lock = threading.Lock()
        else:
            self._lock.release()

    def close_at_exit(self) -> None:
        """Finish pending writes and refuse new ones: the interpreter is shutting down."""
        self._is_exiting = True


# Module-level because `os.register_at_fork` and `atexit` are: they take plain functions, once per
# process, and a hook cannot be removed again. The references are weak, so that a store nobody uses
# can be collected.
_stores: weakref.WeakSet[Reopenable[Any]] = weakref.WeakSet()
# Two threads may fork at once; the second waits until the first has released the stores it paused.
_forking = threading.Lock()
# Strong references: what was paused must live until it is resumed, even if its owner drops it
# meanwhile.
_paused: list[Reopenable[Any]] = []


# What a forked child inherited. Referenced for the rest of the process, so that connections are never
# closed: closing sends a goodbye over the socket, and the server would end the session of the parent.
_inherited: list[object] = []


def _before_fork() -> None:
    _forking.acquire()
    _paused[:] = list(_stores)
    for store in _paused:
        store.before_fork()


def _after_fork_in_parent() -> None:
    for store in _paused:
        store.after_fork(in_child=False)
    _paused.clear()
    _forking.release()


def _after_fork_in_child() -> None:
    global _forking
    # A new lock, not a release: threads of the parent that were waiting for it do not exist in the
    # child.
    _forking = threading.Lock()
    for store in _paused:
        store.after_fork(in_child=True)
    _paused.clear()


if hasattr(os, "register_at_fork"):  # absent on Windows, which cannot fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


@atexit.register
def _close_at_exit() -> None:
    for store in list(_stores):
        store.close_at_exit()
