"""Storage for runs in a PostgreSQL database.

The driver is loaded with this module. A program without it gets the error when it creates a storage, so that
`from stepwell import *` works everywhere.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any

from stepwell.model.checkpoint import Retention
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.encryption import Seal
from stepwell.storage.lease import LEASE
from stepwell.storage.posix import require_posix

with suppress(ImportError):
    import_module("stepwell.stores.postgres.store")


class PostgresCheckpointStorage(BuiltInStorage):
    """Storage for runs in a schema of a PostgreSQL database, shared by any number of machines.

    `dsn` is a connection string of libpq; what it leaves out comes from the environment (`PGHOST`,
    ...). The schema and its tables are created at the first use. `timeout` is how many seconds the
    server may be away or silent before StoreUnavailable is raised. `connections` is how many are open
    at most: one writes, the others read. Steps that run in a transaction have as many of their own.
    `seal` encrypts what is stored, `retention` says how much of a run's history is kept, and `lease`
    is how many seconds a silent process keeps its runs.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "stepwell",
        timeout: float = 30.0,
        connections: int = 5,
        seal: Seal | None = None,
        retention: Retention = Retention.FullHistory,
        lease: float = LEASE,
    ) -> None:
        require_posix(f"the PostgreSQL store with schema {schema!r}", "sockets that can be duplicated")
        try:
            from stepwell.stores.postgres.store import PostgresStore  # lazy: psycopg may not be installed
        except ImportError as missing:
            raise ImportError(
                "PostgresCheckpointStorage needs the driver psycopg; run: pip install 'stepwell[postgres]'"
            ) from missing
        store = PostgresStore(dsn, schema=schema, timeout=timeout, connections=connections)
        super().__init__(store, seal=seal, retention=retention, lease=lease)
        self._postgres, self._seal = store, seal

    async def _join_transaction(self, connection: Any) -> BuiltInStorage:
        """Return a storage whose writes belong to the transaction that is open on a psycopg connection."""
        from stepwell.stores.postgres.joined_store import JoinedStore  # lazy: few programs need it

        joined = JoinedStore(self._postgres, connection)
        await self._postgres.run("")  # creates the schema, if it does not exist, in a transaction of its own
        return BuiltInStorage(joined, seal=self._seal, retention=self.retention, lease=self._lease)
