"""A PostgreSQL server with durable settings, an empty database for each measurement, and its counters."""

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import machine

VARIABLE = "STEPWELL_BENCH_DSN"
"""The address of a server on which the benchmarks may create databases; if it is not set, one is started."""
ROOT = Path(__file__).resolve().parent.parent
STARTER = ROOT / "tests" / "support" / "postgres_server.py"
PROMISES = {"fsync": "on", "full_page_writes": "on", "autovacuum": "on", "shared_buffers": "128MB"}
"""Defaults of PostgreSQL that the server of the tests turns off."""


def why_not() -> str | None:
    """Return why PostgreSQL cannot be measured; None if it can."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed"
    if VARIABLE not in os.environ and not STARTER.exists():
        return f"no PostgreSQL server: {VARIABLE} is not set"
    return None


@contextmanager
def server() -> Iterator[str]:
    """Yield the address of the configured server, or of one that runs as long as this block."""
    if VARIABLE in os.environ:
        yield os.environ[VARIABLE]
        return
    starter = _starter()
    starter.SETTINGS |= PROMISES
    with starter.own_server() as started:
        yield started.dsn


def _starter() -> Any:
    sys.path.append(str(ROOT))
    return importlib.import_module("tests.support.postgres_server")


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """Yield the address of a new empty database. It is dropped at the end."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    name = f"bench_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    try:
        yield _address(conninfo_to_dict(server) | {"dbname": name})
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _address(parts: Mapping[str, object]) -> str:
    """Return the address as a URL, which every peer accepts."""
    named = [quote(str(parts[part]), safe="") for part in ("user", "password") if part in parts]
    place = {"host": str(parts.get("host", "localhost")), "port": str(parts.get("port", 5432))}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in place.items())
    return f"postgresql://{':'.join(named)}@/{parts['dbname']}?{query}"


class Gauge:
    """Reads the counters of the server over its own connection."""

    def __init__(self, dsn: str) -> None:
        import psycopg

        self._connection = psycopg.connect(dsn, autocommit=True)
        self._server = machine.parent_of(self._one("SELECT pg_backend_pid()"))

    def log_written(self) -> int:
        """Return the bytes of write-ahead log of the whole server. No other program should use it meanwhile."""
        return self._one("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")

    def size(self) -> int:
        return self._one("SELECT pg_database_size(current_database())")

    def close(self) -> None:
        self._connection.close()

    def cpu(self) -> float:
        return machine.children_cpu(self._server)

    def _one(self, query: str) -> int:
        row = self._connection.execute(query.encode()).fetchone()
        assert row is not None
        return int(row[0])
