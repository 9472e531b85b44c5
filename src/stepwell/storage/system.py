"""The parts of the operating system that only POSIX has, asked for when they are needed.

Nothing here is asked when a module is loaded: every module loads on every system. The memory and SQLite stores need
none of these parts. A store that does need one calls `require_posix` when it is opened.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from stepwell.errors import StoreUnavailable


def is_posix() -> bool:
    """Return whether this system has processes that fork, take signals and can be looked up by their id."""
    return hasattr(os, "fork")


def require_posix(store: str, needs: str, *, instead: str = "SQLiteCheckpointStorage") -> None:
    """Raise StoreUnavailable, before anything is written, unless this is a POSIX system."""
    if not is_posix():
        raise StoreUnavailable(
            f"{store} cannot be opened on this system ({sys.platform}): it needs {needs}, which only POSIX systems "
            f"such as Linux and macOS have; use {instead} here, or run the program on such a system"
        )


def call_in_forked_child(function: Callable[[], None]) -> None:
    """Call the function in every child that this process forks; do nothing where processes cannot fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make the names in a folder survive a power failure.

    Windows cannot open a folder; its file system keeps a journal of names.
    """
    if not is_posix():
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
