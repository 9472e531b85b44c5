"""Storages that a program does not close: their connections are closed for it, without a warning."""

import asyncio
import gc
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from stepwell.stores.postgres.store import PostgresStore
from stepwell.stores.sqlite import connections as sqlite_connections
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing.store_rules.samples import fill
from tests.support.postgres_server import ask, dsn, fresh_schema

pytestmark = pytest.mark.process

PROGRAM = """
import asyncio, atexit, sqlite3, threading

opened = []
{connect}

@atexit.register
def look():
    print(len(opened), *map(is_closed, opened), any(t.is_alive() for t in threading.enumerate() if "-write" in t.name))

{make}
from stepwell.testing.store_rules.samples import fill

asyncio.run(fill(store, "r", 1))
asyncio.run(store.read("r"))
"""
ON_SQLITE = """
connect = sqlite3.connect

def noted(*args, **options):
    opened.append(connect(*args, **options))
    return opened[-1]

sqlite3.connect = noted

def is_closed(db):
    try:
        db.total_changes
    except sqlite3.ProgrammingError:
        return True
    return False
"""
ON_POSTGRES = """
import psycopg

connect = psycopg.Connection.connect.__func__

def noted(cls, *args, **options):
    opened.append(connect(cls, *args, **options))
    return opened[-1]

psycopg.Connection.connect = classmethod(noted)

def is_closed(db):
    return db.closed
"""


def is_closed(db: sqlite3.Connection) -> bool:
    try:
        db.total_changes  # noqa: B018 - raises if it is
    except sqlite3.ProgrammingError:
        return True
    return False


@pytest.fixture
def schema() -> Iterator[str]:
    with fresh_schema() as name:
        yield name


@pytest.fixture
def on_sqlite(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    opened: list[sqlite3.Connection] = []
    plain = sqlite_connections.open_database

    def noted(*args: Any) -> sqlite3.Connection:
        opened.append(plain(*args))
        return opened[-1]

    monkeypatch.setattr(sqlite_connections, "open_database", noted)
    return opened


async def wait_until_closed(is_all: Any) -> None:
    async with asyncio.timeout(30):
        while not is_all():  # noqa: ASYNC110 - the thread that closes tells nobody
            await asyncio.sleep(0.002)


async def test_a_sqlite_store_that_is_collected_closes_its_connections(
    tmp_path: Path, on_sqlite: list[sqlite3.Connection]
) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    await fill(store, "r", 1)
    meet = threading.Barrier(2)  # two readings at once, each on a connection of its own
    await asyncio.gather(*(store._db.read(lambda db: meet.wait(30)) for _ in range(2)))
    assert len(on_sqlite) >= 2
    assert not any(map(is_closed, on_sqlite))
    del store
    gc.collect()
    await wait_until_closed(lambda: all(map(is_closed, on_sqlite)))


async def test_what_a_collected_store_still_reads_is_read_and_closed(
    tmp_path: Path, on_sqlite: list[sqlite3.Connection]
) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    await fill(store, "r", 3)
    readings = [asyncio.ensure_future(store._db.read(lambda db: db.execute("SELECT 3").fetchone())) for _ in range(50)]
    await asyncio.sleep(0)  # each has begun
    del store
    gc.collect()
    assert await asyncio.gather(*readings) == [(3,)] * 50
    await wait_until_closed(lambda: all(map(is_closed, on_sqlite)))


async def test_a_postgres_store_that_is_collected_closes_its_connections(schema: str) -> None:
    def sessions() -> int:
        return len(ask("SELECT 1 FROM pg_stat_activity WHERE application_name = %s", schema))

    store = PostgresStore(make_conninfo(dsn(), application_name=schema), schema=schema)
    await fill(store, "r", 1)
    await asyncio.gather(*(store.read("r") for _ in range(20)))
    assert sessions() >= 2
    del store
    gc.collect()
    await wait_until_closed(lambda: sessions() == 0)


def ended(connect: str, make: str) -> list[str]:
    program = PROGRAM.format(connect=connect, make=make)
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_a_program_that_ends_closes_its_sqlite_stores(tmp_path: Path) -> None:
    make = f"from stepwell.stores.sqlite.store import SQLiteStore\nstore = SQLiteStore({str(tmp_path / 'runs.db')!r})"
    assert ended(ON_SQLITE, make) == ["2", "True", "True", "False"]


def test_a_program_that_ends_closes_its_postgres_stores(schema: str) -> None:
    make = (
        f"from stepwell.stores.postgres.store import PostgresStore\nstore = PostgresStore({dsn()!r}, schema={schema!r})"
    )
    count, *closed, writing = ended(ON_POSTGRES, make)
    assert int(count) >= 1
    assert {*closed} == {"True"}
    assert writing == "False"


HANDLERS = """
import asyncio, atexit
from stepwell.errors import StoreUnavailable

@atexit.register
def too_late():
    calls = (lambda: asyncio.run(store.read("r")), lambda: asyncio.run(store.runs()))
    for use in (*calls, lambda: store.renew({{"r": 1}}, seconds=None)):
        try:
            use()
        except StoreUnavailable as error:
            assert "the program is exiting" in str(error)
            print("refused")

{make}

@atexit.register
def late():
    try:
        asyncio.run(store.read("r"))
    except StoreUnavailable as error:
        assert "the program is exiting" in str(error)
        print("refused")

from stepwell.testing.store_rules.samples import fill
asyncio.run(fill(store, "r", 1))
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_store_that_is_used_when_the_program_ends_says_so(kind: str, tmp_path: Path, schema: str) -> None:
    makes = {
        "sqlite": "from stepwell.stores.sqlite.store import SQLiteStore\n"
        f"store = SQLiteStore({str(tmp_path / 'runs.db')!r})",
        "postgres": "from stepwell.stores.postgres.store import PostgresStore\n"
        f"store = PostgresStore({dsn()!r}, schema={schema!r})",
    }
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", HANDLERS.format(make=makes[kind])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["refused"] * 4, "")
