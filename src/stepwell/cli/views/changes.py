"""Print the difference between two checkpoints, for people or as JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from stepwell import admin
from stepwell.cli.views.output import print_document, print_lines
from stepwell.model.visible_text import visible

_COLOURS = {"+": "green", "-": "red", "~": "yellow"}


def describe_difference(difference: admin.Difference, *, full: bool = False) -> dict[str, Any]:
    """Return a difference as a server does: values as they are stored, and lines for people."""
    before, after, lines = difference.before, difference.after, difference.lines(full=full)
    changes = [
        {"path": change.pointer, "kind": change.kind, "before": change.before, "after": change.after}
        for change in difference.changes
    ]
    return {
        "before_run": before.run_id,
        "before_number": before.number,
        "before_id": before.checkpoint_id,
        "after_run": after.run_id,
        "after_number": after.number,
        "after_id": after.checkpoint_id or None,
        "changes": changes,
        "patch": difference.patch(),
        "lines": lines,
        "is_shortened": lines != difference.lines(full=True),
    }


def print_difference(difference: Mapping[str, Any], *, json: bool) -> None:
    """Print the two checkpoints, then a line per change; or all as JSON, with JSON Pointers as paths."""
    if not json:
        print_lines(_format_lines(difference["lines"]))
        return
    fields = ("path", "kind", "before", "after")
    changes = [{name: change[name] for name in fields} for change in difference["changes"]]
    print_document(one=_where(difference, "before"), other=_where(difference, "after"), changes=changes)


def _format_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines, those of changes coloured on a terminal."""
    yield visible(lines[0])
    # https://no-color.org: any value that is not empty turns colours off.
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for line in lines[1:]:
        yield click.style(visible(line), fg=_COLOURS.get(line[0])) if coloured else visible(line)


def _where(difference: Mapping[str, Any], side: str) -> dict[str, Any]:
    names = {"run_id": "run", "number": "number", "checkpoint_id": "id"}
    return {name: difference[f"{side}_{part}"] for name, part in names.items()}
