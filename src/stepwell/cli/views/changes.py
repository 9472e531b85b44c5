"""Differences of checkpoints, for a person and for a program."""

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
    """A line for which two there are, and one for each change; in colours on a terminal that wants them."""
    first, *changes = difference.lines(full=full)
    yield printable(first)
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for line in changes:
        yield click.style(printable(line), fg=_COLOURS.get(line[0])) if coloured else printable(line)


def difference_to_dict(difference: Difference) -> dict[str, Any]:
    """The same as data. Paths are JSON Pointers."""
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
