"""Raw baselines: the least that a Python program must do for the same durability."""

import asyncio
import json
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from job import Job, Keeps, Laps, Subject
from material import conversation

Write = Callable[[bytes], None]
PLACES: dict[str, Keeps] = {"loop": "none", "log": "sync", "sqlite": "sync", "postgres": "sync"}


@contextmanager
def writer(place: str, job: Job) -> Iterator[Write]:
    """Yield a function that makes one record durable per call."""
    match place:
        case "log":
            with log(job) as write:
                yield write
        case "sqlite":
            with sqlite(job) as write:
                yield write
        case "postgres":
            with postgres(job) as write:
                yield write
        case _:
            yield lambda record: None


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
    database = sqlite3.connect(job.folder / "raw.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE commits (number INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    def write(record: bytes) -> None:  # in autocommit mode each statement is a transaction
        database.execute("INSERT INTO commits (body) VALUES (?)", (record,))

    yield write
    database.close()


@contextmanager
def postgres(job: Job) -> Iterator[Write]:
    import psycopg

    with psycopg.connect(job.dsn or "", autocommit=True) as connection:
        connection.execute("CREATE TABLE commits (number BIGSERIAL PRIMARY KEY, body BYTEA NOT NULL)")

        def write(record: bytes) -> None:
            connection.execute("INSERT INTO commits (body) VALUES (%b)", (record,), prepare=True)

        yield write


async def handle(state: dict[str, Any], change: Any) -> Any:
    state["left"] = state.get("left", 0) + 1
    return change


async def loop(supersteps: int, change: Callable[[int], Any], write: Write, laps: Laps | None = None) -> None:
    """Run a superstep: await a handler, and write its change."""
    state: dict[str, Any] = {}
    for number in range(supersteps):
        if laps is not None:
            laps.mark()
        changed = await handle(state, change(number))
        write(json.dumps(changed).encode())


async def bare_loop(supersteps: int) -> None:
    state: dict[str, Any] = {}
    for number in range(supersteps):
        await handle(state, number)


async def chain(job: Job, place: str) -> None:
    with writer(place, job) as write:
        await loop(10, lambda number: {"left": number}, write)
        with job.counted():
            if place == "loop":
                await bare_loop(job["supersteps"])
            else:
                await loop(job["supersteps"], lambda number: {"left": number}, write)


async def growth(job: Job, place: str) -> None:
    messages, laps = conversation(job["turns"]), Laps()
    with writer(place, job) as write:
        await loop(10, lambda number: messages[number], write)
        with job.counted():
            await loop(job["turns"], lambda number: messages[number], write, laps)
    laps.note_costs(job, [turn for turn in (10, 100, 1000, 3000) if turn <= job["turns"]], job["window"])


async def big(job: Job, place: str) -> None:
    """Write only the counter: the documents do not change."""
    await chain(job, place)


async def fanout(job: Job, place: str) -> None:
    """Run rounds of two supersteps: all workers in parallel, then the hub."""

    async def work(number: int) -> int:
        return number

    with writer(place, job) as write, job.counted():
        for _ in range(job["rounds"]):
            done = await asyncio.gather(*(work(number) for number in range(job["width"])))
            write(json.dumps(done).encode())
            write(json.dumps({"left": len(done)}).encode())


async def many(job: Job, place: str) -> None:
    laps = Laps()

    async def one(run: int, write: Write) -> None:
        for number in range(job["supersteps"]):
            laps.mark(run)
            write(json.dumps({"run": run, "left": number}).encode())
            await asyncio.sleep(0)

    with writer(place, job) as write, job.counted():
        await asyncio.gather(*(one(run, write) for run in range(job["runs"])))
    laps.note_latencies(job)


CASES: dict[str, Callable[..., Awaitable[None]]] = {
    "chain": chain,
    "growth": growth,
    "long": growth,
    "big": big,
    "fanout": fanout,
    "many": many,
}
SUBJECTS = [
    Subject(case, f"raw-{place}", keeps, partial(run, place=place), postgres=place == "postgres")
    for case, run in CASES.items()
    for place, keeps in PLACES.items()
    if (case, place) not in {("growth", "loop"), ("long", "loop"), ("big", "loop")}
]
