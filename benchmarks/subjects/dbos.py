"""DBOS: a workflow function with recorded steps. A superstep is a step, or several steps in parallel."""

import asyncio
import importlib.util
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from crash import CRASHES, HANDLERS, LAST, Marks
from dbos import DBOS, SetWorkflowID
from job import Job, Laps, Subject
from material import conversation, documents, step_result

WARM = 10
PLACES = ("sqlite", "postgres")
ID = "one"


def configure(job: Job, place: str) -> None:
    """Configure DBOS. Call it before workflows and steps are declared."""
    options: Any = {"name": "bench", "log_level": "ERROR", "application_version": "1", "executor_id": "bench"}
    DBOS(config=options | {"system_database_url": database(job, place)})


def database(job: Job, place: str) -> str:
    if place == "postgres":
        return str(job.dsn)
    file = job.folder / "dbos.db"
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode = WAL")  # faster than its default, and as safe
    connection.close()
    return f"sqlite:///{file}"


@asynccontextmanager
async def launched() -> AsyncIterator[None]:
    DBOS.launch()
    yield
    await asyncio.to_thread(DBOS.destroy)


async def chain(job: Job, place: str) -> None:
    configure(job, place)

    @DBOS.step()
    async def turn(left: int) -> int:
        return left - 1

    @DBOS.workflow()
    async def loop(left: int) -> None:
        while left:
            left = await turn(left)

    async with launched():
        await loop(WARM)
        with job.counted():
            await loop(job["supersteps"])


async def growth(job: Job, place: str) -> None:
    configure(job, place)
    laps, messages = Laps(), conversation(job["turns"])

    @DBOS.step()
    async def turn(number: int) -> dict[str, str]:
        laps.mark()
        return messages[number]

    @DBOS.workflow()
    async def talk(turns: int) -> int:
        heard = [await turn(number) for number in range(turns)]
        return len(heard)

    async with launched():
        await talk(WARM)
        laps.forget()
        with job.counted():
            await talk(job["turns"])
    laps.note_costs(job)


async def big(job: Job, place: str) -> None:
    """The documents are the input of the workflow, which is stored once."""
    configure(job, place)

    @DBOS.step()
    async def turn(count: int) -> int:
        return count + 1

    @DBOS.workflow()
    async def shelf(texts: list[str], supersteps: int) -> None:
        count = await turn(0)
        job.start()
        while count <= supersteps:
            count = await turn(count)
        job.stop()

    async with launched():
        await shelf(documents(job["kib"]), job["supersteps"])


async def fanout(job: Job, place: str) -> None:
    configure(job, place)

    @DBOS.step()
    async def work(number: int) -> int:
        return number

    @DBOS.step()
    async def join(done: list[int]) -> int:
        return len(done)

    @DBOS.workflow()
    async def fan(rounds: int) -> None:
        for _ in range(rounds):
            await join(await asyncio.gather(*(work(number) for number in range(job["width"]))))

    async with launched():
        await fan(1)
        with job.counted():
            await fan(job["rounds"])


async def many(job: Job, place: str) -> None:
    configure(job, place)
    laps = Laps()

    @DBOS.step()
    async def turn(run: int, left: int) -> int:
        laps.mark(run)
        return left - 1

    @DBOS.workflow()
    async def loop(run: int, left: int) -> None:
        while left:
            left = await turn(run, left)

    async with launched():
        await loop(-1, WARM)
        laps.forget()
        with job.counted():
            await asyncio.gather(*(loop(run, job["supersteps"]) for run in range(job["runs"])))
    laps.note_latencies(job)


async def steps(job: Job, place: str) -> None:
    configure(job, place)

    @DBOS.step()
    async def turn(number: int) -> str:
        return step_result(number)

    @DBOS.workflow()
    async def loop(steps: int) -> int:
        return sum([len(await turn(number)) for number in range(steps)])

    async with launched():
        await loop(WARM)
        with job.counted():
            await loop(job["steps"])


async def agent(job: Job, place: str) -> None:
    from pydantic_ai.durable_exec.dbos import DBOSDurability
    from scripted_agent import look_up_text, make_agent

    configure(job, place)

    @DBOS.step()
    async def look_up(number: int) -> str:
        return look_up_text(number)

    bench = make_agent(DBOSDurability(), look_up)

    @DBOS.workflow()
    async def talk(requests: int) -> str:
        return (await bench.run(str(requests))).output

    async with launched():
        await talk(WARM)
        with job.counted():
            await talk(job["requests"])


async def crash(job: Job, place: str) -> None:
    configure(job, place)
    marks = Marks(job)

    @DBOS.step()
    async def work(number: int) -> int:
        marks.called(number)
        if number == LAST and not job.again:
            await asyncio.sleep(3600)
        marks.returns()
        return number

    @DBOS.workflow()
    async def ten() -> list[int]:
        return await asyncio.gather(*(work(number) for number in range(HANDLERS)))

    async with launched():  # launching recovers interrupted workflows
        if job.again:
            handle: Any = await DBOS.retrieve_workflow_async(ID)
            assert len(await handle.get_result()) == HANDLERS
        else:
            with SetWorkflowID(ID):
                await ten()


CASES: Mapping[str, Any] = {
    "chain": chain,
    "growth": growth,
    "big": big,
    "fanout": fanout,
    "many": many,
    "steps": steps,
    **({"agent": agent} if importlib.util.find_spec("pydantic_ai") is not None else {}),
    **dict.fromkeys(CRASHES, crash),
}
SUBJECTS = [
    Subject(case, f"dbos-{place}", "sync", partial(run, place=place), postgres=place == "postgres")
    for case, run in CASES.items()
    for place in PLACES
]
