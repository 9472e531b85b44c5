"""A store in a schema of a PostgreSQL database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.stores.keys import load_seal
from stepwell.cli.stores.locations import Format, StoreLocation, missing_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.error_ids import ErrorId
from stepwell.stores.postgres import tables
from stepwell.stores.postgres.storage import PostgresCheckpointStorage

PATIENCE = 5.0  # seconds to wait for the server while a person waits for the answer
LONG_PATIENCE = 30.0  # seconds while a run is being driven: a restart of the server should not end it


@dataclass(frozen=True)
class Schema(StoreLocation):
    """A PostgreSQL schema that was named."""

    dsn: str
    name: str

    def check(self, *, make: bool) -> None:
        # First, because it raises if the address is malformed or psycopg is not installed.
        self.open_storage()
        if not self._is_there() and not make:
            hint = "to name another schema, add ?schema=NAME to the address"
            raise missing_store(f"the database has no Stepwell schema {self.name!r}", hint)

    def open_storage(self, *, patient: bool = False) -> BuiltInStorage:
        patience = LONG_PATIENCE if patient else PATIENCE
        try:
            return PostgresCheckpointStorage(self.dsn, schema=self.name, timeout=patience, seal=load_seal())
        except (ImportError, ValueError) as error:
            raise CommandFailed(ErrorId.NOT_A_STORE, str(error), code=USAGE) from None

    def read_format(self) -> Format | None:
        if not self._is_there():
            # A schema with tables but without ours belongs to another program.
            count = "SELECT count(*) FROM pg_class AS c WHERE c.relnamespace = to_regnamespace($1)"
            return None if self._query(count, "{schema}") else Format(0, tables.FORMAT)
        stored = self._query("SELECT format FROM {schema}.stepwell")
        return None if stored is None else Format(stored, tables.FORMAT)

    def count_records(self) -> int:
        return self._query("SELECT count(*) FROM {schema}.commits") or 0

    def _is_there(self) -> bool:
        return bool(self._query("SELECT to_regclass($1) IS NOT NULL", "{schema}.stepwell"))

    def _query(self, template: str, *values: str) -> Any:
        from stepwell.cli.stores.postgres_query import query_once  # lazy: psycopg may not be installed

        return query_once(self.dsn, self.name, template, values, timeout=int(PATIENCE))
