"""stdout and stderr as this program needs them, wherever it was started."""

from __future__ import annotations

import io
import os
import sys


def make_writable() -> None:
    """Whatever is said can be written: an answer must not be lost, nor a run be left, because of who listens.

    A stream that was closed before we began leads nowhere. A character that the encoding of a stream does not have is
    written out, as `\\u2192`.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - it is open until the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
