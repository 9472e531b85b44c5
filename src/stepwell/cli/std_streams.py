"""Make stdout and stderr safe to write to, wherever the program was started."""

from __future__ import annotations

import io
import os
import sys


def make_writable() -> None:
    """Make sure that every string can be printed: a locale or a closed stream must not end a run.

    A stream that was closed before the program started is replaced by /dev/null. A character that
    the encoding of a stream lacks is written as an escape, such as `\\u2192`.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # Python found the file descriptor closed
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open until the process exits
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
