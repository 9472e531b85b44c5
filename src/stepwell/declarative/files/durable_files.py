"""Durable files: atomic writes, locked appends, and safe file names for arbitrary text."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepwell.storage.permissions import OWNER_ONLY, creating, folder_mode, make_folders, mode_of
from stepwell.storage.posix import sync_folder

# Lower case only, because some file systems ignore case. No dot: only derived names have one, so a
# plain name can never equal a derived one.
_PLAIN = re.compile(r"[a-z0-9_-]{1,80}")


def safe_name(text: str) -> str:
    """Return a file name for any string. Different strings have different names."""
    if _PLAIN.fullmatch(text):
        return text
    readable = re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-")[:40]
    return f"{readable or 'x'}.{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def write_whole(path: Path, data: bytes) -> None:
    """Replace the content of a file atomically and durably.

    After a crash the file has either its old content or all of the new.
    """
    make_folders(path.parent, folder_mode(OWNER_ONLY))
    # Named after process and thread, so that two writers never share a draft. Flushed before it is
    # renamed: otherwise the new name could survive a power failure without its content.
    draft = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    with open(draft, "wb", opener=creating(mode_of(path))) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    sync_folder(path.parent)


def write_at(handle: int, data: bytes, at: int) -> None:
    """Write all of `data` durably, starting at offset `at`."""
    remaining = memoryview(data)
    while remaining:
        written = os.pwrite(handle, remaining, at)
        remaining, at = remaining[written:], at + written
    os.fsync(handle)


@contextmanager
def lock_file(path: Path) -> Iterator[int]:
    """Open a file for reading and writing, under a lock against other processes and threads."""
    # Imported here because only POSIX has it, and importing this module must work everywhere.
    # Stores that lock call `require_posix` first.
    import fcntl  # lazy: there is none on Windows

    make_folders(path.parent, folder_mode(OWNER_ONLY))
    is_new = not path.exists()
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # Make the name of a new file durable, or a power failure could take the file with it.
        if is_new:
            sync_folder(path.parent)
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield handle
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)
