"""Data on stdout: a table for a terminal, aligned lines for a pipe, JSON for a program. Notes on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

import click
import msgspec

from stepwell.cli.secrets import without_secrets
from stepwell.cli.views.text import leaf, printable
from stepwell.model.visible_text import visible_json

SCHEMA = 1  # of the JSON documents: it changes when a field goes or means something else
_COLOURS = {"failed": "red", "waiting": "yellow", "asking": "yellow", "running": "cyan", "cancelled": "magenta"}
_ANY_WIDTH = 1_000_000


_ours: list[TextIO] = []  # stdout as it was before code of others got another


@contextmanager
def kept_for_data() -> Iterator[None]:
    """While code of others runs, stdout is ours alone: what that code prints goes to stderr."""
    _ours.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _ours.pop()


def _say(data: str | bytes) -> None:
    click.echo(data, file=_ours[-1] if _ours else None)


def document(**data: Any) -> None:
    """One JSON document."""
    json_value({"schema": SCHEMA, **data})


def json_line(**data: Any) -> None:
    """One of a stream of JSON documents."""
    _say(visible_json(msgspec.json.encode({"schema": SCHEMA, **data}).decode()).encode())


def json_value(value: Any) -> None:
    """A value as JSON, in lines."""
    _say(visible_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()).encode())


def lines(rows: Iterable[str]) -> None:
    for row in rows:
        _say(row)


def value(given: Any) -> None:
    """What a run came to: a text as it is, but for what a terminal would obey; anything else as a line of JSON."""
    if isinstance(given, str):
        lines("\t".join(map(printable, line.split("\t"))) for line in given.split("\n"))
    else:
        lines([leaf(given, full=True)])


def note(text: str) -> None:
    """Something beside the data."""
    click.echo(without_secrets(printable(text)), err=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows under the names of their columns. On a terminal nothing that was stored is obeyed or cut."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if not (sys.stdout.isatty() and _drawn(columns, cells)):
        lines(_aligned([[column.upper() for column in columns], *cells]))


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _drawn(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether it can be drawn: rich may not be here, and ids that people copy must not be broken into pieces."""
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ModuleNotFoundError:
        return False
    drawn = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in zip(columns, *rows, strict=True):
        drawn.add_column(column[0], overflow="fold", no_wrap=" " not in max(column, key=len))
    for row in rows:
        drawn.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in row))
    console = Console(file=sys.stdout, highlight=False)
    if console.measure(drawn, options=console.options.update(width=_ANY_WIDTH)).minimum > console.width:
        return False
    console.print(drawn)
    return True
