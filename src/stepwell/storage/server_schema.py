"""Where a store is, if it is on a database server: what works beside it there needs to know."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class ServerSchema(Protocol):
    """What a store implements whose tables are in a schema of a PostgreSQL server."""

    @property
    def dsn(self) -> str:
        """How to connect; it may contain a password."""

    @property
    def schema(self) -> str:
        """The name of the schema, not quoted."""
