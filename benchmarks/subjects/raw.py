"""Raw baselines: the least that a Python program must do for the same durability, one record per superstep."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import msgspec
from job import Job, Subject
from material import conversation

Write = Callable[[bytes], object]
WARM = 10
BODY = b"x" * 320  # as large as a record of Stepwell in `chain`
STEP = b"x" * 720  # as large as a stored step in `steps`


@contextmanager
def log(job: Job) -> Iterator[Write]:
    file = os.open(job.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(record: bytes) -> None:
        os.write(file, record + b"\n")
        os.fsync(file)

    yield write
    os.close(file)


@contextmanager
def sqlite(job: Job) -> Iterator[Write]:
    # Each statement is a transaction.
    database = sqlite3.connect(job.folder / "raw.db", isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE commits (number INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    yield lambda record: database.execute("INSERT INTO commits (body) VALUES (?)", (record,))
    database.close()


@contextmanager
def postgres(job: Job) -> Iterator[Write]:
    import psycopg

    with psycopg.connect(job.dsn or "", autocommit=True) as connection:
        connection.execute("CREATE TABLE commits (number BIGSERIAL PRIMARY KEY, body BYTEA NOT NULL)")
        yield lambda record: connection.execute("INSERT INTO commits (body) VALUES (%b)", (record,), prepare=True)


WRITERS = {"log": log, "sqlite": sqlite, "postgres": postgres}


async def handle(record: bytes) -> bytes:
    return record


async def write_all(job: Job, place: str, records: Sequence[bytes]) -> None:
    """Await a handler for each record, and write what it returns."""
    with WRITERS[place](job) as write:
        for record in records[:WARM]:
            write(await handle(record))
        with job.counted():
            for record in records:
                write(await handle(record))


async def write_in_thread(job: Job, place: str, records: Sequence[bytes]) -> None:
    """Do the same in another thread, so that the disk does not block the event loop."""
    run = asyncio.get_running_loop().run_in_executor
    with WRITERS[place](job) as write, ThreadPoolExecutor(1) as thread:
        for record in records[:WARM]:
            await run(thread, write, await handle(record))
        with job.counted():
            for record in records:
                await run(thread, write, await handle(record))


async def chain(job: Job, place: str) -> None:
    await write_all(job, place, [BODY] * job["supersteps"])


async def growth(job: Job, place: str) -> None:
    await write_all(job, place, [msgspec.json.encode(message) for message in conversation(job["turns"])])


async def steps(job: Job, place: str) -> None:
    await write_all(job, place, [STEP] * job["steps"])


async def chain_in_thread(job: Job, place: str) -> None:
    await write_in_thread(job, place, [BODY] * job["supersteps"])


async def steps_in_thread(job: Job, place: str) -> None:
    await write_in_thread(job, place, [STEP] * job["steps"])


async def many(job: Job, place: str) -> None:
    async def one(write: Write) -> None:
        for _ in range(job["supersteps"]):
            write(await handle(BODY))
            await asyncio.sleep(0)

    with WRITERS[place](job) as write, job.counted():
        await asyncio.gather(*(one(write) for _ in range(job["runs"])))


SUBJECTS = [
    Subject(case, f"raw-{place}", "sync", partial(run, place=place), postgres=place == "postgres")
    for case, run in (("chain", chain), ("growth", growth), ("many", many), ("steps", steps))
    for place in WRITERS
] + [
    Subject(case, "raw-sqlite-thread", "sync", partial(run, place="sqlite"))
    for case, run in (("chain", chain_in_thread), ("steps", steps_in_thread))
]
