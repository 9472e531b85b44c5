"""Tables on a terminal, drawn by rich."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_COLOURS = {"failed": "red", "waiting": "yellow", "asking": "yellow", "running": "cyan", "cancelled": "magenta"}
_ANY_WIDTH = 1_000_000


def draw_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether it was drawn: it is not if ids that people copy would be broken into pieces."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in zip(columns, *rows, strict=True):
        table.add_column(column[0], overflow="fold", no_wrap=" " not in max(column, key=len))
    for row in rows:
        table.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in row))
    console = Console(file=sys.stdout, highlight=False)
    if console.measure(table, options=console.options.update(width=_ANY_WIDTH)).minimum > console.width:
        return False
    console.print(table)
    return True
