"""Runs in a PostgreSQL database. Light: the driver is loaded when a storage is made, not when Stepwell is imported."""

from __future__ import annotations

from stepwell.model.superstep import Retention
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.encryption import Seal
from stepwell.storage.lease import LEASE
from stepwell.storage.system import require_posix


class PostgresCheckpointStorage(BuiltInStorage):
    """Runs kept in a schema of a PostgreSQL database, shared by any number of processes on any number of machines.

    `dsn` is a connection string of libpq; what it leaves out comes from the environment (`PGHOST`, ...). The
    schema and its tables are created at the first use. `patience` says how many seconds a server may be away or silent
    before StoreUnavailable is raised, `connections` how many are open at most: one writes, the others read. Steps that
    are done in a transaction have as many for themselves.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "stepwell",
        patience: float = 30.0,
        connections: int = 5,
        seal: Seal | None = None,
        retention: Retention = Retention.FullHistory,
        lease: float = LEASE,
    ) -> None:
        require_posix(f"the PostgreSQL store with schema {schema!r}", "sockets that can be duplicated")
        try:
            from stepwell.stores.postgres.store import PostgresStore
        except ImportError as missing:
            raise ImportError(
                "PostgresCheckpointStorage needs the driver psycopg: pip install 'stepwell[postgres]'"
            ) from missing
        store = PostgresStore(dsn, schema=schema, patience=patience, connections=connections)
        super().__init__(store, seal=seal, retention=retention, lease=lease)
