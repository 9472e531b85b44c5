"""Tracebacks as people read them: with their own frames, and without those of this package. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

# By the folders in the package: somebody's project may lie in a folder called stepwell, and the
# traceback may come from another machine.
_OURS = re.compile(r'  File ".*[/\\]stepwell[/\\](?:agents|compat|declarative|engine|functional|graph|workflows)[/\\]')


def shorten_traceback(traceback: str, *, most: int) -> tuple[list[str], int]:
    """Return the lines that people look for, at most so many from the end, and how many are left out.

    The end of a traceback is the line that raised. If every frame is ours, all are kept.
    """
    lines = traceback.rstrip().splitlines()
    theirs = list(_without_own_frames(lines))
    shown = (theirs if any(line.startswith('  File "') for line in theirs) else lines)[-most:]
    return shown, len(lines) - len(shown)


def _without_own_frames(lines: list[str]) -> Iterator[str]:
    is_own = False
    for line in lines:
        if line.startswith('  File "'):
            is_own = _OURS.match(line) is not None
        elif not line.startswith("    "):
            is_own = False
        if not is_own:
            yield line
