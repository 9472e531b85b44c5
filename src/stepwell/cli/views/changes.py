"""Format the difference between two checkpoints, as lines and as JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.views.text import printable

if TYPE_CHECKING:
    from stepwell.admin.diffs.checkpoints import Difference
    from stepwell.model.event import CheckpointInfo

_COLOURS = {"+": "green", "-": "red", "~": "yellow"}


def format_difference(difference: Difference, *, full: bool = False) -> Iterator[str]:
    """Yield a line with the two checkpoints, then a line per change; coloured on a terminal."""
    first, *changes = difference.lines(full=full)
    yield printable(first)
    # https://no-color.org: any value that is not empty turns colours off.
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for line in changes:
        yield click.style(printable(line), fg=_COLOURS.get(line[0])) if coloured else printable(line)


def difference_to_dict(difference: Difference) -> dict[str, Any]:
    """Return the difference as JSON. Paths are JSON Pointers."""
    return {
        "one": _where(difference.before),
        "other": _where(difference.after),
        "changes": [
            {"path": change.pointer, "kind": change.kind, "before": change.before, "after": change.after}
            for change in difference.changes
        ],
    }


def _where(at: CheckpointInfo) -> dict[str, Any]:
    return {"run_id": at.run_id, "number": at.number, "checkpoint_id": at.checkpoint_id or None}
