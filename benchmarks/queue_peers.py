"""Other queues on PostgreSQL, for `workers.py`: the same runs of 20 steps, each durable when it ends.

A worker is a process with so many slots. `serve(dsn, slots, pipe)` works until it is told to stop; `submit(dsn,
seconds, runs)` stores runs whose steps wait for so long; `count(dsn)` says how many have ended.
"""

import asyncio
import logging
from typing import Any

import psycopg

STEPS = 20
NAME = "bench"


class Dbos:
    """Queues of DBOS: a workflow function with 20 recorded steps."""

    name, package = "DBOS queues", "dbos"

    @staticmethod
    def serve(dsn: str, slots: int, pipe: Any) -> None:
        from dbos import DBOS

        options: Any = {"name": NAME, "log_level": "ERROR", "application_version": "1", "system_database_url": dsn}
        DBOS(config=options)

        @DBOS.step()
        async def turn(left: int, seconds: float) -> int:
            if seconds:
                await asyncio.sleep(seconds)
            return left - 1

        @DBOS.workflow(name=NAME)
        async def loop(left: int, seconds: float) -> None:
            while left:
                left = await turn(left, seconds)

        DBOS.launch()
        # Looks as often as it is useful: its default is a second.
        DBOS.register_queue(NAME, worker_concurrency=slots, polling_interval_sec=0.05)
        pipe.send("ready")
        pipe.recv()
        DBOS.destroy()

    @staticmethod
    async def submit(dsn: str, seconds: float, runs: int) -> None:
        from dbos import DBOSClient

        client = DBOSClient(system_database_url=dsn)
        options: Any = {"queue_name": NAME, "workflow_name": NAME, "app_version": "1"}
        for first in range(0, runs, 50):
            batch = range(first, min(first + 50, runs))
            await asyncio.gather(*(client.enqueue_async(options, STEPS, seconds) for _ in batch))
        client.destroy()

    @staticmethod
    def count(dsn: str) -> int:
        return _count(dsn, "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'")


class JobPerStep:
    """procrastinate without Stepwell: each step is a job, which defers the next one. It keeps no state of the run."""

    name, package = "procrastinate, a job per step", "procrastinate"

    @staticmethod
    def app(dsn: str) -> Any:
        import procrastinate

        logging.disable(logging.INFO)
        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn, max_size=10))

        @app.task(name=NAME)
        async def turn(left: int, seconds: float) -> None:
            if seconds:
                await asyncio.sleep(seconds)
            if left > 1:
                await turn.defer_async(left=left - 1, seconds=seconds)

        return app

    @classmethod
    def serve(cls, dsn: str, slots: int, pipe: Any) -> None:
        async def serve() -> None:
            app = cls.app(dsn)
            async with app.open_async():
                working = asyncio.create_task(app.run_worker_async(concurrency=slots, install_signal_handlers=False))
                pipe.send("ready")
                await asyncio.to_thread(pipe.recv)
                working.cancel()
                await asyncio.wait([working])

        asyncio.run(serve())

    @classmethod
    async def submit(cls, dsn: str, seconds: float, runs: int) -> None:
        app = cls.app(dsn)
        async with app.open_async():
            await app.configure_task(NAME).batch_defer_async(
                *({"left": STEPS, "seconds": seconds} for _ in range(runs))
            )

    @staticmethod
    def count(dsn: str) -> int:
        ended = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded' AND (args->>'left')::int = 1"
        return _count(dsn, ended)


def prepare(peer: type[Dbos] | type[JobPerStep], dsn: str) -> None:
    """Create the tables of a peer."""
    if peer is Dbos:
        from dbos import run_dbos_database_migrations

        run_dbos_database_migrations(system_database_url=dsn)
    else:
        import procrastinate

        with psycopg.connect(dsn, autocommit=True) as db:
            db.execute(procrastinate.schema.SchemaManager.get_schema())


def _count(dsn: str, query: str) -> int:
    with psycopg.connect(dsn) as db:
        row = db.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


PEERS: tuple[type[Dbos] | type[JobPerStep], ...] = (Dbos, JobPerStep)
