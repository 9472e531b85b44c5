"""Durable files: folders, atomic writes, locks, and safe file names for arbitrary text."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stepwell.errors import StoreUnavailable
from stepwell.storage.permissions import OWNER_ONLY, create, creating, folder_mode, make_one_folder, mode_of
from stepwell.storage.posix import sync_folder

PATIENCE = 30.0  # seconds to wait for another process that holds a lock

# Lower case only, because some file systems ignore case. No dot: only derived names have one, so a
# plain name can never equal a derived one.
_PLAIN = re.compile(r"[a-z0-9_-]{1,80}")


def safe_name(text: str) -> str:
    """Return a file name for any string. Different strings have different names."""
    if _PLAIN.fullmatch(text):
        return text
    readable = re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-")[:40]
    return f"{readable or 'x'}.{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def make_folder(folder: Path, mode: int = OWNER_ONLY) -> None:
    """Create a folder for files of that mode, and its parents, durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    # Another process may create it at the same moment; if it is a file, the next use fails.
    with suppress(FileExistsError):
        make_one_folder(folder, folder_mode(mode))
    sync_folder(folder.parent)


def write_whole(path: Path, data: bytes, mode: int | None = None) -> None:
    """Replace the content of a file atomically and durably. Its folder is created if there is none.

    After a crash the file has either its old content or all of the new. Without `mode`, it keeps
    its permissions.
    """
    make_folder(path.parent, mode or OWNER_ONLY)
    # Named after process and thread, so that two writers never share a draft. Flushed before it is
    # renamed: otherwise the new name could survive a power failure without its content.
    draft = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    with open(draft, "wb", opener=creating(mode or mode_of(path))) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    sync_folder(path.parent)


def write_at(handle: int, data: bytes, at: int) -> int:
    """Write all of `data`, starting at offset `at`; return the offset behind it."""
    remaining = memoryview(data)
    while remaining:
        written = os.pwrite(handle, remaining, at)
        remaining, at = remaining[written:], at + written
    return at


@contextmanager
def lock_file(path: Path, *, exclusive: bool = True, mode: int | None = OWNER_ONLY) -> Iterator[int]:
    """Open a file under a lock against other processes and threads; yield its handle.

    An exclusive lock is for reading and writing, any other is shared by readers. A file that does
    not exist is created with that mode; if it is None, -1 is yielded. Raises StoreUnavailable if
    another process does not release its lock.
    """
    import fcntl  # lazy: there is none on Windows, and importing this module must work everywhere

    # Polling, because a blocking lock could not be given up, and its holder may be suspended.
    until, operation = time.monotonic() + PATIENCE, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    while (handle := _open(path, os.O_RDWR if exclusive else os.O_RDONLY, mode)) >= 0:
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(handle, operation | fcntl.LOCK_NB)
            # Meanwhile the file may have been deleted, or another one may have taken its place.
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                break
        os.close(handle)
        if time.monotonic() > until:
            raise StoreUnavailable(
                f"another process has held the lock on {path} for {PATIENCE:.0f} s; try again, or stop that process"
            )
        time.sleep(0.0005)
    try:
        yield handle
    finally:
        if handle >= 0:
            # Explicitly: closing would not release it while a forked child holds the handle too.
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)


def _open(path: Path, flags: int, mode: int | None) -> int:
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, flags | os.O_NOFOLLOW)
        if mode is None:
            return -1
        with suppress(FileExistsError):  # another process was faster
            return create(path, flags, mode)
