"""Permissions of the files and folders we create: for their owner alone, unless a mode is given.

Existing files and folders keep the permissions they have.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from stepwell.errors import DefinitionError
from stepwell.storage.posix import sync_folder

OWNER_ONLY = 0o600  # the owner of a file reads and writes it


def validate_mode(mode: int) -> int:
    """Return the mode for the files of a store.

    Raises DefinitionError unless the owner may read and write, and if there is more than permission
    to do so.
    """
    if type(mode) is not int or mode & ~0o666 or mode & OWNER_ONLY != OWNER_ONLY:
        shown = oct(mode) if type(mode) is int else repr(mode)
        raise DefinitionError(
            f"mode must be permissions for the files of a store, such as 0o600, 0o640 or 0o660, not {shown}"
        )
    return mode


def folder_mode(mode: int) -> int:
    """Return the mode of folders for files of that mode: readers may enter them."""
    return mode | (mode & 0o444) >> 2


def create(path: str | os.PathLike[str], flags: int, mode: int) -> int:
    """Create and open a file, as `os.open` does, with exactly this mode, whatever the umask."""
    handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
    if mode & 0o077 and hasattr(os, "fchmod"):  # Windows has no such modes
        os.fchmod(handle, mode)
    return handle


def creating(mode: int = OWNER_ONLY) -> Callable[[str, int], int]:
    """Return an `opener` for `open` that gives new files exactly this mode."""

    def opener(path: str, flags: int) -> int:
        try:
            return create(path, flags, mode)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            return os.open(path, flags & ~os.O_CREAT)

    return opener


def make_one_folder(folder: str | os.PathLike[str], mode: int) -> None:
    """Create a folder with exactly this mode. Raises FileExistsError if it exists."""
    os.mkdir(folder, mode)
    if mode & 0o077:
        # chmod would clear the setgid bit, which the administrator set on the folder above so that
        # everything in it belongs to one group.
        inherited = stat.S_IMODE(os.stat(folder).st_mode) & stat.S_ISGID
        os.chmod(folder, mode | inherited)


def make_folders(folder: str | os.PathLike[str], mode: int) -> None:
    """Create a folder and its parents, durably: they survive a power failure."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    make_folders(parent, mode)
    # Another process may be faster. If the name belongs to a file, using the folder fails later.
    with suppress(FileExistsError):
        make_one_folder(folder, mode)
    sync_folder(parent)


def files_mode_in(folder: str | os.PathLike[str]) -> int:
    """Return the mode for files in a folder, derived from that of the folder."""
    return (os.stat(folder).st_mode & 0o666) | OWNER_ONLY


def mode_of(path: str | os.PathLike[str]) -> int:
    """Return the mode for a file that replaces another: that of the other, if it exists."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        return OWNER_ONLY
