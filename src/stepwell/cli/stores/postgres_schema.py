"""A store in a schema of a PostgreSQL database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.stores.keys import load_seal
from stepwell.cli.stores.locations import Format, missing_store, open_once
from stepwell.stores.postgres import tables
from stepwell.stores.postgres.storage import PostgresCheckpointStorage

if TYPE_CHECKING:
    from stepwell.storage.built_in_storage import BuiltInStorage

PATIENCE = 5.0  # seconds; a person waits for the answer
LONG_PATIENCE = 30.0  # of a run that is under way


class Schema(msgspec.Struct, frozen=True):
    dsn: str
    name: str

    reads_older = False
    needs_loop = True

    def check(self, *, make: bool) -> None:
        self.open_storage()  # says so if that cannot be an address, or if there is no driver
        if not self._is_there() and not make:
            hint = "another schema is named with ?schema=NAME at the end of the address"
            raise missing_store(f"the database has no schema {self.name!r} of Stepwell", hint)

    def open_storage(self, *, patient: bool = False) -> BuiltInStorage:
        patience = LONG_PATIENCE if patient else PATIENCE
        try:
            return PostgresCheckpointStorage(self.dsn, schema=self.name, patience=patience, seal=load_seal())
        except (ImportError, ValueError) as error:
            raise CommandFailed(str(error), code=USAGE) from None

    def read_format(self) -> Format | None:
        if not self._is_there():
            count = "SELECT count(*) FROM pg_class AS c WHERE c.relnamespace = to_regnamespace($1)"
            return None if self._query(count, ["{schema}"]) else Format(0, tables.FORMAT)
        stored = self._query("SELECT format FROM {schema}.stepwell")
        return None if stored is None else Format(stored, tables.FORMAT)

    def count_records(self) -> int:
        return self._query("SELECT count(*) FROM {schema}.commits") or 0

    async def upgrade(self) -> None:
        await open_once(self.open_storage())

    def _is_there(self) -> bool:
        return bool(self._query("SELECT to_regclass($1) IS NOT NULL", ["{schema}.stepwell"]))

    def _query(self, template: str, values: list[str] | None = None) -> Any:
        from stepwell.cli.stores.postgres_query import query_once  # lazy: psycopg may not be installed

        return query_once(self.dsn, self.name, template, values or (), int(PATIENCE))
