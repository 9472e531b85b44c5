"""Who may read what is written: files and folders that are new belong to their owner alone, unless told otherwise.

What is there already keeps its permissions.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from stepwell.errors import DefinitionError

OWNER_ONLY = 0o600  # of a file: its owner reads and writes it


def validate_mode(mode: int) -> int:
    """The mode of the files of a store. Raises DefinitionError if its owner could not use them, or if it has more than
    permissions to read and write."""
    if type(mode) is not int or mode & ~0o666 or mode & OWNER_ONLY != OWNER_ONLY:
        shown = oct(mode) if type(mode) is int else repr(mode)
        raise DefinitionError(
            f"mode is what the files of a store are created with, such as 0o600, 0o640 or 0o660, not {shown}"
        )
    return mode


def folder_mode(mode: int) -> int:
    """The mode of folders for files of that mode: who may read a file may enter its folder."""
    return mode | (mode & 0o444) >> 2


def create(path: str | os.PathLike[str], flags: int, mode: int) -> int:
    """Open a file, as `os.open` does; one that is new has exactly this mode, whatever the umask."""
    handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
    if mode & 0o077 and hasattr(os, "fchmod"):  # Windows has no such modes
        os.fchmod(handle, mode)
    return handle


def creating(mode: int = OWNER_ONLY) -> Callable[[str, int], int]:
    """An `opener` for `open`: what is created has exactly this mode, and what is there keeps its own."""

    def opener(path: str, flags: int) -> int:
        try:
            return create(path, flags, mode)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            return os.open(path, flags & ~os.O_CREAT)

    return opener


def make_one_folder(folder: str | os.PathLike[str], mode: int) -> None:
    """Create a folder of exactly this mode. Raises FileExistsError if it is there."""
    os.mkdir(folder, mode)
    if mode & 0o077:
        inherited = stat.S_IMODE(os.stat(folder).st_mode) & stat.S_ISGID  # who made the folder above wants it so
        os.chmod(folder, mode | inherited)


def files_mode_in(folder: str | os.PathLike[str]) -> int:
    """The mode that files in a folder have, by that of the folder."""
    return (os.stat(folder).st_mode & 0o666) | OWNER_ONLY


def mode_of(path: str | os.PathLike[str]) -> int:
    """The mode of a file that is to be put in the place of another: that of the other, if it is there."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        return OWNER_ONLY
