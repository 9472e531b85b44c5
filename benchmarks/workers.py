"""Measure workers on PostgreSQL, and print the tables of docs/at-scale.md.

    python benchmarks/workers.py [--quick] [--write docs/at-scale.md]

For each dispatcher: supersteps per second with 1, 2 and 4 worker processes, with handlers that wait and with handlers
that compute; refused acquisitions; the time from a submit, and from a response, to the next handler. Submits per
second; what a superstep costs the server; what a look at the store costs beside runs that wait for people. Beside
them, in the same run: other queues, if they are installed (`make .venv-bench/.ready`).
"""

import argparse
import asyncio
import importlib.util
import multiprocessing
import re
import statistics
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import postgres
import psycopg
from queue_peers import PEERS, prepare

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
from stepwell.worker import Polling, Procrastinate, Worker, WorkerDispatcher

SUPERSTEPS, WAIT, SLOTS = 20, 0.05, 20
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


DISPATCHERS = ("polling", "procrastinate")


def storage_on(dsn: str) -> PostgresCheckpointStorage:
    return PostgresCheckpointStorage(dsn)


def dispatcher_of(name: str) -> WorkerDispatcher:
    return Procrastinate() if name == "procrastinate" else Polling()


def announcing(name: str, storage: PostgresCheckpointStorage) -> AbstractAsyncContextManager[None]:
    """Inside the block, announce what is stored as the dispatcher wants it."""
    return Procrastinate().announcing(storage) if name == "procrastinate" else nullcontext()


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


def work(dsn: str, dispatcher: str, report: Any) -> None:
    """A worker process. At the end it reports what it has counted."""

    async def serve() -> None:
        storage = storage_on(dsn)
        workflows = [counting(storage, WAIT), counting(storage, 0), asking(storage)]
        worker = Worker(storage, workflows, slots=SLOTS, grace=1, dispatcher=dispatcher_of(dispatcher))
        serving = asyncio.create_task(worker.serve())
        await asyncio.to_thread(report.recv)
        worker.stop()
        await serving
        report.send({metric.name: metric.values.get((), 0) for metric in await worker.metrics()})
        await storage.close()

    asyncio.run(serve())


@contextmanager
def workers(dsn: str, count: int, dispatcher: str) -> Iterator[list[dict[str, float]]]:
    """Worker processes for the length of the block; what they have counted is in the list afterwards."""
    counted: list[dict[str, float]] = []
    pipes = [multiprocessing.Pipe() for _ in range(count)]
    processes = [multiprocessing.Process(target=work, args=(dsn, dispatcher, theirs)) for _, theirs in pipes]
    asyncio.run(migrate(dsn, dispatcher))
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


async def migrate(dsn: str, dispatcher: str) -> None:
    async with storage_on(dsn) as storage:
        await storage.list_runs(limit=1)
        if dispatcher == "procrastinate":
            await Procrastinate().migrate(storage)


async def until_seen(dsn: str, count: int) -> None:
    async with storage_on(dsn) as storage:
        while sum(worker.is_alive for worker in await storage.list_workers()) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(5.5)  # until they know each other: they look every five seconds


# -------------------------------------------------------------------- measurements


async def submit(dsn: str, dispatcher: str, seconds: float, runs: range) -> float:
    """Submit runs, 50 at a time; return how many per second."""
    async with storage_on(dsn) as storage, announcing(dispatcher, storage):
        workflow = counting(storage, seconds)
        began = time.perf_counter()
        for first in runs[::50]:
            ids = (f"{workflow.name}-{n}" for n in runs if first <= n < first + 50)
            await asyncio.gather(*(workflow.submit(0, run_id=run_id) for run_id in ids))
        return len(runs) / (time.perf_counter() - began)


async def until_done(dsn: str, runs: int) -> None:
    async with storage_on(dsn) as storage:
        assert storage._statistics is not None
        while (await storage._statistics.statistics()).runs.get("IDLE", 0) < runs:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@dataclass
class Throughput:
    """What so many workers have done."""

    waiting: float  # supersteps per second, with handlers that wait
    computing: float  # and with handlers that do not
    refused: float  # acquisitions, of all
    per_core: float  # commits per second of processor time in the server
    log: float  # bytes of write-ahead log per superstep


def throughput(server: str, dispatcher: str, count: int, runs: int) -> Throughput:
    with postgres.fresh_database(server) as dsn, workers(dsn, count, dispatcher) as counted:
        gauge, done = postgres.Gauge(dsn), 0
        rates, costs = [], []
        for seconds, number in ((WAIT, runs * count), (0.0, runs)):
            # The first run loads everything.
            asyncio.run(submit(dsn, dispatcher, seconds, range(1)))
            asyncio.run(until_done(dsn, done + 1))
            began, cpu, log = time.perf_counter(), gauge.cpu(), gauge.log_written()
            asyncio.run(submit(dsn, dispatcher, seconds, range(1, number + 1)))
            asyncio.run(until_done(dsn, done := done + 1 + number))
            supersteps = number * (SUPERSTEPS + 1)
            rates.append(supersteps / (time.perf_counter() - began))
            costs.append((supersteps / (gauge.cpu() - cpu), (gauge.log_written() - log) / supersteps))
        gauge.close()
    refused = sum(each["worker_refused_acquisitions"] for each in counted)
    drives = sum(each["worker_drives"] for each in counted)
    return Throughput(*rates, refused / max(refused + drives, 1), *costs[1])


def peer_throughput(server: str, peer: Any, count: int, runs: int) -> list[float]:
    """Return steps per second of another queue, with steps that wait and with steps that do not."""
    rates, done = [], 0
    with postgres.fresh_database(server) as dsn:
        prepare(peer, dsn)
        pipes = [multiprocessing.Pipe() for _ in range(count)]
        processes = [multiprocessing.Process(target=peer.serve, args=(dsn, SLOTS, theirs)) for _, theirs in pipes]
        for process in processes:
            process.start()
        for ours, _ in pipes:
            ours.recv()
        for seconds in (WAIT, 0.0):
            began = time.perf_counter()
            asyncio.run(peer.submit(dsn, seconds, runs))
            done += runs
            while peer.count(dsn) < done:
                time.sleep(0.05)
            rates.append(runs * SUPERSTEPS / (time.perf_counter() - began))
        for (ours, _), process in zip(pipes, processes, strict=True):
            ours.send("stop")
            process.join(20)
            process.kill()
    return rates


async def latencies(dsn: str, dispatcher: str, times: int) -> tuple[list[float], list[float]]:
    """Return the seconds from a submit, and from a response, to the handler in another process."""
    submitted, answered = [], []
    async with storage_on(dsn) as storage, announcing(dispatcher, storage):
        workflow = asking(storage)
        for n in range(-1, times):
            began = time.time()
            run_id = await workflow.submit(began, run_id=f"ask-{n}")
            await reaches(storage, run_id, "waiting")
            asked = time.time()
            await workflow.respond(run_id, "q", asked)
            await reaches(storage, run_id, "completed")
            first, second = (await workflow.result(run_id)).get_outputs()
            submitted.append(first - began)
            answered.append(second - asked)
    return submitted[1:], answered[1:]  # the first run loads everything


async def reaches(storage: PostgresCheckpointStorage, run_id: str, standing: str) -> None:
    while (run := await storage.get_run(run_id)) is None or run.standing != standing:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def cost_of_a_look(dsn: str, waiting: int, looks: int) -> float:
    """Return the milliseconds of a look for ready runs beside so many runs that wait for people."""
    async with storage_on(dsn) as storage:
        workflow = asking(storage)
        await workflow.run(0.0, run_id="wait")
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
    runs, times = (20, 10) if quick else (100, 300)
    with postgres.server() as server:
        ours = yield from throughput_table(server, runs)
        yield ""
        yield from peer_table(server, runs, ours)
        yield ""
        yield from latency_table(server, times)
        yield ""
        with postgres.fresh_database(server) as dsn:
            rate = asyncio.run(submit(dsn, "polling", WAIT, range(2 * runs)))
        yield f"Submits, 50 at a time, from one process: {rate:,.0f} per second."
        yield ""
        yield "| runs that wait for people | a look for ready runs |"
        yield "|---:|---:|"
        for waiting in (1, 1_000, 100_000):
            with postgres.fresh_database(server) as dsn:
                yield f"| {waiting:,} | {asyncio.run(cost_of_a_look(dsn, waiting, times)):.2f} ms |"


def throughput_table(server: str, runs: int) -> Generator[str, None, dict[int, Throughput]]:
    """Yield the table; return what the default dispatcher has done, by the number of workers."""
    yield (
        "| dispatcher | workers | supersteps/s, handlers wait 50 ms | supersteps/s, no handler waits "
        "| refused acquisitions | supersteps/s per core of the server | log per superstep |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|"
    default: dict[int, Throughput] = {}
    for dispatcher in DISPATCHERS:
        first: Throughput | None = None
        for count in (1, 2, 4):
            seen = throughput(server, dispatcher, count, runs)
            first = first or seen
            default.setdefault(count, seen)
            yield (
                f"| {dispatcher} | {count} | {seen.waiting:,.0f} ({seen.waiting / first.waiting:.2f}x) "
                f"| {seen.computing:,.0f} ({seen.computing / first.computing:.2f}x) | {seen.refused:.1%} "
                f"| {seen.per_core:,.0f} | {seen.log:,.0f} bytes |"
            )
    return default


def peer_table(server: str, runs: int, ours: dict[int, Throughput]) -> Iterator[str]:
    yield "| other queues | workers | steps/s, steps wait 50 ms | Stepwell | steps/s, no step waits | Stepwell |"
    yield "|---|---:|---:|---:|---:|---:|"
    for peer in PEERS:
        if importlib.util.find_spec(peer.package) is None:
            yield f"| {peer.name} | not installed | | | | |"
            continue
        for count in (1, 2):
            waiting, computing = peer_throughput(server, peer, count, runs)
            yield (
                f"| {peer.name} | {count} | {waiting:,.0f} | {ours[count].waiting / waiting:.1f}x "
                f"| {computing:,.0f} | {ours[count].computing / computing:.1f}x |"
            )


def latency_table(server: str, times: int) -> Iterator[str]:
    yield "| dispatcher | from, to | p50 | p99 |"
    yield "|---|---|---:|---:|"
    for dispatcher in DISPATCHERS:
        with postgres.fresh_database(server) as dsn, workers(dsn, 1, dispatcher):
            submitted, answered = asyncio.run(latencies(dsn, dispatcher, times))
        for name, seconds in (("submit → first handler", submitted), ("respond → next handler", answered)):
            p50, p99 = quantile(seconds, 0.5) * 1000, quantile(seconds, 0.99) * 1000
            yield f"| {dispatcher} | {name} | {p50:.0f} ms | {p99:.0f} ms |"
    yield ""
    yield f"Each {times} times, one after the other, after a first time that loads everything and is not counted."


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
