"""Fork and exit hooks for stores that own threads and connections.

A store registers itself once, with `register`. Before the process forks, every registered store pauses;
afterwards it resumes in the parent and starts afresh in the child, where its threads do not exist. When the
program ends, each store that is still open gets a moment to finish its writes.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Protocol


class ForkAware(Protocol):
    """What the hooks call.

    The calls for one fork always come as a pair, from the thread that forks.
    """

    def before_fork(self) -> None:
        """Pause: nothing that a child must not inherit may be in use until `after_fork`."""

    def after_fork(self, *, in_child: bool) -> None:
        """Resume in the parent; in the child, forget threads and connections."""

    def close_at_exit(self) -> None:
        """Finish pending writes and refuse new ones: the interpreter is shutting down."""


# Module-level because `os.register_at_fork` and `atexit` are: they take plain functions, once per
# process, and a hook cannot be removed again. The references are weak, so that a store nobody uses
# can be collected.
_stores: weakref.WeakSet[ForkAware] = weakref.WeakSet()
# Two threads may fork at once; the second waits until the first has released the stores it paused.
_forking = threading.Lock()
# Strong references: what was paused must live until it is resumed, even if its owner drops it
# meanwhile.
_paused: list[ForkAware] = []


def register(store: ForkAware) -> None:
    """Call the hooks of this store at each fork and at exit, as long as it is referenced."""
    _stores.add(store)


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
