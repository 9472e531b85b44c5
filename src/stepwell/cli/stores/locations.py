"""The kinds of stores that an address may name: is one there, of which format is it, and how is it opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from stepwell.cli.failures import NOT_FOUND, USAGE, CommandFailed
from stepwell.cli.stores.keys import load_seal

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage

PATIENCE = 5.0  # seconds; a person waits for the answer
LONG_PATIENCE = 30.0  # of a run that is under way
FORMS = "a store is sqlite:///runs.db, postgresql://host/database, or a directory"


class Format(msgspec.Struct, frozen=True):
    """Of which format a store is, and which this Stepwell works with."""

    stored: int
    supported: int


class StoreLocation(Protocol):
    """A store that was named, and is not open yet. Nothing of this changes it, but for `upgrade`."""

    reads_older: bool  # what is of an older format is read as it is

    def check(self, *, make: bool) -> None:
        """Raises CommandFailed if it cannot be one, and if there is none, unless one is to be made."""

    def open_storage(self, *, patient: bool = False) -> BuiltInStorage:
        """It, opened at its first use. For whoever is patient, a server may be away for as long as for any program."""

    def read_format(self) -> Format | None:
        """Of which format it is, 0 if there is no store yet; None if that cannot be seen: opening it says why."""

    def count_records(self) -> int:
        """How many commits are in it, whatever its format."""

    async def upgrade(self) -> None:
        """Make it a store of our format, a new one if there is none. Raises what opening it raises."""


class SQLiteFile(msgspec.Struct, frozen=True):
    path: Path
    hint: str = FORMS

    reads_older = False

    def check(self, *, make: bool) -> None:
        _check_name(self.path)
        if self.path.is_dir():
            raise CommandFailed(f"{self.path} is a directory, and a SQLite store is a file", FORMS, USAGE)
        if make:
            return
        if not self.path.is_file():
            raise _missing(f"{self.path} is not there", self.hint)
        if self._query("SELECT count(*) FROM sqlite_schema") == 0:
            raise _missing(f"{self.path} is empty", self.hint)

    def open_storage(self, *, patient: bool = False) -> BuiltInStorage:
        from stepwell.stores.sqlite.store import SQLiteCheckpointStorage

        try:
            return SQLiteCheckpointStorage(self.path, seal=load_seal())
        except ValueError as error:  # `:memory:`, say
            raise CommandFailed(str(error), FORMS, USAGE) from None

    def read_format(self) -> Format | None:
        from stepwell.stores.sqlite.schema import APPLICATION, FORMAT

        if not self.path.exists() or self._query("SELECT count(*) FROM sqlite_schema") == 0:
            return Format(0, FORMAT)
        if self._query("PRAGMA application_id") != APPLICATION:
            return None
        stored = self._query("PRAGMA user_version")
        return None if stored is None else Format(stored, FORMAT)

    def count_records(self) -> int:
        return self._query("SELECT count(*) FROM commits") or 0

    async def upgrade(self) -> None:
        await _open_once(self.open_storage())

    def _query(self, query: str) -> Any:
        """The one value of an answer; None if there is none. What is wrong with the file, the store says."""
        import sqlite3

        try:
            db = sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True)
        except sqlite3.Error:
            return None
        try:
            return db.execute(query).fetchone()[0]
        except sqlite3.Error:
            return None
        finally:
            db.close()


class Directory(msgspec.Struct, frozen=True):
    path: Path

    reads_older = True

    def check(self, *, make: bool) -> None:
        from stepwell.stores.files.layout import MARK

        path = self.path
        _check_name(path)
        if path.is_file():
            hint = f"a SQLite file is sqlite:///{path}"
            raise CommandFailed(f"{path} is a file, not a directory of runs", hint, USAGE)
        if make:
            self._check_room()
            return
        if not path.is_dir():
            raise _missing(f"{path} is not there", FORMS)
        if not (path / MARK).is_file():
            raise _missing(f"{path} is a directory without runs", FORMS)

    def _check_room(self) -> None:
        """Nothing is made among the files of others."""
        from stepwell.stores.files.layout import MARK

        if self.path.is_dir() and not (self.path / MARK).is_file() and any(self.path.iterdir()):
            problem = f"{self.path} is a directory with something else in it"
            raise CommandFailed(problem, "name one that is empty, or not there yet", USAGE)

    def open_storage(self, *, patient: bool = False) -> BuiltInStorage:
        from stepwell.stores.files.store import FileCheckpointStorage

        return FileCheckpointStorage(self.path, seal=load_seal())

    def read_format(self) -> Format | None:
        from stepwell.errors import DurabilityError
        from stepwell.stores.files.layout import FORMAT, MARK, MARKS, read

        if not (self.path / MARK).exists():
            return Format(0, FORMAT)
        try:
            return Format(read(self.path / MARK, MARKS).format, FORMAT)
        except (DurabilityError, OSError):
            return None

    def count_records(self) -> int:
        from stepwell.stores.files.layout import RECORD_NAME

        return sum(1 for path in self.path.glob("*/*/*.json") if RECORD_NAME.fullmatch(path.name))

    async def upgrade(self) -> None:
        from stepwell.storage.lease import this_process

        async with self.open_storage() as storage:
            await storage._store.runs(limit=1)
            # the first write marks the directory; a claim that is let go leaves nothing else
            migrating = this_process("migrate")
            await storage._store.acquire("migrate", migrating, seconds=60)
            await storage._store.release("migrate", migrating)


class Schema(msgspec.Struct, frozen=True):
    dsn: str
    name: str

    reads_older = False

    def check(self, *, make: bool) -> None:
        self.open_storage()  # says so if that cannot be an address, or if there is no driver
        if not self._is_there() and not make:
            hint = "another schema is named with ?schema=NAME at the end of the address"
            raise _missing(f"the database has no schema {self.name!r} of Stepwell", hint)

    def open_storage(self, *, patient: bool = False) -> BuiltInStorage:
        from stepwell.stores.postgres.storage import PostgresCheckpointStorage

        patience = LONG_PATIENCE if patient else PATIENCE
        try:
            return PostgresCheckpointStorage(self.dsn, schema=self.name, patience=patience, seal=load_seal())
        except (ImportError, ValueError) as error:
            raise CommandFailed(str(error), code=USAGE) from None

    def read_format(self) -> Format | None:
        from stepwell.stores.postgres.tables import FORMAT

        if not self._is_there():
            tables = "SELECT count(*) FROM pg_class AS c WHERE c.relnamespace = to_regnamespace($1)"
            return None if self._query(tables, ["{schema}"]) else Format(0, FORMAT)
        stored = self._query("SELECT format FROM {schema}.stepwell")
        return None if stored is None else Format(stored, FORMAT)

    def count_records(self) -> int:
        return self._query("SELECT count(*) FROM {schema}.commits") or 0

    async def upgrade(self) -> None:
        await _open_once(self.open_storage())

    def _is_there(self) -> bool:
        return bool(self._query("SELECT to_regclass($1) IS NOT NULL", ["{schema}.stepwell"]))

    def _query(self, template: str, values: list[str] | None = None) -> Any:
        import psycopg

        from stepwell.stores.postgres.errors import first_line
        from stepwell.stores.postgres.schema import quote_schema

        name = quote_schema(self.name)
        query = template.replace("{schema}", name).encode()
        parameters = [value.replace("{schema}", name) for value in values or ()]
        try:
            with psycopg.connect(self.dsn, autocommit=True, connect_timeout=int(PATIENCE)) as db:
                row = psycopg.RawCursor(db).execute(query, parameters).fetchone()
        except psycopg.Error as error:
            advice = "check the address, the user and the password, and whether the server runs"
            raise CommandFailed(f"the PostgreSQL server cannot be used: {first_line(error)}", advice) from None
        return None if row is None else row[0]


async def _open_once(storage: BuiltInStorage) -> None:
    """Open a store, which brings it up to date."""
    async with storage:
        await storage._store.runs(limit=1)


def _check_name(path: Path) -> None:
    if "\0" in str(path):
        raise CommandFailed(f"{str(path)!r} cannot be the name of a file: it holds a NUL", FORMS, USAGE)


def _missing(what: str, hint: str) -> CommandFailed:
    return CommandFailed(f"there is no store: {what}", hint, NOT_FOUND)
