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


_reserved: list[TextIO] = []  # stdout as it was before code of others got another


@contextmanager
def reserve_stdout() -> Iterator[None]:
    """While code of others runs, stdout is ours alone: what that code prints goes to stderr."""
    _reserved.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _reserved.pop()


def _write(data: str | bytes) -> None:
    click.echo(data, file=_reserved[-1] if _reserved else None)


def print_document(**data: Any) -> None:
    """One JSON document."""
    print_json({"schema": SCHEMA, **data})


def print_json_line(**data: Any) -> None:
    """One of a stream of JSON documents."""
    _write(visible_json(msgspec.json.encode({"schema": SCHEMA, **data}).decode()).encode())


def print_json(value: Any) -> None:
    """A value as JSON, in lines."""
    _write(visible_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()).encode())


def print_lines(rows: Iterable[str]) -> None:
    for row in rows:
        _write(row)


def print_value(output: Any) -> None:
    """What a run came to: a text as it is, but for what a terminal would obey; anything else as a line of JSON."""
    if isinstance(output, str):
        print_lines("\t".join(map(printable, line.split("\t"))) for line in output.split("\n"))
    else:
        print_lines([leaf(output, full=True)])


def print_note(text: str) -> None:
    """Something beside the data."""
    click.echo(without_secrets(printable(text)), err=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows under the names of their columns. On a terminal nothing that was stored is obeyed or cut."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if not (sys.stdout.isatty() and _draw(columns, cells)):
        print_lines(_align([[column.upper() for column in columns], *cells]))


def _align(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _draw(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether it was drawn."""
    try:
        from stepwell.cli.views.rich_table import draw_table  # lazy: rich takes 40 ms, and may not be installed
    except ModuleNotFoundError:
        return False
    return draw_table(columns, rows)
