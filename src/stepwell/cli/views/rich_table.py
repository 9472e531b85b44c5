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


def draw_table(columns: Sequence[str], rows: Sequence[Sequence[str]], optional: Sequence[str] = ()) -> bool:
    """Draw the table and return True; return False if the terminal is too narrow for it.

    Columns of `optional` are left out, the first ones first, while the rows do not fit on lines of their own.
    """
    console = Console(file=sys.stdout, highlight=False)
    wide_enough = console.options.update(width=_ANY_WIDTH)
    table = _make_table(columns, rows, without=())
    for count in range(1, len(optional) + 1):
        if console.measure(table, options=wide_enough).maximum <= console.width:
            break
        table = _make_table(columns, rows, without=optional[:count])
    # Ids are there to be copied, so a cell without spaces is never broken: rather no table.
    if console.measure(table, options=wide_enough).minimum > console.width:
        return False
    console.print(table)
    return True


def _make_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, without: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    shown = [n for n, name in enumerate(columns) if name not in without]
    for n in shown:
        longest = max((row[n] for row in (columns, *rows)), key=len)
        table.add_column(columns[n], overflow="fold", no_wrap=" " not in longest)
    for row in rows:
        # Only there: somebody may call a run or a workflow "failed".
        looks = [_COLOURS.get(row[n], "") if columns[n] == "status" else "" for n in shown]
        table.add_row(*map(Text, (row[n] for n in shown), looks))
    return table
