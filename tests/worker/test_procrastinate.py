"""Hints through procrastinate: jobs that name a run, and that nothing depends on."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stepwell import DefinitionError, PostgresCheckpointStorage, SQLiteCheckpointStorage, admin
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.worker import Procrastinate, Worker
from stepwell.worker import worker as worker_module
from stepwell.worker.dispatch import procrastinate as dispatch_module
from tests.support.command_line import postgres_address, ran
from tests.support.postgres_server import dsn, fresh_schema
from tests.worker.samples import all_are, asking, counting, eventually, serving, standings

pytestmark = pytest.mark.process


@pytest.fixture
def schema() -> Iterator[str]:
    with fresh_schema() as name:
        yield name
        with psycopg.connect(dsn(), autocommit=True) as db:
            db.execute(f'DROP SCHEMA IF EXISTS "{name}_procrastinate" CASCADE'.encode())


@pytest.fixture
async def storage(schema: str) -> AsyncIterator[BuiltInStorage]:
    made = PostgresCheckpointStorage(dsn(), schema=schema)
    assert await Procrastinate().migrate(made) is True
    assert await Procrastinate().migrate(made) is False
    yield made
    await made.close()


def jobs_in(schema: str) -> list[dict[str, Any]]:
    with psycopg.connect(dsn(), row_factory=psycopg.rows.dict_row) as db:
        return db.execute(f'SELECT * FROM "{schema}_procrastinate".procrastinate_jobs ORDER BY id'.encode()).fetchall()


async def test_a_run_that_is_announced_becomes_a_job_with_its_id_and_nothing_else(
    storage: BuiltInStorage, schema: str
) -> None:
    workflow = counting(storage)
    async with Procrastinate().announcing(storage):
        await workflow.submit(0, run_id="r", priority=7)
        await workflow.submit(0, run_id="r")  # no second job
        await workflow.submit(0, run_id="s")
    r, s = sorted(jobs_in(schema), key=lambda job: str(job["args"]))
    assert (r["args"], s["args"]) == ({"run_id": "r"}, {"run_id": "s"})
    assert (r["queue_name"], r["priority"], r["status"], r["lock"]) == ("counting", 7, "todo", None)
    assert r["queueing_lock"] != s["queueing_lock"]
    assert (r["scheduled_at"], r["attempts"]) == (None, 0)


async def test_a_worker_drives_what_its_jobs_name_and_deletes_them(
    storage: BuiltInStorage, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing but jobs leads to the runs: a look at the store comes too late.
    monkeypatch.setattr(worker_module, "HINTED", 3600.0)
    workflow, questions = counting(storage), asking(storage)
    async with Procrastinate().announcing(storage):
        for n in range(5):
            await workflow.submit(0, run_id=f"before {n}")
        async with serving(Worker(storage, [workflow, questions], slots=2, dispatcher=Procrastinate())):
            await questions.submit("tea or coffee?", run_id="asks")
            await eventually(lambda: is_so(storage, {"asks": "waiting"}))
            await admin.respond(storage, "asks", "q", "tea")
            await all_are(storage, "completed")
            await eventually(lambda: has_no_jobs(schema))


async def is_so(storage: BuiltInStorage, expected: dict[str, str]) -> bool:
    return expected.items() <= (await standings(storage)).items()


async def has_no_jobs(schema: str) -> bool:
    return jobs_in(schema) == []


async def test_a_run_whose_hint_was_lost_is_found_within_seconds(storage: BuiltInStorage) -> None:
    workflow = counting(storage)
    async with serving(Worker(storage, [workflow], dispatcher=Procrastinate())):
        await asyncio.sleep(1)  # until it listens
        other = PostgresCheckpointStorage(dsn(), schema=storage._server.schema)  # type: ignore[union-attr]
        await counting(other).submit(0, run_id="r")  # by a program that announces nothing
        await eventually(lambda: is_so(storage, {"r": "completed"}), seconds=8)
        await other.close()


async def test_two_workers_share_the_jobs_and_refuse_each_other_nothing(storage: BuiltInStorage, schema: str) -> None:
    workflow = counting(storage, pause=0.02)
    workers = [Worker(storage, [workflow], slots=4, dispatcher=Procrastinate()) for _ in range(2)]
    async with Procrastinate().announcing(storage), serving(*workers):
        await asyncio.sleep(1)
        await asyncio.gather(*(workflow.submit(0, run_id=f"r{n}") for n in range(40)))
        await all_are(storage, "completed")
    drives = [worker._counters.drives for worker in workers]
    refused = [worker._counters.refused_acquisitions for worker in workers]
    assert min(drives) > 0
    assert sum(refused) <= 2


async def test_the_job_of_a_worker_that_is_gone_is_deleted_and_never_retried(
    storage: BuiltInStorage, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_module, "_TIDIED_EVERY", 0.1)
    workflow = counting(storage)
    async with Procrastinate().announcing(storage):
        await workflow.submit(0, run_id="r")
    await workflow.run(run_id="r")
    app = Procrastinate().app(storage)
    async with app.open_async():  # another worker takes the job, and is never heard of again
        job = await app.job_manager.fetch_job(queues=None, worker_id=await app.job_manager.register_worker())
        assert job is not None
        await app.connector.execute_query_async(
            "UPDATE procrastinate_workers SET last_heartbeat = now() - '1h'::interval"
        )
    async with serving(Worker(storage, [workflow], dispatcher=Procrastinate())):
        await eventually(lambda: has_no_jobs(schema))


async def test_a_server_that_is_away_is_logged_and_the_store_is_looked_at(
    storage: BuiltInStorage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(Procrastinate):
        async def check(self, storage: BuiltInStorage) -> None:
            """Pass: the tables are there."""

    monkeypatch.setattr(
        dispatch_module, "_address_of", lambda storage: ("host=127.0.0.1 port=1 dbname=none", "nowhere")
    )
    monkeypatch.setattr(dispatch_module, "_PATIENCE", 1)
    workflow = counting(storage)
    with caplog.at_level(logging.WARNING):
        async with serving(Worker(storage, [workflow], dispatcher=Away())):
            await workflow.submit(0, run_id="r")
            await all_are(storage, "completed")
            await eventually(lambda: mentions(caplog, "the dispatcher is away"), seconds=60)
    assert "procrastinate cannot use its PostgreSQL server" in caplog.text


async def mentions(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return words in caplog.text


async def test_a_worker_whose_tables_are_missing_says_how_to_create_them(schema: str) -> None:
    storage = PostgresCheckpointStorage(dsn(), schema=schema)
    with pytest.raises(DefinitionError, match="run `stepwell migrate --dispatch procrastinate`"):
        await Worker(storage, [counting(storage)], dispatcher=Procrastinate()).serve()
    await storage.close()


async def test_a_store_that_is_not_on_postgresql_is_refused(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    with pytest.raises(DefinitionError, match="procrastinate dispatches on PostgreSQL, and SQLiteCheckpointStorage"):
        await Worker(storage, [counting(storage)], dispatcher=Procrastinate()).serve()
    with pytest.raises(DefinitionError, match="use polling"):
        await Procrastinate().migrate(storage)


def test_migrate_creates_the_tables_once_and_only_when_asked(schema: str) -> None:
    address = postgres_address(schema)
    migrate = ("migrate", "--store", address, "--dispatch", "procrastinate")
    assert "the tables of procrastinate would be created" in ran(*migrate, "--dry-run").stdout
    assert "the tables of procrastinate were created" in ran(*migrate).stdout
    assert "nothing to do: the tables of procrastinate are there" in ran(*migrate).stdout
    assert json.loads(ran(*migrate, "--json").stdout)["dispatch"] is False


def test_the_command_line_refuses_a_dispatcher_that_the_store_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "greeting.py").write_text(CODE)
    for command in (("worker", "greeting:workflow"), ("migrate",)):
        options = ("--dispatch", "procrastinate", "--store", "runs.db")
        refused = subprocess.run(
            [sys.executable, "-m", "stepwell.cli", *command, *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert refused.returncode in (1, 2)
        assert "procrastinate dispatches on PostgreSQL" in refused.stderr
        assert "Traceback" not in refused.stderr


CODE = """
from stepwell import WorkflowBuilder, WorkflowContext, executor

@executor(id="greet")
async def greet(name: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(f"hello {name}")

workflow = WorkflowBuilder(name="greeting", start_executor=greet).build()
"""


async def test_the_app_shows_the_jobs_to_the_tools_of_procrastinate(
    storage: BuiltInStorage, schema: str, tmp_path: Path
) -> None:
    async with Procrastinate().announcing(storage):
        await counting(storage).submit(0, run_id="r")
    (tmp_path / "hints.py").write_text(
        "from stepwell import PostgresCheckpointStorage\n"
        "from stepwell.worker import Procrastinate\n"
        f"app = Procrastinate().app(PostgresCheckpointStorage({dsn()!r}, schema={schema!r}))\n"
    )
    shown = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "procrastinate", "--app", "hints.app", "shell", "list_jobs"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert "stepwell.drive on counting - [todo]" in shown.stdout, shown.stdout
