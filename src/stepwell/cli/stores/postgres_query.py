"""Query a PostgreSQL database without opening a store, which would create or upgrade it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from stepwell.cli.failures import CommandFailed
from stepwell.error_ids import ErrorId
from stepwell.stores.postgres.errors import first_line
from stepwell.stores.postgres.schema import quote_schema


def query_once(dsn: str, schema: str, template: str, values: Sequence[str], *, timeout: int) -> Any:
    """Return the first value of a query; None if there is no row.

    `{schema}` stands for the quoted schema.
    """
    name = quote_schema(schema)
    query = template.replace("{schema}", name).encode()
    parameters = [value.replace("{schema}", name) for value in values]
    try:
        with psycopg.connect(dsn, autocommit=True, connect_timeout=timeout) as db:
            # A raw cursor: a schema may contain a %, which the other cursors read as a placeholder.
            row = psycopg.RawCursor(db).execute(query, parameters).fetchone()
    except psycopg.Error as error:
        advice = "check the address, the user and the password, and that the server is running"
        raise CommandFailed(
            ErrorId.StoreUnavailable, f"the PostgreSQL server cannot be used: {first_line(error)}", advice
        ) from None
    return None if row is None else row[0]
