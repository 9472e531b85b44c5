"""The lock of a folder: it excludes other processes and threads, and shows who wrote last.

A writer that takes the lock of a run puts a new random token into it before changing anything. A
store that later finds its own token there knows that nobody has written since, and may trust what
it has cached. When a writer is done, it leaves a hint behind the token. The hint repeats the token,
so the next writer's token makes it invalid.
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
TOKEN_SIZE = 32  # characters
LONGEST = 1024  # bytes of a lock that are read


@contextmanager
def lock_folder(folder: Path, mode: int | None = None) -> Iterator[int | None]:
    """Exclude every other process and thread.

    Yields the handle of the lock, or None if the folder was moved or deleted while we waited.
    `mode` is that of a new lock; without it, all who may write in the folder may lock it.
    """
    try:
        handle = _open(folder, mode)
    except FileNotFoundError:
        yield None
        return
    try:
        _wait_for_lock(handle, folder / LOCK)
        try:
            # The lock we waited for may belong to a folder that is gone, or has moved: then locking
            # it means nothing.
            yield handle if _is_at(handle, folder / LOCK) else None
        finally:
            # Explicitly: closing would not release it while a forked child holds the handle too.
            _unlock(handle)
    finally:
        os.close(handle)


def _open(folder: Path, mode: int | None) -> int:
    with suppress(FileNotFoundError):
        return os.open(folder / LOCK, os.O_RDWR)
    try:
        return create(folder / LOCK, os.O_RDWR, files_mode_in(folder) if mode is None else mode)
    except FileExistsError:  # another process was faster
        return os.open(folder / LOCK, os.O_RDWR)


def token_of(handle: int) -> bytes:
    """Return the token in a lock that is held."""
    return os.pread(handle, TOKEN_SIZE, 0)


def token_in(folder: Path) -> bytes:
    """Return the token in the lock of a folder, held or not."""
    try:
        return (folder / LOCK).read_bytes()[:TOKEN_SIZE]
    except FileNotFoundError:
        return b""


def hint_of(handle: int) -> str | None:
    """Return the hint of the previous holder, before a new token is written into the lock."""
    return _hint_from(os.pread(handle, LONGEST, 0))


def hint_in(folder: Path) -> str | None:
    """Return the hint in the lock of a folder, if nobody holds it."""
    try:
        return _hint_from((folder / LOCK).read_bytes())
    except FileNotFoundError:
        return None


def leave_hint(handle: int, token: bytes, hint: str) -> None:
    """Write a hint behind the token of a lock that is held."""
    os.pwrite(handle, b"\n%b %b\n" % (token, hint.encode()), TOKEN_SIZE)


def _hint_from(data: bytes) -> str | None:
    token, lines = data[:TOKEN_SIZE], data[TOKEN_SIZE:].split(b"\n")
    # Without the final newline, the hint may be cut off.
    if len(lines) < 3 or not lines[1].startswith(token + b" "):
        return None
    # Undecodable bytes match no file name.
    return lines[1][TOKEN_SIZE + 1 :].decode(errors="replace")


def write_token(handle: int) -> bytes:
    """Write a new token into a lock that is held, and return it; empty if the disk is full."""
    # From the operating system: a seeded generator would give a forked child its parent's tokens.
    token = secrets.token_hex(TOKEN_SIZE // 2).encode()
    try:
        os.pwrite(handle, token, 0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        # Deleting a run must work on a full disk. An empty lock matches nobody's token, so all
        # caches are distrusted.
        os.ftruncate(handle, 0)
        return b""
    return token


def _unlock(handle: int) -> None:
    # Imported here because only POSIX has it; elsewhere the store refuses to be opened, but this
    # module must be importable.
    import fcntl  # lazy: there is none on Windows

    fcntl.flock(handle, fcntl.LOCK_UN)


def _wait_for_lock(handle: int, path: Path) -> None:
    import fcntl  # lazy: there is none on Windows

    # Polling, because a blocking flock could not be given up, and the holder may be suspended.
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise StoreUnavailable(
                    f"another process has held the lock {path} for {PATIENCE:.0f} s; try again, or stop that process"
                ) from error
        time.sleep(0.002)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False
