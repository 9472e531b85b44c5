"""Measure workers on PostgreSQL, and print the tables of docs/at-scale.md.

    python benchmarks/workers.py [--quick] [--write docs/at-scale.md]

Supersteps per second with 1, 2 and 4 worker processes, with handlers that wait and with handlers that compute; submits
per second; the time from a submit, and from a response, to the next handler; refused acquisitions; and what a look at
the store costs beside runs that wait for people.
"""

import argparse
import asyncio
import multiprocessing
import re
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import postgres

from stepwell import (
    Executor,
    PostgresCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
)
from stepwell.worker import Worker

SUPERSTEPS, WAIT, SLOTS = 20, 0.05, 20
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def storage_on(dsn: str) -> PostgresCheckpointStorage:
    return PostgresCheckpointStorage(dsn)


def counting(storage: PostgresCheckpointStorage, seconds: float) -> Workflow:
    """A run of 20 supersteps, whose handlers wait for so many seconds."""

    @executor(id="count")
    async def count(number: int, ctx: WorkflowContext[int, int]) -> None:
        if seconds:
            await asyncio.sleep(seconds)
        if number < SUPERSTEPS:
            await ctx.send_message(number + 1)
        else:
            await ctx.yield_output(number)

    name = "waiting" if seconds else "computing"
    return WorkflowBuilder(name=name, start_executor=count, checkpoint_storage=storage).add_edge(count, count).build()


class Clerk(Executor):
    """Writes down when its handlers are called, in the outputs."""

    @handler
    async def ask(self, sent: float, ctx: WorkflowContext[None, float]) -> None:
        await ctx.yield_output(time.time())
        await ctx.request_info("go on?", float, request_id="q")

    @response_handler
    async def answered(self, original_request: str, response: float, ctx: WorkflowContext[None, float]) -> None:
        await ctx.yield_output(time.time())


def asking(storage: PostgresCheckpointStorage) -> Workflow:
    return WorkflowBuilder(name="asking", start_executor=Clerk("clerk"), checkpoint_storage=storage).build()


# -------------------------------------------------------------------- worker processes


def work(dsn: str, slots: int, report: Any) -> None:
    """A worker process. At the end it reports what it has counted."""

    async def serve() -> None:
        storage = storage_on(dsn)
        workflows = [counting(storage, WAIT), counting(storage, 0), asking(storage)]
        worker = Worker(storage, workflows, slots=slots, grace=1)
        serving = asyncio.create_task(worker.serve())
        await asyncio.to_thread(report.recv)
        worker.stop()
        await serving
        report.send({metric.name: metric.values.get((), 0) for metric in await worker.metrics()})
        await storage.close()

    asyncio.run(serve())


@contextmanager
def workers(dsn: str, count: int, *, slots: int = SLOTS) -> Iterator[list[dict[str, float]]]:
    """Worker processes for the length of the block; what they have counted is in the list afterwards."""
    counted: list[dict[str, float]] = []
    pipes = [multiprocessing.Pipe() for _ in range(count)]
    processes = [multiprocessing.Process(target=work, args=(dsn, slots, theirs)) for _, theirs in pipes]
    for process in processes:
        process.start()
    asyncio.run(until_seen(dsn, count))
    try:
        yield counted
    finally:
        for ours, _ in pipes:
            ours.send("stop")
        counted += [ours.recv() for ours, _ in pipes]
        for process in processes:
            process.join()


async def until_seen(dsn: str, count: int) -> None:
    async with storage_on(dsn) as storage:
        while sum(worker.is_alive for worker in await storage.list_workers()) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(5.5)  # until they know each other: they look every five seconds


# -------------------------------------------------------------------- measurements


async def submit(dsn: str, seconds: float, runs: range) -> float:
    """Submit runs, 50 at a time; return how many per second."""
    async with storage_on(dsn) as storage:
        workflow = counting(storage, seconds)
        began = time.perf_counter()
        for first in runs[::50]:
            await asyncio.gather(*(workflow.submit(0, run_id=f"r{n}") for n in runs if first <= n < first + 50))
        return len(runs) / (time.perf_counter() - began)


async def until_done(dsn: str, runs: int) -> None:
    async with storage_on(dsn) as storage:
        assert storage._statistics is not None
        while (await storage._statistics.statistics()).runs.get("IDLE", 0) < runs:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def throughput(server: str, count: int, seconds: float, runs: int) -> tuple[float, float]:
    """Return supersteps per second, and refused acquisitions per acquisition."""
    with postgres.fresh_database(server) as dsn:
        asyncio.run(submit(dsn, seconds, range(1)))
        with workers(dsn, count) as counted:
            asyncio.run(until_done(dsn, 1))
            began = time.perf_counter()
            asyncio.run(submit(dsn, seconds, range(1, runs + 1)))
            asyncio.run(until_done(dsn, runs + 1))
            took = time.perf_counter() - began
        refused = sum(each["worker_refused_acquisitions"] for each in counted)
        drives = sum(each["worker_drives"] for each in counted)
    return runs * (SUPERSTEPS + 1) / took, refused / max(refused + drives, 1)


async def latencies(dsn: str, times: int) -> tuple[list[float], list[float]]:
    """Return the seconds from a submit, and from a response, to the handler in another process."""
    submitted, answered = [], []
    async with storage_on(dsn) as storage:
        workflow = asking(storage)
        for n in range(times):
            began = time.time()
            run_id = await workflow.submit(began, run_id=f"ask-{n}")
            await reaches(storage, run_id, "waiting")
            asked = time.time()
            await workflow.respond(run_id, "q", asked)
            await reaches(storage, run_id, "completed")
            first, second = (await workflow.result(run_id)).get_outputs()
            submitted.append(first - began)
            answered.append(second - asked)
    return submitted, answered


async def reaches(storage: PostgresCheckpointStorage, run_id: str, standing: str) -> None:
    while (run := await storage.get_run(run_id)) is None or run.standing != standing:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def cost_of_a_look(dsn: str, waiting: int, looks: int) -> float:
    """Return the milliseconds of a look for ready runs beside so many runs that wait for people."""
    async with storage_on(dsn) as storage:
        workflow = asking(storage)
        await workflow.run(0.0, run_id="wait")
        import psycopg

        # Copies of one row: what counts is how many rows the index has.
        columns = "hash, workflow, began, is_child, caller, tags, wake, status, number, iteration, checkpoint_id, at"
        with psycopg.connect(dsn, autocommit=True) as db:
            db.execute(
                f"INSERT INTO stepwell.runs (run_id, {columns}) SELECT 'copy-' || n, {columns} "
                f"FROM stepwell.runs, generate_series(1, {waiting - 1}) AS n WHERE run_id = 'wait'".encode()
            )
            db.execute(b"VACUUM ANALYZE stepwell.runs")
        times = []
        for _ in range(looks):
            began = time.perf_counter()
            await storage.ready_runs(workflow_name="asking", limit=50)
            times.append(time.perf_counter() - began)
        return statistics.median(times) * 1000


# -------------------------------------------------------------------- the tables


def tables(quick: bool) -> Iterator[str]:
    runs, times = (20, 10) if quick else (200, 200)
    with postgres.server() as server:
        yield "| workers | supersteps/s, handlers wait 50 ms | supersteps/s, no handler waits | refused acquisitions |"
        yield "|---:|---:|---:|---:|"
        first: tuple[float, float] | None = None
        for count in (1, 2, 4):
            waiting, refused = throughput(server, count, WAIT, runs * count)
            computing, refused_too = throughput(server, count, 0.0, runs)
            first = first or (waiting, computing)
            yield (
                f"| {count} | {waiting:,.0f} ({waiting / first[0]:.2f}x) | {computing:,.0f} "
                f"({computing / first[1]:.2f}x) | {max(refused, refused_too):.1%} |"
            )
        yield ""
        yield "| | p50 | p99 |"
        yield "|---|---:|---:|"
        with postgres.fresh_database(server) as dsn, workers(dsn, 1):
            submitted, answered = asyncio.run(latencies(dsn, times))
        for name, seconds in (("submit → first handler", submitted), ("respond → next handler", answered)):
            yield f"| {name} | {quantile(seconds, 0.5) * 1000:.0f} ms | {quantile(seconds, 0.99) * 1000:.0f} ms |"
        yield ""
        with postgres.fresh_database(server) as dsn:
            rate = asyncio.run(submit(dsn, WAIT, range(runs)))
        yield f"Submits, 50 at a time, from one process: {rate:,.0f} per second."
        yield ""
        yield "| runs that wait for people | a look for ready runs |"
        yield "|---:|---:|"
        for waiting in (1, 1_000, 100_000):
            with postgres.fresh_database(server) as dsn:
                yield f"| {waiting:,} | {asyncio.run(cost_of_a_look(dsn, waiting, times)):.2f} ms |"


def quantile(values: list[float], part: float) -> float:
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--write", type=Path, help="a page in which to replace the figures")
    asked = parser.parse_args()
    multiprocessing.set_start_method("spawn")
    lines = []
    for line in tables(asked.quick):
        print(line, flush=True)
        lines.append(line)
    if asked.write is not None:
        text = "\n".join(lines)
        page = asked.write.read_text()
        pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
        asked.write.write_text(pattern.sub(lambda _: f"{BEGIN}\n\n{text}\n\n{END}", page))


if __name__ == "__main__":
    main()
