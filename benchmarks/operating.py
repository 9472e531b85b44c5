"""Measure listing, showing, answering and pruning in stores of a thousand to a million checkpoints.

Each command runs in its own process. The same operation is also measured through the API, on an open store.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import machine
import postgres
from stocking import Stock, stock

from stepwell import PostgresCheckpointStorage, SQLiteCheckpointStorage
from stepwell.admin import Keep, examine, find_checkpoint, prune, respond
from stepwell.storage.built_in_storage import BuiltInStorage

BEGIN, END = "<!-- operating: begin -->", "<!-- operating: end -->"
KEPT = 10  # checkpoints that pruning keeps per run


@dataclass(frozen=True, slots=True)
class Measured:
    """One operation in one store, in milliseconds or checkpoints per second."""

    store: str
    checkpoints: int
    what: str
    command_cpu: float | None = None
    command_wall: float | None = None
    called: float | None = None
    rate: float | None = None


Call = Callable[[], Awaitable[object]]


@dataclass(slots=True)
class Bench:
    """A store filled with runs."""

    store: str
    address: str
    storage: BuiltInStorage
    made: Stock
    repeats: int

    async def all(self, what: str, call: Call) -> Measured:
        """Measure once an operation that visits every checkpoint."""
        took = await _took(call)
        return Measured(self.store, self.made.checkpoints, what, called=took, rate=self.made.checkpoints / took * 1000)


@dataclass(slots=True)
class Deed:
    """An operation that reads or writes little: as commands, and as calls of the API."""

    what: str
    bench: Bench
    commands: list[Sequence[str]]
    calls: list[Call]
    ran: list[tuple[float, float]] = field(default_factory=list)
    took: list[float] = field(default_factory=list)

    async def do(self, turn: int) -> None:
        if turn < len(self.commands):
            self.ran.append(_ran(["--store", self.bench.address, *self.commands[turn]]))
        if turn < len(self.calls):
            self.took.append(await _took(self.calls[turn]))

    def measured(self) -> Measured:
        wall, cpu = (statistics.median(column) for column in zip(*self.ran, strict=True))
        return Measured(
            self.bench.store, self.bench.made.checkpoints, self.what, cpu, wall, statistics.median(self.took)
        )


def _ran(arguments: Sequence[str]) -> tuple[float, float]:
    """Return the elapsed time and the CPU time of a command, in milliseconds."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "stepwell.cli", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"stepwell {' '.join(arguments)} exited with {process.returncode}")
    return (time.perf_counter() - began) * 1000, (used.ru_utime + used.ru_stime) * 1000


async def _took(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1000


async def deeds(bench: Bench) -> list[Deed]:
    """Return the operations that read or write little."""
    storage, some, long = bench.storage, bench.made.waiting[len(bench.made.waiting) // 2][:8], bench.made.long

    async def shown(name: str) -> None:
        await storage.load((await find_checkpoint(storage, name)).checkpoint_id)

    waiting = {"status": "IDLE_WITH_PENDING_REQUESTS", "tags": {"team": "north"}}
    asked = ["list", "--json", "--status", "waiting", "--tag", "team=north"]
    reading: list[tuple[str, list[str], Call]] = [
        ("`list`", ["list", "--json"], lambda: storage.list_runs(limit=51)),
        ("`list --status --tag`", asked, lambda: storage.list_runs(**waiting, limit=51)),
        ("`list --text`, no match", ["list", "--json", "--text", "xyz"], lambda: storage.list_runs(text="xyz")),
        ("`show`, by an 8-character prefix", ["show", some, "--json"], lambda: shown(some)),
        ("`show`, a run with a tenth of all checkpoints", ["show", long, "--json"], lambda: shown(long)),
        ("`requests`", ["requests", "--json"], lambda: storage.pending_requests(limit=51)),
    ]
    often = bench.repeats
    return [
        *(Deed(what, bench, [command] * often, [call] * often) for what, command, call in reading),
        await answers(bench),
    ]


async def answers(bench: Bench) -> Deed:
    """Return responses, each to another request."""
    storage = bench.storage
    runs = bench.made.waiting[: 2 * bench.repeats]
    ids = [(await storage.pending_requests(run_id=run))[0].request_id for run in runs]
    pairs = list(zip(runs, ids, strict=True))
    commands: list[Sequence[str]] = [["respond", run, id, "--json", "true"] for run, id in pairs[::2]]
    calls = [lambda run=run, id=id: respond(storage, run, id, True) for run, id in pairs[1::2]]
    return Deed("`respond`", bench, commands, calls)


async def looked(benches: Sequence[Bench]) -> AsyncIterator[Measured]:
    """Measure each operation in all stores in turn, so that a busy minute affects all of them."""
    for same in zip(*[await deeds(bench) for bench in benches], strict=True):
        for turn in range(benches[0].repeats):
            for deed in same:
                await deed.do(turn)
        for deed in same:
            yield deed.measured()


async def examined(storage: BuiltInStorage) -> None:
    async for _ in examine(storage):
        pass


async def passed_through(bench: Bench) -> AsyncIterator[Measured]:
    """Measure the operations that visit every checkpoint."""
    storage = bench.storage
    yield await bench.all("`doctor`", lambda: examined(storage))
    policy = Keep(last=KEPT)
    yield await bench.all(f"`prune --dry-run`, keep {KEPT} per run", lambda: prune(storage, policy, dry_run=True))
    yield await bench.all(f"`prune`, keep {KEPT} per run", lambda: prune(storage, policy))
    yield await bench.all("`compact`", storage.compact)


@asynccontextmanager
async def filled(kind: str, size: int, asked: argparse.Namespace, server: str | None) -> AsyncIterator[Bench]:
    with _place(kind, asked.folder, server) as (address, storage, path):
        kept = asked.kept_stores / f"{size}.db" if asked.kept_stores and path else None
        if kept is not None and kept.exists():
            shutil.copy(kept, path)
            made = Stock(**json.loads(kept.with_suffix(".json").read_text()))
        else:
            made = await _made(kind, storage, size)
            if kept is not None:
                await storage.close()
                shutil.copy(path, kept)
                kept.with_suffix(".json").write_text(json.dumps(asdict(made)))
        try:
            yield Bench(kind, address, storage, made, asked.repeats)
        finally:
            await storage.close()


async def _made(kind: str, storage: BuiltInStorage, size: int) -> Stock:
    began = time.perf_counter()
    made = await stock(storage, size)
    took = time.perf_counter() - began
    say(f"{kind} {made.checkpoints:,} checkpoints of {made.runs:,} runs: created in {took:.0f} s")
    return made


@contextmanager
def _place(kind: str, folder: Path, server: str | None) -> Iterator[tuple[str, BuiltInStorage, Path | None]]:
    if kind == "SQLite":
        with tempfile.TemporaryDirectory(dir=folder, prefix="bench-") as work:
            path = Path(work) / "runs.db"
            yield f"sqlite:///{path}", SQLiteCheckpointStorage(path), path
    else:
        with postgres.fresh_database(server or "") as dsn:
            yield dsn, PostgresCheckpointStorage(dsn), None


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


async def measured(kind: str, asked: argparse.Namespace, server: str | None) -> AsyncIterator[Measured]:
    async with AsyncExitStack() as after:
        benches = [await after.enter_async_context(filled(kind, size, asked, server)) for size in asked.sizes]
        async for one in looked(benches):
            yield one
        for bench in [] if asked.looking_only else benches:
            async for one in passed_through(bench):
                yield one


async def measure_all(asked: argparse.Namespace, server: str | None) -> list[Measured]:
    found: list[Measured] = []
    for kind in asked.stores:
        async for one in measured(kind, asked, server):
            say(str(one))
            found.append(one)
            if asked.json:
                asked.json.write_text(json.dumps([asdict(each) for each in found], indent=1))
    return found


def markdown(found: Sequence[Mapping[str, Any]]) -> str:
    """Return a table for each store: operations by size."""
    parts = [f"Machine: {machine.words()}.", ""]
    for store in dict.fromkeys(one["store"] for one in found):
        mine = [one for one in found if one["store"] == store]
        sizes = sorted({one["checkpoints"] for one in mine})
        parts += [
            f"### {store}",
            "",
            _row("", *(f"{size:,} checkpoints" for size in sizes)),
            "|---" * (len(sizes) + 1) + "|",
        ]
        for what in dict.fromkeys(one["what"] for one in mine):
            cells = {one["checkpoints"]: _cell(one) for one in mine if one["what"] == what}
            parts.append(_row(what, *(cells.get(size, "-") for size in sizes)))
        parts.append("")
    return "\n".join(parts)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(one: Mapping[str, Any]) -> str:
    if one["rate"] is not None:
        return f"{one['called'] / 1000:,.2f} s, {one['rate']:,.0f}/s"
    command = f"{one['command_cpu']:.0f} / {one['command_wall']:.0f} ms, " if one["command_cpu"] is not None else ""
    return f"{command}API {one['called']:.1f} ms"


def rewrite(page: Path, shown: str) -> None:
    """Replace the text between the two marks of a page."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{shown}\n{END}{after}")


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[1_000, 100_000],
        help="numbers of checkpoints; a million takes long to create",
    )
    parser.add_argument("--stores", nargs="+", default=["SQLite", "PostgreSQL"], choices=["SQLite", "PostgreSQL"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to create files; must be a disk, not memory")
    parser.add_argument("--kept-stores", type=Path, help="a folder that caches SQLite stores for later runs")
    parser.add_argument("--looking-only", action="store_true", help="skip operations that visit every checkpoint")
    parser.add_argument("--json", type=Path, help="save every measurement to this file")
    parser.add_argument(
        "--from", dest="kept", type=Path, nargs="+", help="show measurements saved by --json instead of measuring"
    )
    parser.add_argument("--write", type=Path, help="a page in which to replace the measured part")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> None:
    asked = arguments(given)
    if asked.kept:
        found = [one for kept in asked.kept for one in json.loads(kept.read_text())]
    elif "PostgreSQL" in asked.stores:
        with postgres.server() as server:
            found = [asdict(one) for one in asyncio.run(measure_all(asked, server))]
    else:
        found = [asdict(one) for one in asyncio.run(measure_all(asked, None))]
    shown = markdown(found)
    if asked.write:
        rewrite(asked.write, shown)
    print(shown)


if __name__ == "__main__":
    main()
