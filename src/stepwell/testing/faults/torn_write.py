"""A write that was torn: a file that ends too early."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def torn(path: str | os.PathLike[str], *, start: int = 0, every: int = 1) -> Iterator[int]:
    """Cut a file at each of its bytes from `start` on, or at one in so many; whole again afterwards.

    `for size in torn(path):` - inside the loop the file has only its first `size` bytes, at most all but one.
    """
    file = Path(path)
    whole, times = file.read_bytes(), file.stat()
    try:
        for size in range(start, len(whole), every):
            file.write_bytes(whole[:size])
            yield size
    finally:
        file.write_bytes(whole)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
