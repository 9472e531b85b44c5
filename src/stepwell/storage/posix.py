"""What only POSIX systems have.

Nothing is looked up at import time, so every module can be imported on every system. The memory and
SQLite stores need none of it. A store that does calls `require_posix` when it is opened.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from stepwell.errors import StoreUnavailable


def is_posix() -> bool:
    """Return whether processes of this system can fork and be looked up by their id."""
    return hasattr(os, "fork")


def require_posix(store: str, needs: str, *, instead: str = "SQLiteCheckpointStorage") -> None:
    """Raise StoreUnavailable unless this is a POSIX system.

    To be called before anything is written.
    """
    if not is_posix():
        raise StoreUnavailable(
            f"{store} cannot be opened on this system ({sys.platform}): it needs {needs}, which only POSIX systems "
            f"such as Linux and macOS have; use {instead} here, or run the program on such a system"
        )


def call_after_process_fork(function: Callable[[], None]) -> None:
    """Call the function in every child that this process forks, if the system can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make the names in a folder survive a power failure.

    Does nothing on Windows, which cannot open a folder; its file system journals names by itself.
    """
    if not is_posix():
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
