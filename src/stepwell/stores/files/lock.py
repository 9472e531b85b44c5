"""The lock of a folder: it keeps every other process and thread out, and tells whether anybody was there since.

Whoever takes the lock of a run writes a new word into it before changing anything. A store that finds its own
last word there knows that everything is still as it left it. Behind its word it leaves a hint for others when it has
finished: the hint repeats the word, and so it is over with it.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stepwell.errors import StoreUnavailable
from stepwell.storage.permissions import create, files_mode_in
from stepwell.stores.files.layout import LOCK

PATIENCE = 30.0  # seconds to wait for another process that holds a lock
WORD = 32  # characters
LONGEST = 1024  # bytes in a lock


@contextmanager
def lock_folder(folder: Path, mode: int | None = None) -> Iterator[int | None]:
    """Keep every other process and thread out. Yields the handle of the lock, or None if the folder was moved or
    deleted while we waited. `mode` is that of a lock that is new; without it, whoever may write in the folder may
    lock it."""
    try:
        handle = _open(folder, mode)
    except FileNotFoundError:
        yield None
        return
    try:
        _wait_for_lock(handle, folder / LOCK)
        try:
            yield handle if _is_at(handle, folder / LOCK) else None
        finally:
            _unlock(handle)  # closing alone would not free it if a forked child has the handle too
    finally:
        os.close(handle)


def _open(folder: Path, mode: int | None) -> int:
    with suppress(FileNotFoundError):
        return os.open(folder / LOCK, os.O_RDWR)
    try:
        return create(folder / LOCK, os.O_RDWR, files_mode_in(folder) if mode is None else mode)
    except FileExistsError:  # another one was faster
        return os.open(folder / LOCK, os.O_RDWR)


def word_of(handle: int) -> bytes:
    """The last word written into a lock that is held."""
    return os.pread(handle, WORD, 0)


def word_in(folder: Path) -> bytes:
    """The last word written into the lock of a folder, whoever holds it."""
    try:
        return (folder / LOCK).read_bytes()[:WORD]
    except FileNotFoundError:
        return b""


def hint_of(handle: int) -> str | None:
    """The hint of who held the lock last, before a new word is written into it."""
    return _hint_from(os.pread(handle, LONGEST, 0))


def hint_in(folder: Path) -> str | None:
    """The hint in the lock of a folder, if nobody holds it."""
    try:
        return _hint_from((folder / LOCK).read_bytes())
    except FileNotFoundError:
        return None


def leave_hint(handle: int, word: bytes, hint: str) -> None:
    """Leave a hint behind the word of a lock that is held."""
    os.pwrite(handle, b"\n%b %b\n" % (word, hint.encode()), WORD)


def _hint_from(data: bytes) -> str | None:
    word, lines = data[:WORD], data[WORD:].split(b"\n")
    if len(lines) < 3 or not lines[1].startswith(word + b" "):
        return None
    return lines[1][WORD + 1 :].decode(errors="replace")  # what is no text is no name of a file either


def write_word(handle: int) -> bytes:
    """Write a new word into a lock that is held. Empty if the disk is full: then nobody finds his own there."""
    word = secrets.token_hex(WORD // 2).encode()  # drawn afresh, so that a forked child has no word of its parent
    try:
        os.pwrite(handle, word, 0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        os.ftruncate(handle, 0)  # whoever makes room by removing a run must not be stopped by this
        return b""
    return word


def _unlock(handle: int) -> None:
    import fcntl  # only POSIX has it: the store refuses to be opened elsewhere

    fcntl.flock(handle, fcntl.LOCK_UN)


def _wait_for_lock(handle: int, path: Path) -> None:
    import fcntl

    until = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise StoreUnavailable(f"another process has kept {path} locked for {PATIENCE:.0f} s") from error
        time.sleep(0.002)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False
