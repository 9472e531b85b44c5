"""One query of a PostgreSQL database, outside any store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from stepwell.cli.failures import CommandFailed
from stepwell.stores.postgres.errors import first_line
from stepwell.stores.postgres.schema import quote_schema


def query_once(dsn: str, schema: str, template: str, values: Sequence[str], timeout: int) -> Any:
    """The one value of an answer; None if there is no row. `{schema}` stands for the schema, quoted."""
    name = quote_schema(schema)
    query = template.replace("{schema}", name).encode()
    parameters = [value.replace("{schema}", name) for value in values]
    try:
        with psycopg.connect(dsn, autocommit=True, connect_timeout=timeout) as db:
            row = psycopg.RawCursor(db).execute(query, parameters).fetchone()
    except psycopg.Error as error:
        advice = "check the address, the user and the password, and whether the server runs"
        raise CommandFailed(f"the PostgreSQL server cannot be used: {first_line(error)}", advice) from None
    return None if row is None else row[0]
