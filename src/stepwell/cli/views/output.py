"""Print data to stdout, as tables, lines or JSON, and notes to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TextIO

import click
import msgspec

from stepwell.cli.secrets import without_secrets
from stepwell.model.visible_text import visible, visible_json

# The version of the JSON documents: raised when a field is removed or changes its meaning.
# 2: statuses are the words that people read, such as `completed`.
# 3: values are data, without the tags of their stored form.
SCHEMA = 3

# The real stdout while the user's code runs with another one. Global, because `sys.stdout` is.
_reserved: list[TextIO] = []


@contextmanager
def reserve_stdout() -> Iterator[None]:
    """Keep stdout for our own data while the user's code runs, and give it stderr instead."""
    _reserved.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _reserved.pop()


def _write(data: str | bytes) -> None:
    click.echo(data, file=_reserved[-1] if _reserved else None)


def print_document(**data: Any) -> None:
    """Print a JSON document."""
    print_json({"schema": SCHEMA, **data})


def print_json_line(**data: Any) -> None:
    """Print one line of JSON Lines."""
    _write(visible_json(msgspec.json.encode({"schema": SCHEMA, **data}).decode()).encode())


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    _write(visible_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()).encode())


def print_lines(rows: Iterable[str]) -> None:
    for row in rows:
        _write(row)


def print_note(text: str) -> None:
    """Print a note for people, without secrets."""
    # Notes quote errors and addresses, which data does not.
    click.echo(without_secrets(visible(text)), err=True)


def note_shortened_values() -> None:
    print_note("long values are shortened; --full shows them")


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, optional: Sequence[str] = (), elastic: str | None = None
) -> None:
    """Print rows under the names of their columns; on a terminal that is too narrow, one line per cell.

    A terminal leaves out columns of `optional` that are empty and, while it is too narrow, the
    others, the first ones first. It cuts the cells of the column `elastic` to the room there is.
    Control characters in cells are escaped, and nothing else is cut.
    """
    # Stored strings may hold escape sequences, which a terminal would obey.
    cells = [[visible(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        with suppress(ModuleNotFoundError):
            from stepwell.cli.views.rich_table import draw_table  # lazy: rich takes 15 ms and may be missing

            if not draw_table(columns, cells, optional, elastic):
                print_lines(_list_records(columns, cells))
            return
    print_lines(_align([[column.upper() for column in columns], *cells]))


def _list_records(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Yield each row as its first cell, and below it the names and values of the others that say something."""
    width = max(map(len, columns))
    for row in rows:
        (_, title), *fields = zip(columns, row, strict=True)
        yield title
        yield from (f"  {name.ljust(width)}  {cell}" for name, cell in fields if cell not in ("", "-"))


def _align(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
