"""A server that keeps its promises, a database of its own for each measurement, and what the server says about it."""

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
"""Names a server the benchmarks may make databases on; without it one is started."""
ROOT = Path(__file__).resolve().parent.parent
STARTER = ROOT / "tests" / "support" / "postgres_server.py"
PROMISES = {"fsync": "on", "full_page_writes": "on", "autovacuum": "on", "shared_buffers": "128MB"}
"""What the server of the tests does without, and is on by default."""


def why_not() -> str | None:
    """Why there is no PostgreSQL to measure with; None if there is."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed"
    if VARIABLE not in os.environ and not STARTER.exists():
        return f"no PostgreSQL: {VARIABLE} names none"
    return None


@contextmanager
def server() -> Iterator[str]:
    """The dsn of the server that was named, or of one that lives as long as this block."""
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
    """The address of a new empty database, which is dropped at the end."""
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
    """As a URL: every peer reads that."""
    named = [quote(str(parts[part]), safe="") for part in ("user", "password") if part in parts]
    place = {"host": str(parts.get("host", "localhost")), "port": str(parts.get("port", 5432))}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in place.items())
    return f"postgresql://{':'.join(named)}@/{parts['dbname']}?{query}"


class Gauge:
    """Reads what the server has done, over a connection of its own."""

    def __init__(self, dsn: str) -> None:
        import psycopg

        self._connection = psycopg.connect(dsn, autocommit=True)
        self._server = machine.parent_of(self._one("SELECT pg_backend_pid()"))

    def log_written(self) -> int:
        """Bytes of write-ahead log, all databases of the server together: nobody else should be using it."""
        return self._one("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")

    def size(self) -> int:
        return self._one("SELECT pg_database_size(current_database())")

    def cpu(self) -> float:
        return machine.children_cpu(self._server)

    def _one(self, query: str) -> int:
        row = self._connection.execute(query.encode()).fetchone()
        assert row is not None
        return int(row[0])
