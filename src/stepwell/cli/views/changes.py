"""Print the difference between two checkpoints, for people or as JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import click

import stepwell
from stepwell import admin
from stepwell.cli.views.output import print_document, print_lines
from stepwell.cli.views.text import printable

_COLOURS = {"+": "green", "-": "red", "~": "yellow"}


def print_difference(difference: admin.Difference, *, json: bool, full: bool = False) -> None:
    """Print the two checkpoints, then a line per change; or all as JSON, with JSON Pointers as paths."""
    if not json:
        print_lines(_format_lines(difference.lines(full=full)))
        return
    changes = [
        {"path": change.pointer, "kind": change.kind, "before": change.before, "after": change.after}
        for change in difference.changes
    ]
    print_document(one=_where(difference.before), other=_where(difference.after), changes=changes)


def _format_lines(lines: list[str]) -> Iterator[str]:
    """Yield the lines, those of changes coloured on a terminal."""
    yield printable(lines[0])
    # https://no-color.org: any value that is not empty turns colours off.
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for line in lines[1:]:
        yield click.style(printable(line), fg=_COLOURS.get(line[0])) if coloured else printable(line)


def _where(at: stepwell.CheckpointInfo) -> dict[str, Any]:
    return {"run_id": at.run_id, "number": at.number, "checkpoint_id": at.checkpoint_id or None}
