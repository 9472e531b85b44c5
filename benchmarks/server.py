"""Load one server with open streams and submits, and print the table of docs/performance.md.

    python benchmarks/server.py [--streams 200] [--rate 100] [--seconds 60] [--postgres] [--write docs/performance.md]

One process of `stepwell serve` with a worker, on a store on disk. Each stream follows a run that waits for a person;
one of them after the other is answered through the server, and is followed by a stream of another run. Meanwhile runs
are submitted at a steady rate, each of three supersteps. The time of a submit is that of its HTTP request; the time of
a response is from its HTTP request to its event in the stream; memory and CPU are those of the server's process.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "src"
sys.path.insert(0, str(SOURCE))

import msgspec  # noqa: E402

from stepwell import Executor, WorkflowBuilder, WorkflowContext, executor, handler, response_handler  # noqa: E402

TOKEN = "a token of the benchmark"
BEGIN, END = "<!-- server: begin -->", "<!-- server: end -->"
ON_POSTGRESQL = "<!-- server on postgresql: begin -->", "<!-- server on postgresql: end -->"


class Clerk(Executor):
    @handler
    async def ask(self, number: int, ctx: WorkflowContext[None, bool]) -> None:
        await ctx.request_info("go on?", bool, request_id="q")

    @response_handler
    async def decide(self, original_request: str, response: bool, ctx: WorkflowContext[None, bool]) -> None:
        await ctx.yield_output(response)


@executor(id="count")
async def count(number: int, ctx: WorkflowContext[int, int]) -> None:
    if number > 1:
        await ctx.send_message(number - 1)
    else:
        await ctx.yield_output(number)


asking = WorkflowBuilder(name="asking", start_executor=Clerk("clerk")).build()
counting = WorkflowBuilder(name="counting", start_executor=count).add_edge(count, count).build()


class Connection:
    """A connection that is kept open: the client must cost less than the server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, method: str, path: str, document: Any = None) -> asyncio.StreamReader:
        """Send a request; return the reader behind the head of the answer."""
        is_reused = self._streams is not None
        try:
            return await self._send(method, path, document)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            self.close()
            # A server may close a connection that was idle; then it has not read the request.
            if not is_reused or getattr(error, "partial", b""):
                raise
            return await self._send(method, path, document)

    async def _send(self, method: str, path: str, document: Any) -> asyncio.StreamReader:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)
        reader, writer = self._streams
        body = b"" if document is None else msgspec.json.encode(document)
        lines = [
            f"{method} {path} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Authorization: Bearer {TOKEN}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        if head.split(b" ", 2)[1] not in (b"200", b"201"):
            raise RuntimeError(f"{method} {path}: {head.decode()}")
        self._length = next(
            (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
        )
        return reader

    async def ask(self, method: str, path: str, document: Any = None) -> Any:
        """Send a request; return the answer."""
        reader = await self.send(method, path, document)
        return msgspec.json.decode(await reader.readexactly(self._length))

    async def follow(self, run_id: str) -> AsyncIterator[str]:
        """Yield the types of the events of a run."""
        reader = await self.send("GET", f"/api/v1/runs/{run_id}/events/stream")
        while line := await reader.readline():
            if line.startswith(b"event: "):
                yield line[7:].strip().decode()
                if line.startswith(b"event: end"):
                    break
        self.close()

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Load:
    """What is measured."""

    def __init__(self, port: int, process: int) -> None:
        self.port, self.process = port, process
        self.submits: list[float] = []
        self.responses: list[float] = []
        self.failures: list[str] = []  # of submits
        self.answered_at: dict[str, float] = {}
        self.open, self.most_open = 0, 0
        self.memory: list[int] = []

    async def keep_stream(self, name: str) -> None:
        """Follow a run that waits, then another, and so on."""
        connection, number = Connection(self.port), 0
        while True:
            run_id, number = f"{name}-{number}", number + 1
            order = {"workflow": "asking", "input": 1, "run_id": run_id}
            await connection.ask("POST", "/api/v1/runs", order)
            async for event in connection.follow(run_id):
                if event == "request_info":
                    self.open += 1
                    self.most_open = max(self.most_open, self.open)
                    self.waiting.put_nowait(run_id)
                elif event == "request_answered":
                    self.responses.append(time.perf_counter() - self.answered_at.pop(run_id))
            self.open -= 1

    async def respond(self, per_second: float) -> None:
        connection = Connection(self.port)
        while True:
            run_id = await self.waiting.get()
            await asyncio.sleep(1 / per_second)
            self.answered_at[run_id] = time.perf_counter()
            await connection.ask("POST", f"/api/v1/runs/{run_id}/requests/q/response", {"value": True})

    async def submit(self, rate: float, seconds: float) -> None:
        """Submit at a steady rate, whatever the server does: one that is late is not waited for."""
        free = [Connection(self.port) for _ in range(50)]
        tasks, begin = set[asyncio.Task[None]](), time.perf_counter()

        async def submit_one() -> None:
            connection = free.pop() if free else Connection(self.port)
            sent = time.perf_counter()
            try:
                await connection.ask("POST", "/api/v1/runs", {"workflow": "counting", "input": 3})
            except (asyncio.IncompleteReadError, ConnectionError, RuntimeError) as error:
                self.failures.append(str(error))
                connection.close()
            else:
                self.submits.append(time.perf_counter() - sent)
            free.append(connection)

        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, begin + number / rate - time.perf_counter()))
            task = asyncio.create_task(submit_one())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if tasks:
            await asyncio.wait(tasks)

    async def watch_memory(self) -> None:
        while True:
            self.memory.append(resident(self.process))
            await asyncio.sleep(1)

    async def run(self, streams: int, rate: float, seconds: float) -> float:
        """Apply the load; return for how many seconds."""
        self.waiting = asyncio.Queue[str]()
        keeping = [asyncio.create_task(self.keep_stream(f"stream-{n}")) for n in range(streams)]
        while self.open < streams:
            await asyncio.sleep(0.1)
            for task in keeping:
                if task.done():
                    task.result()
        aside = [asyncio.create_task(self.respond(20)), asyncio.create_task(self.watch_memory())]
        begin = time.perf_counter()
        await self.submit(rate, seconds)
        took = time.perf_counter() - begin
        for task in (*keeping, *aside):
            if task.done():  # they never end by themselves
                task.result()
            task.cancel()
        await asyncio.wait((*keeping, *aside))
        return took


def resident(process: int) -> int:
    """Return the memory of a process in bytes."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(store: str) -> Iterator[tuple[int, int]]:
    """A server with a worker; yields its port and its process."""
    work = [option for name in ("asking", "counting") for option in ("--work", f"server:{name}")]
    command = [sys.executable, "-m", "stepwell.cli", "serve", "--store", store, "--port", "0", "--token", TOKEN]
    path = os.pathsep.join([str(SOURCE), str(Path(__file__).resolve().parent)])
    process = subprocess.Popen(
        [*command, *work],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline()
        yield int(address.rpartition("/login")[0].rpartition(":")[2]), process.pid
    finally:
        process.kill()
        process.wait()


def table(load: Load, took: float, cpu: float) -> list[str]:
    def milliseconds(seconds: list[float], share: int) -> str:
        return f"{statistics.quantiles(seconds, n=100)[share - 1] * 1000:.0f} ms"

    third = max(1, len(load.memory) // 3)
    memory = [statistics.mean(load.memory[at : at + third]) / 2**20 for at in (0, len(load.memory) - third)]
    rows = [
        ("open streams, at most", str(load.most_open)),
        ("submits per second", f"{len(load.submits) / took:.0f}"),
        ("submits that failed", str(len(load.failures))),
        ("a submit, median and 99 %", f"{milliseconds(load.submits, 50)}, {milliseconds(load.submits, 99)}"),
        (
            "from a response to its event in the stream, median and 99 %",
            f"{milliseconds(load.responses, 50)}, {milliseconds(load.responses, 99)}",
        ),
        ("memory, first and last third", f"{memory[0]:.0f} MiB, {memory[1]:.0f} MiB"),
        ("CPU of the server, with its worker", f"{cpu / took:.0%} of a core"),
    ]
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]


def write(page: Path, lines: list[str], begin: str, end: str) -> None:
    text = page.read_text()
    before, found, rest = text.partition(begin)
    if not found:
        raise ValueError(f"{page} has no place for this table: write {begin} and {end} there")
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{chr(10).join(lines)}\n\n{end}{after}")


def measure(store: str, arguments: argparse.Namespace) -> list[str]:
    with served(store) as (port, process):
        load, before = Load(port, process), 0.0
        before = cpu_seconds(process)
        took = asyncio.run(load.run(arguments.streams, arguments.rate, arguments.seconds))
        return table(load, took, cpu_seconds(process) - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL server instead of a SQLite file")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    arguments = parser.parse_args()
    if arguments.postgres:
        import postgres

        with postgres.server() as server, postgres.fresh_database(server) as address:
            lines = measure(address, arguments)
    else:
        with tempfile.TemporaryDirectory(prefix="stepwell-server-", dir=Path.cwd()) as folder:
            lines = measure(str(Path(folder) / "runs.db"), arguments)
    print("\n".join(lines))
    if arguments.write is not None:
        write(arguments.write, lines, *(ON_POSTGRESQL if arguments.postgres else (BEGIN, END)))


if __name__ == "__main__":
    main()
