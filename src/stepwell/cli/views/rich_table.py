"""Draw a table on a terminal with rich."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_COLOURS = {"failed": "red", "stalled": "red", "waiting": "yellow", "running": "cyan", "cancelled": "magenta"}
_LEAST = 30  # columns of the terminal for a cell that may be cut
_ANY_WIDTH = 1_000_000  # columns: measures a table as if the terminal were wide enough


def draw_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], optional: Sequence[str] = (), elastic: str | None = None
) -> bool:
    """Draw the table and return True; return False if the terminal is too narrow for it.

    Columns of `optional` are left out if they are empty and, while the rows do not fit on lines of
    their own, the first ones first. Cells of `elastic` are cut to the room that the others leave.
    """
    console = Console(file=sys.stdout, highlight=False)
    wide_enough = console.options.update(width=_ANY_WIDTH)
    empty = [name for n, name in enumerate(columns) if all(row[n] in ("", "-") for row in rows)]
    without = [name for name in optional if name in empty]
    others = [name for name in optional if name not in empty]
    for count in range(len(others) + 1):
        left_out = [*without, *others[:count]]
        least = _make_table(columns, _cut(rows, columns, elastic, _LEAST), without=left_out)
        room = console.width - console.measure(least, options=wide_enough).maximum
        if room >= 0:
            console.print(_make_table(columns, _cut(rows, columns, elastic, _LEAST + room), without=left_out))
            return True
    # Ids are there to be copied, so a cell without spaces is never broken: rather no table.
    table = _make_table(columns, rows, without=optional)
    if elastic is not None or console.measure(table, options=wide_enough).minimum > console.width:
        return False
    console.print(table)
    return True


def _cut(rows: Sequence[Sequence[str]], columns: Sequence[str], elastic: str | None, room: int) -> list[Sequence[str]]:
    """Return the rows with the cells of the elastic column cut to so many columns of the terminal."""
    if elastic is None:
        return [*rows]
    at = columns.index(elastic)
    cut: list[Sequence[str]] = []
    for row in rows:
        cell = Text(row[at])
        cell.truncate(room, overflow="ellipsis")
        cut.append([*row[:at], cell.plain, *row[at + 1 :]])
    return cut


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
