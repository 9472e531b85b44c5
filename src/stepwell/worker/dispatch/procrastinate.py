"""A dispatcher on procrastinate, a job queue in PostgreSQL: each hint is a job that one worker gets.

A job holds the id of a run and nothing else. It is deferred after the run was stored, never in the
same transaction: its insert notifies, and a NOTIFY takes a lock of the whole server. A job that is
lost, doubled or late changes nothing in a run: the lease says who drives it, and what no job leads
to is found when workers look at the store. So jobs have no lock and are never retried, and one that
a killed worker leaves behind is deleted.

The queue of a job is the workflow of its run, so only workers that have the workflow get it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import procrastinate
import psycopg
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException, ProcrastinateException
from procrastinate.jobs import Status
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier
from psycopg_pool import PoolTimeout

from stepwell.errors import DefinitionError, DurabilityError, StoreUnavailable
from stepwell.model.status_words import SIGNALLED
from stepwell.storage import clock, news
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import ReadyFilter
from stepwell.storage.stored_values import RunEntry
from stepwell.worker.dispatch.protocol import HintReceiver

_LOG = logging.getLogger("stepwell")

TASK = "stepwell.drive"
_TOGETHER = 0.005  # seconds in which hints are collected, to be deferred at once
_POLLED_EVERY = 1.0  # seconds after which a job is found whose notification was lost
_TIDIED_EVERY = 30.0  # seconds between two looks for the jobs of dead workers
_PATIENCE = 5  # seconds for a connection


class Procrastinate:
    """Hands out runs as jobs of procrastinate. The store must be on PostgreSQL.

    Its tables are in a schema of their own, named after that of the store with `_procrastinate`
    appended. `stepwell migrate --dispatch procrastinate` creates them.

    A program that stores runs or answers, and is not a worker, announces them:
    `async with Procrastinate().announcing(storage): ...`. Without that, workers find them within two
    seconds.
    """

    async def check(self, storage: BuiltInStorage) -> None:
        dsn, schema = _address_of(storage)
        if not await _has_tables(dsn, schema):
            raise DefinitionError(
                f"there are no tables of procrastinate in the schema {schema!r}; "
                f"run `stepwell migrate --dispatch procrastinate`"
            )

    async def migrate(self, storage: BuiltInStorage, *, dry_run: bool = False) -> bool:
        """Create the tables of procrastinate, unless they exist; return whether they were missing.

        Raises DefinitionError if the storage is not on PostgreSQL.
        """
        dsn, schema = _address_of(storage)
        if await _has_tables(dsn, schema):
            return False
        if dry_run:
            return True
        with _outages():
            async with await psycopg.AsyncConnection.connect(dsn, connect_timeout=_PATIENCE) as connection:
                # One transaction, so that an interrupted migration leaves nothing.
                await connection.execute(SQL("CREATE SCHEMA IF NOT EXISTS {}").format(Identifier(schema)))
                await connection.execute(SQL("SET LOCAL search_path TO {}").format(Identifier(schema)))
                await connection.execute(procrastinate.schema.SchemaManager.get_schema())
        return True

    def app(self, storage: BuiltInStorage) -> procrastinate.App:
        """Return the app of procrastinate on these tables, for its own tools. Its one task drives nothing."""
        app = _make_app(storage)

        @app.task(name=TASK)
        async def hint(run_id: str) -> None:
            raise DefinitionError(f"run {run_id!r} is driven by a worker of Stepwell, not by one of procrastinate")

        return app

    @asynccontextmanager
    async def announcing(self, storage: BuiltInStorage) -> AsyncIterator[None]:
        """Defer a job for each run that this process stores, answers or leaves, inside the block.

        Raises DefinitionError if the tables are missing, and StoreUnavailable if the server is away.
        """
        await self.check(storage)
        app = _make_app(storage)
        with _outages():
            await app.open_async()
        try:
            async with _sending_hints(storage, app):
                yield
        finally:
            await app.close_async()

    async def listen(self, storage: BuiltInStorage, worker: HintReceiver) -> None:
        await self.check(storage)
        app = _make_app(storage)

        @app.task(name=TASK)
        async def hint(run_id: str) -> None:
            await worker.drive_run(run_id)

        with _outages():
            async with app.open_async(), _sending_hints(storage, app):
                tidying = asyncio.create_task(_tidy_up(app))
                try:
                    with worker.assigning():
                        await app.run_worker_async(
                            queues=list(worker.workflows),
                            name=worker.name,
                            concurrency=worker.slots,
                            fetch_job_polling_interval=_POLLED_EVERY,
                            delete_jobs="always",
                            install_signal_handlers=False,
                        )
                finally:
                    tidying.cancel()
                    await asyncio.wait([tidying])
        raise StoreUnavailable("the worker of procrastinate has stopped: its server was away for too long")


def _address_of(storage: BuiltInStorage) -> tuple[str, str]:
    """Return the server of a storage, and the schema of procrastinate there."""
    if storage._server is None:
        raise DefinitionError(
            f"procrastinate dispatches on PostgreSQL, and {type(storage).__name__} is not there; use polling"
        )
    return storage._server.dsn, f"{storage._server.schema}_procrastinate"


async def _has_tables(dsn: str, schema: str) -> bool:
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = %s AND tablename = 'procrastinate_jobs'"
    with _outages():
        async with await psycopg.AsyncConnection.connect(dsn, connect_timeout=_PATIENCE) as connection:
            return await (await connection.execute(tables, (schema,))).fetchone() != (0,)


def _make_app(storage: BuiltInStorage) -> procrastinate.App:
    dsn, schema = _address_of(storage)
    options = f"{conninfo_to_dict(dsn).get('options') or ''} -c search_path={_escape_option(schema)}"
    connector = procrastinate.PsycopgConnector(
        conninfo=dsn,
        kwargs={"options": options.strip(), "connect_timeout": _PATIENCE},
        min_size=1,
        max_size=4,
        timeout=_PATIENCE,
    )
    return procrastinate.App(connector=connector)


def _escape_option(schema: str) -> str:
    """Return a schema as a quoted name in the `options` of a connection, where spaces separate."""
    quoted = '"' + schema.replace('"', '""') + '"'
    return quoted.replace("\\", "\\\\").replace(" ", "\\ ")


@contextmanager
def _outages() -> Iterator[None]:
    """Raise StoreUnavailable for what procrastinate and its connections raise when the server is away."""
    try:
        yield
    except (ProcrastinateException, psycopg.Error, PoolTimeout) as error:
        cause = error.__cause__ or error
        reason = str(cause).partition("\n")[0]
        raise StoreUnavailable(f"procrastinate cannot use its PostgreSQL server: {reason}") from error


# ---------------------------------------------------------------------- hints


@asynccontextmanager
async def _sending_hints(storage: BuiltInStorage, app: procrastinate.App) -> AsyncIterator[None]:
    """Defer jobs for the runs that this process makes ready, inside the block."""
    loop, announced, has_new = asyncio.get_running_loop(), set[str](), asyncio.Event()

    def note(run_id: str) -> None:
        announced.add(run_id)
        has_new.set()

    def listener(run_id: str) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody sends any more
            loop.call_soon_threadsafe(note, run_id)

    async def send() -> None:
        is_away = False
        while True:
            await has_new.wait()
            await asyncio.sleep(_TOGETHER)
            has_new.clear()
            batch = set(announced)
            try:
                await _defer(app, await _find_ready(storage, batch))
                is_away = False
            except (ProcrastinateException, PoolTimeout, DurabilityError) as error:
                if not is_away:
                    _LOG.warning("runs cannot be announced, and workers find them within seconds: %s", error)
                is_away = True
            announced.difference_update(batch)

    sender = asyncio.create_task(send())
    try:
        with news.listening(storage._store, listener):
            yield
    finally:
        await asyncio.sleep(0)  # for what was announced a moment ago
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while announced:  # noqa: ASYNC110
                    await asyncio.sleep(_TOGETHER)
        sender.cancel()
        await asyncio.wait([sender])


async def _find_ready(storage: BuiltInStorage, run_ids: set[str]) -> list[RunEntry]:
    """Return those of the runs that somebody should drive; one that is driven needs no hint."""
    entries = await asyncio.gather(*(storage._store.run(run_id) for run_id in run_ids))
    ready = ReadyFilter(clock.stamp(), resting=SIGNALLED)
    # JSON in PostgreSQL cannot hold a NUL: such a run is found without a hint.
    return [run for run in entries if run is not None and ready.matches(run) and "\0" not in run.run_id + run.workflow]


async def _defer(app: procrastinate.App, runs: list[RunEntry]) -> None:
    jobs = [
        app.configure_task(
            TASK,
            queue=run.workflow,
            # One waiting job is enough. A digest, because an id may be longer than an index allows.
            queueing_lock=hashlib.sha256(run.run_id.encode()).hexdigest(),
            priority=run.metadata.priority,
        ).make_new_job(run_id=run.run_id)
        for run in runs
    ]
    if not jobs:
        return
    try:
        await app.job_manager.batch_defer_jobs_async(jobs)
    except AlreadyEnqueued:  # one of them; then none was deferred
        for job in jobs:
            with suppress(AlreadyEnqueued):
                await app.job_manager.defer_job_async(job)


async def _tidy_up(app: procrastinate.App) -> None:
    """Delete the jobs of workers that are gone, again and again. Their runs are found without them."""
    while True:
        with suppress(ConnectorException, PoolTimeout):  # the worker of procrastinate reports it
            for job in await app.job_manager.get_stalled_jobs(task_name=TASK):
                if job.id is not None:
                    await app.job_manager.finish_job_by_id_async(job.id, status=Status.FAILED, delete_job=True)
        await asyncio.sleep(_TIDIED_EVERY)
