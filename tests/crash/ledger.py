"""A book outside of Stepwell: what really happened, line by line, in the order in which it was written down.

Any number of processes write at its end. What the kernel has taken survives the death of the process.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

_numbers = count(1)


def nonce() -> str:
    """A word that nobody has used before."""
    return f"{os.getpid()}.{next(_numbers)}"


@dataclass(frozen=True, slots=True)
class Line:
    what: str
    by: int  # the process
    at: float  # seconds, on the one monotonic clock of the machine
    run: str
    more: dict[str, Any]

    def __str__(self) -> str:
        told = ", ".join(f"{name} {value}" for name, value in self.more.items())
        return f"[{self.at:.4f}] process {self.by}: {self.what} {self.run} ({told})"


class Ledger:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._end = 0
        self._rest = b""

    def write(self, what: str, run: str = "", **more: Any) -> None:
        """One write. It begins with an end of line, so that a line that was cut off spoils no other."""
        line = json.dumps([what, os.getpid(), time.monotonic(), run, more])
        book = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(book, f"\n{line}\n".encode())
        finally:
            os.close(book)

    def news(self) -> list[Line]:
        """What was written down since the last look."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as book:
            book.seek(self._end)
            found = book.read()
        self._end += len(found)
        *whole, self._rest = (self._rest + found).split(b"\n")
        return [line for line in map(_read, whole) if line is not None]


def _read(text: bytes) -> Line | None:
    """None for a line that was cut off: whoever wrote it died before it did what it was about to tell."""
    try:
        return Line(*json.loads(text))
    except (ValueError, TypeError):
        return None
