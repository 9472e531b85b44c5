"""Files that are there after a power failure, under names that any text can have."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stepwell.storage.permissions import OWNER_ONLY, creating, folder_mode, make_one_folder, mode_of
from stepwell.storage.system import sync_folder

_PLAIN = re.compile(r"[a-z0-9_-]{1,80}")  # without a dot, which sets those apart that are not plain


def safe_name(text: str) -> str:
    """A name for a file that stands for this text and for no other, whatever is in it."""
    if _PLAIN.fullmatch(text):
        return text
    readable = re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-")[:40]
    return f"{readable or 'x'}.{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, to stay."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with suppress(FileExistsError):
        make_one_folder(folder, folder_mode(OWNER_ONLY))
    sync_folder(folder.parent)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file as a whole: it is there with all of this, or as it was before."""
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    with open(draft, "wb", opener=creating(mode_of(path))) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    sync_folder(path.parent)


def write_at(handle: int, data: bytes, at: int) -> None:
    """Write all of this to a file, from that place on, to stay."""
    remaining = memoryview(data)
    while remaining:
        written = os.pwrite(handle, remaining, at)
        remaining, at = remaining[written:], at + written
    os.fsync(handle)


@contextmanager
def lock_file(path: Path) -> Iterator[int]:
    """A file opened for reading and appending, with every other process and thread kept out."""
    import fcntl  # only POSIX has it: see `require_posix`

    make_folder(path.parent)
    is_new = not path.exists()
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if is_new:
            sync_folder(path.parent)
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield handle
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)
