"""The PostgreSQL store among other programs: readers, event loops, schemas, broken servers and clear errors."""

import asyncio
import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from stepwell import PostgresCheckpointStorage
from stepwell.errors import CheckpointCorrupt, StoreUnavailable
from stepwell.storage.filters import CheckpointFilter
from stepwell.storage.lease import this_process
from stepwell.storage.stored_values import NO_EFFECTS
from stepwell.stores.postgres import errors as postgres_errors
from stepwell.stores.postgres.connection import Connection
from stepwell.stores.postgres.store import PostgresStore
from stepwell.stores.postgres.tables import FORMAT
from stepwell.testing.store_rules.samples import ODD_IDS, fill, head, numbers, record, signals_of
from tests.stores.postgres_samples import BEGIN, PATIENT, drive, nothing_is_lost, refused
from tests.support.postgres_locks import come_to_wait, nobody_moves
from tests.support.postgres_server import Server, ask, dsn, fresh_schema, own_server
from tests.support.spies import first, spy

pytestmark = pytest.mark.process


@pytest.fixture
def schema() -> Iterator[str]:
    with fresh_schema() as name:
        yield name


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One that may be stopped."""
    with own_server() as made:
        yield made


@pytest.fixture
async def store(schema: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(dsn(), schema=schema, timeout=PATIENT)
    yield made
    await made.close()


# -------------------------------------------------------------------- threads, loops, processes


async def test_a_reader_does_not_wait_for_the_writer(store: PostgresStore, schema: str) -> None:
    await fill(store, "r", 1)
    with nobody_moves("r", schema):
        writing = asyncio.ensure_future(store.append(record("r", 1)))
        await come_to_wait(schema)
        assert numbers(await store.history("r")) == [0]
        assert not writing.done()
    await writing


def test_a_loop_that_was_closed_while_it_waited_harms_nobody(schema: str) -> None:
    store = PostgresStore(dsn(), schema=schema, timeout=PATIENT)

    async def leave_early() -> None:
        acquiring = asyncio.ensure_future(store.acquire("r", this_process("mine"), seconds=60))
        await come_to_wait(schema)
        assert not acquiring.done()

    asyncio.run(fill(store, "r", 1))
    with nobody_moves("r", schema):
        asyncio.run(leave_early())

    async def come_back() -> None:
        await fill(store, "s", 2)
        assert numbers(await store.history("s")) == [0, 1]
        await store.close()

    asyncio.run(come_back())


def test_a_store_that_nobody_closed_leaves_no_thread_behind(schema: str) -> None:
    others = set(threading.enumerate())
    store = PostgresStore(make_conninfo(dsn(), application_name=schema), schema=schema)
    asyncio.run(fill(store, "r", 1))
    assert asyncio.run(head(store, "r")) is not None
    left = [thread for thread in set(threading.enumerate()) - others if thread.name.startswith("stepwell-postgres")]
    # They read; event loops write by themselves. A second one starts if the first is not idle yet.
    assert left
    assert all(thread.name.startswith("stepwell-postgres-read") for thread in left)
    del store
    gc.collect()
    for thread in left:
        thread.join()
    while ask("SELECT 1 FROM pg_stat_activity WHERE application_name = %s", schema):
        time.sleep(0.005)


def test_a_program_that_does_not_close_its_store_ends_without_a_word(schema: str) -> None:
    code = BEGIN + "asyncio.run(store.append(record('r', 0)))\nasyncio.run(store.read('r'))"
    program = code.format(dsn=dsn(), schema=schema)
    done = subprocess.run([sys.executable, "-W", "error", "-X", "dev", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def fill_in_child(store: PostgresStore, parent_is_done: str) -> None:
    asyncio.run(fill(store, "child", 5))
    while not os.path.exists(parent_is_done):
        time.sleep(0.01)
    asyncio.run(store.append(record("child", 5)))  # after the parent has closed its connections
    asyncio.run(store.close())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_forked_child_uses_the_store_beside_its_parent(store: PostgresStore, tmp_path: Path) -> None:
    await fill(store, "parent", 3)
    done = tmp_path / "done"
    child = multiprocessing.get_context("fork").Process(target=fill_in_child, args=(store, str(done)))
    child.start()
    for number in range(3, 10):
        await store.append(record("parent", number))
    await store.close()
    done.touch()
    await asyncio.to_thread(child.join, 60)
    assert child.exitcode == 0
    assert numbers(await store.history("parent")) == list(range(10))
    assert numbers(await store.history("child")) == list(range(6))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_forks_in_the_midst_of_writing_disturb_nobody(store: PostgresStore) -> None:
    writing = asyncio.gather(*(drive(store, f"r{n}", 10) for n in range(5)))
    for _ in range(10):
        await asyncio.sleep(0.005)
        child = os.fork()
        if child == 0:
            gc.collect()
            os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
    await writing
    await nothing_is_lost(store, 10, 5)


async def test_nobody_waits_for_the_server_on_the_event_loop(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[int] = set()
    wait = Connection.wait

    def noted(self: Connection, *args: Any, **options: Any) -> Any:
        used.add(threading.get_ident())
        return wait(self, *args, **options)

    monkeypatch.setattr(Connection, "wait", noted)
    await drive(store, "r", 2)
    await store.acquire("r", this_process("mine"), seconds=60)
    assert used
    assert threading.get_ident() not in used


# -------------------------------------------------------------------- the schema


async def test_two_schemas_of_one_database_know_nothing_of_each_other(store: PostgresStore) -> None:
    with fresh_schema() as name:
        other = PostgresStore(dsn(), schema=name)
        await fill(store, "r", 2)
        await other.append(record("r", 0, workflow="another"))
        await store.acquire("r", this_process("mine"), seconds=60)
        await other.acquire("r", this_process("other"), seconds=60)
        assert len(await store.checkpoints()) == 2
        assert len(await other.checkpoints()) == 1
        await other.close()


@pytest.mark.parametrize(
    "name", ['od"d', "a'b", "per%cent %s", "a$$b $1", "Select", "日本語", "; DROP TABLE x; --", "{}"]
)
async def test_a_schema_may_have_an_odd_name(name: str) -> None:
    store = PostgresStore(dsn(), schema=name)
    try:
        await drive(store, "r", 3)
        assert len(await store.checkpoints(CheckpointFilter(workflow="w"))) == 3
        assert await store.rewrite("r", remove=[2], effects=NO_EFFECTS)
    finally:
        await store.close()
        ask('DROP SCHEMA "{}" CASCADE'.replace("{}", name.replace('"', '""')))


@pytest.mark.parametrize("name", ["", "x" * 64, "é" * 32, "a\0b", "a$stepwell$b"])
def test_what_cannot_be_a_schema_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be named"):
        PostgresCheckpointStorage("", schema=name)


async def test_names_with_nul_are_told_from_those_that_look_like_them(store: PostgresStore) -> None:
    alike = ["a\0b", "a\x10b", "a\x100b", "a\x101b", "a\x1000", "\x10", "\x10\0", "\0\x101", "a0b", "\\u0000", "a\\0b"]
    for name in alike:
        await store.append(record(name, 0, checkpoint_id=name, workflow=name))
        await store.send(name, name, b"1")
    for name in alike:
        assert await store.locate(name) == record(name, 0, checkpoint_id=name, workflow=name).entry
        assert await signals_of(store, name) == [(name, b"1")]
    assert {entry.run_id for entry in await store.checkpoints()} == {*alike}


async def test_a_schema_of_another_program_is_refused_and_left_alone(schema: str) -> None:
    ask(f"CREATE SCHEMA {schema}")
    ask(f"CREATE TABLE {schema}.theirs (x int)")
    store = PostgresStore(dsn(), schema=schema)
    with pytest.raises(StoreUnavailable, match="another program"):
        await store.append(record("r", 0))
    with pytest.raises(StoreUnavailable, match="another program"):
        await head(store, "r")
    await store.close()
    tables = "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s"
    assert ask(tables, schema) == [("theirs",)]


async def test_an_empty_schema_becomes_a_store(store: PostgresStore, schema: str) -> None:
    ask(f"CREATE SCHEMA {schema}")
    await fill(store, "r", 1)
    assert len(await store.checkpoints()) == 1


async def test_a_newer_format_is_refused_and_left_alone(store: PostgresStore, schema: str) -> None:
    await fill(store, "r", 1)
    await store.close()
    ask(f"UPDATE {schema}.stepwell SET format = {FORMAT + 1}")
    with pytest.raises(StoreUnavailable, match="newer"):
        await store.append(record("r", 1))
    with pytest.raises(StoreUnavailable, match="newer"):
        await store.history("r")
    assert ask(f"SELECT count(*) FROM {schema}.commits") == [(1,)]


async def test_a_database_that_does_not_keep_utf8_is_refused(server: Server) -> None:
    ask("CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0", where=server.dsn)
    store = PostgresStore(make_conninfo(server.dsn, dbname="ascii"))
    with pytest.raises(StoreUnavailable, match="UTF8"):
        await store.append(record("r", 0))
    await store.close()


async def test_a_person_reads_the_tables(store: PostgresStore, schema: str) -> None:
    await store.append(record("r", 0, body={"answer": 42}))
    query = f"SELECT run_id, body::json ->> 'answer' FROM {schema}.commits JOIN {schema}.runs ON key = run"
    assert ask(query) == [("r", "42")]
    assert ask(f"SELECT format FROM {schema}.stepwell") == [(FORMAT,)]


async def test_ids_of_every_kind_go_through_the_storage(schema: str) -> None:
    storage = PostgresCheckpointStorage(dsn(), schema=schema)
    for name in ODD_IDS:
        await storage._store.append(record(name, 0, checkpoint_id=f"c{name}"))
    assert await storage.list_checkpoint_ids() == [f"c{name}" for name in sorted(ODD_IDS)]
    await storage.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dbname": "nowhere"}, r'database "nowhere" does not exist; create it'),
        ({"user": "nobody_at_all"}, r'role "nobody_at_all" does not exist; create it'),
        ({"user": "grace"}, r'password authentication failed for user "grace"; check the user and the password'),
        ({"user": "grace", "password": ""}, r"no password supplied; add a password"),
        ({"user": "alan"}, r"pg_hba.conf rejects .*; the server does not allow such connections"),
        ({"user": "edsger"}, r'role "edsger" is not permitted to log in; use another user'),
    ],
)
async def test_a_server_that_will_never_let_us_in_is_asked_once(
    guarded_server: Server, change: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Connection, "connect", spy(Connection.connect, asked, first))
    where = make_conninfo(guarded_server.dsn, **{"password": "secret", **change})
    store = PostgresStore(where, timeout=PATIENT)
    with pytest.raises(StoreUnavailable, match=said) as refusal:
        await head(store, "r")
    await store.close()
    assert len(asked) == 1
    assert "secret" not in "".join(traceback.format_exception(refusal.value))


@pytest.fixture(scope="module")
def guarded_server() -> Iterator[Server]:
    """One that asks who comes."""
    with own_server() as made:
        ask("CREATE ROLE grace LOGIN PASSWORD 'another'; CREATE ROLE alan LOGIN; CREATE ROLE edsger", where=made.dsn)
        made.admit("local all grace scram-sha-256", "local all alan reject")
        yield made


async def test_a_server_that_is_not_there_is_reported(tmp_path: Path, schema: str) -> None:
    said = await refused(PostgresStore(f"host={tmp_path} dbname=x password=secret", schema=schema, timeout=0))
    assert f"the PostgreSQL database 'x' on {tmp_path}" in said
    assert "secret" not in said


@pytest.mark.parametrize("text", ["postgresql//ada:secret@host/db", "secret", "host=a secret", "postgres://[secret"])
def test_what_is_no_dsn_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ValueError, match="not a PostgreSQL dsn") as refusal:
        PostgresCheckpointStorage(text)
    assert "secret" not in "".join(map(str, (refusal.value, refusal.value.__cause__)))
    assert refusal.value.__suppress_context__


def test_a_store_needs_two_connections() -> None:
    with pytest.raises(ValueError, match="2 connections"):
        PostgresCheckpointStorage("", connections=1)


async def test_a_user_without_rights_is_told_what_is_missing(store: PostgresStore, schema: str) -> None:
    user = f"user_{schema}"
    ask(f"CREATE ROLE {user} LOGIN")
    try:
        theirs = make_conninfo(dsn(), user=user)
        said = await refused(PostgresStore(theirs, schema=schema))
        assert "permission denied for database" in said
        assert "grant it to the user of the dsn" in said
        await fill(store, "r", 1)
        said = await refused(PostgresStore(theirs, schema=schema))
        assert f"permission denied for schema {schema}" in said
        ask(f"GRANT USAGE ON SCHEMA {schema} TO {user}")
        ask(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {user}")
        allowed = PostgresStore(theirs, schema=schema)
        await allowed.append(record("r", 1))
        await allowed.close()
    finally:
        ask(f"DROP OWNED BY {user}")
        ask(f"DROP ROLE {user}")


async def test_a_server_that_takes_no_writes_is_reported(store: PostgresStore, schema: str) -> None:
    await fill(store, "r", 1)
    readonly = PostgresStore(make_conninfo(dsn(), options="-c default_transaction_read_only=on"), schema=schema)
    with pytest.raises(StoreUnavailable, match=r"read-only transaction; .*target_session_attrs=read-write"):
        await readonly.append(record("r", 1))
    assert numbers(await readonly.history("r")) == [0]
    await readonly.close()


async def test_tables_that_were_dropped_by_hand_are_missed(store: PostgresStore, schema: str) -> None:
    await fill(store, "r", 1)
    ask(f"DROP TABLE {schema}.runs CASCADE")
    with pytest.raises(StoreUnavailable, match="removed by hand"):
        await store.append(record("r", 1))
    ask(f"DROP SCHEMA {schema} CASCADE")
    with pytest.raises(StoreUnavailable, match="removed by hand"):
        await store.history("r")


async def test_a_crowded_server_is_waited_for(server: Server, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ask("CREATE ROLE ada LOGIN CONNECTION LIMIT 1", where=server.dsn)
    ask("GRANT CREATE ON DATABASE postgres TO ada", where=server.dsn)
    waits, sleep = threading.Semaphore(0), time.sleep

    def counted(seconds: float) -> None:
        waits.release()
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", counted)
    store = PostgresStore(make_conninfo(server.dsn, user="ada"), schema=schema, timeout=PATIENT)
    with psycopg.connect(server.dsn, user="ada"):
        appending = asyncio.ensure_future(store.append(record("r", 0)))
        for _ in range(3):
            await asyncio.to_thread(waits.acquire)
        assert not appending.done()
    await appending
    await store.close()


def test_a_full_disk_and_a_damaged_table_are_reported_as_what_they_are() -> None:
    full = postgres_errors.translate(errors.DiskFull('could not extend file "base/1": No space left'), "here")
    assert isinstance(full, StoreUnavailable)
    assert "free some space" in str(full)
    damaged = postgres_errors.translate(errors.DataCorrupted("invalid page in block 7"), "here")
    assert isinstance(damaged, CheckpointCorrupt)
    assert "backup" in str(damaged)
