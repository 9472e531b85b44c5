"""Draw a table on a terminal with rich."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_COLOURS = {"failed": "red", "stalled": "red", "waiting": "yellow", "running": "cyan", "cancelled": "magenta"}
_ANY_WIDTH = 1_000_000  # columns: measures a table as if the terminal were wide enough


def draw_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Draw the table and return True; return False if the terminal is too narrow for it."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in zip(columns, *rows, strict=True):
        table.add_column(column[0], overflow="fold", no_wrap=" " not in max(column, key=len))
    for row in rows:
        # Only there: somebody may call a run or a workflow "failed".
        looks = [_COLOURS.get(cell, "") if name == "status" else "" for name, cell in zip(columns, row, strict=True)]
        table.add_row(*map(Text, row, looks))
    # Ids are there to be copied, so a cell without spaces is never broken: rather no table.
    console = Console(file=sys.stdout, highlight=False)
    if console.measure(table, options=console.options.update(width=_ANY_WIDTH)).minimum > console.width:
        return False
    console.print(table)
    return True
