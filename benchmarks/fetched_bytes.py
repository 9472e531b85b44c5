"""Run the command line, and report how many bytes of text it fetched from SQLite: `fetched_bytes.py FILE ARGUMENTS`."""

import sqlite3
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any


class Cursor(sqlite3.Cursor):
    """Counts what is fetched, in all cursors together."""

    fetched = 0

    def __next__(self) -> Any:
        return self._count([super().__next__()])[0]

    def fetchone(self) -> Any:
        row = super().fetchone()
        return row if row is None else self._count([row])[0]

    def fetchmany(self, size: int | None = 1) -> list[Any]:
        return self._count(super().fetchmany(size))

    def fetchall(self) -> list[Any]:
        return self._count(super().fetchall())

    def _count(self, rows: list[Any]) -> list[Any]:
        Cursor.fetched += sum(len(value) for row in rows for value in row if isinstance(value, str | bytes))
        return rows


class Connection(sqlite3.Connection):
    def cursor(self, factory: Any = Cursor) -> Any:
        return super().cursor(factory)

    def execute(self, *statement: Any) -> Any:
        return self.cursor().execute(*statement)

    def executemany(self, sql: str, rows: Iterable[Any]) -> Any:
        return self.cursor().executemany(sql, rows)


def count_from_now_on() -> None:
    """Count what is fetched over connections that are opened after this."""
    sqlite3.connect = partial(sqlite3.connect, factory=Connection)


def main() -> None:
    count_from_now_on()
    report = sys.argv.pop(1)
    from stepwell.cli.main import main as run_command

    try:
        run_command()
    finally:
        Path(report).write_text(str(Cursor.fetched))


if __name__ == "__main__":
    main()
