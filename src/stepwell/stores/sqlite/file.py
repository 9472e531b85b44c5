"""The file of a SQLite store and the folders above it, before SQLite opens it."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from stepwell.storage.permissions import create, make_one_folder
from stepwell.storage.system import sync_folder

_MAKING = threading.Lock()


def make_file(path: str, mode: int) -> None:
    """Create an empty file, if there is none. SQLite gives those that it makes beside it the same permissions.

    One at a time: the system takes all locks of a process away from a file when it closes any handle of it.
    """
    with _MAKING, suppress(FileExistsError):
        os.close(create(os.path.realpath(path), os.O_RDWR, mode))


def make_folder(folder: str, mode: int) -> None:
    """Create a folder and those above it, so that they survive a power failure."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    make_folder(above, mode)
    with suppress(FileExistsError):  # another process was faster; a file of that name fails at the opening
        make_one_folder(folder, mode)
    sync_folder(above)
