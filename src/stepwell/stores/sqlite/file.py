"""Creation of the file of a SQLite store and of its folders, before SQLite opens it."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from stepwell.storage.permissions import create, make_one_folder
from stepwell.storage.posix import sync_folder

# POSIX drops all locks of a process on a file when the process closes *any* descriptor of that
# file. A thread that closed the new file while another one already had it open in SQLite would take
# SQLite's locks away. Global, because two stores of one process may use the same file.
_CREATING = threading.Lock()


def make_file(path: str, mode: int) -> None:
    """Create an empty file with these permissions, unless there is one.

    SQLite gives the files it creates next to it (`-wal`, `-shm`) the same permissions.
    """
    with _CREATING, suppress(FileExistsError):
        os.close(create(os.path.realpath(path), os.O_RDWR, mode))


def make_folder(folder: str, mode: int) -> None:
    """Create a folder and its parents, durably: they survive a power failure."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    make_folder(parent, mode)
    # Another process may be faster. If the name belongs to a file, opening the store fails later.
    with suppress(FileExistsError):
        make_one_folder(folder, mode)
    sync_folder(parent)
