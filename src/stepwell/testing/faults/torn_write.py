"""Torn writes: files that end too early."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def torn(path: str | os.PathLike[str], *, start: int = 0, every: int = 1) -> Iterator[int]:
    """Truncate a file to every size from `start` on, or to one in `every`; restore it afterwards.

    Inside `for size in torn(path):` the file has only its first `size` bytes, at least one too few.
    """
    file = Path(path)
    content, times = file.read_bytes(), file.stat()
    try:
        for size in range(start, len(content), every):
            file.write_bytes(content[:size])
            yield size
    finally:
        file.write_bytes(content)
        # A reader may compare times to notice a change, and in the end nothing has changed.
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
