"""A store in a SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.stores.keys import load_seal
from stepwell.cli.stores.locations import FORMS, Format, StoreLocation, check_name, missing_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.error_ids import ErrorId
from stepwell.stores.sqlite import schema
from stepwell.stores.sqlite.store import SQLiteCheckpointStorage


@dataclass(frozen=True)
class SQLiteFile(StoreLocation):
    """A SQLite file that was named; `hint` helps if it does not exist."""

    path: Path
    hint: str = FORMS

    needs_loop = False

    def check(self, *, make: bool) -> None:
        check_name(self.path)
        if self.path.is_dir():
            raise CommandFailed(
                ErrorId.NOT_A_STORE, f"{self.path} is a directory, and a SQLite store is a file", FORMS, USAGE
            )
        if make:
            return
        if not self.path.is_file():
            raise missing_store(f"{self.path} does not exist", self.hint)
        if self._is_empty():
            raise missing_store(f"{self.path} is empty", self.hint)

    def open_storage(self, *, patient: bool = False) -> BuiltInStorage:
        try:
            return SQLiteCheckpointStorage(self.path, seal=load_seal())
        except ValueError as error:  # a name that SQLite treats specially, such as `:memory:`
            raise CommandFailed(ErrorId.NOT_A_STORE, str(error), FORMS, USAGE) from None

    def read_format(self) -> Format | None:
        if not self.path.exists() or self._is_empty():
            return Format(0, schema.FORMAT)
        # Somebody else's database: opening it raises the error that explains this.
        if self._query("PRAGMA application_id") != schema.APPLICATION:
            return None
        stored = self._query("PRAGMA user_version")
        return None if stored is None else Format(stored, schema.FORMAT)

    def count_records(self) -> int:
        return self._query("SELECT count(*) FROM commits") or 0

    def _is_empty(self) -> bool:
        return bool(self._query("SELECT count(*) FROM sqlite_schema") == 0)

    def _query(self, query: str) -> Any:
        """Return the single value of a query; None on any error, which opening explains."""
        # Read-only, because our own storage would upgrade the file or create it.
        address = f"{self.path.resolve().as_uri()}?mode=ro"
        with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True)) as db:
            return db.execute(query).fetchone()[0]
        return None
