"""Fill a SQLite store with many runs, quickly: real runs, copied under other ids, at other times.

    python benchmarks/large_store.py runs.db [--runs 1000000]

A run of each kind is made by the library itself: completed (with its whole history, and with its newest checkpoint
only), failed, cancelled, waiting for a person, asleep, queued, driven by another machine, and stalled. The others are
copies of their rows, with ids, times and checksums of their own, so that `stepwell doctor` has nothing to say. Most
runs are completed, as in a store that has been used for long; one began every second, the last one now. One more run
has forks, and these have forks.
"""

import argparse
import asyncio
import random
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "src"
sys.path.insert(0, str(SOURCE))

from stepwell import Retention, SQLiteCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, executor  # noqa: E402
from stepwell.admin import fork  # noqa: E402
from stepwell.errors import HandlerFailed  # noqa: E402
from stepwell.storage.ids import checkpoint_id, request_id, run_hash  # noqa: E402
from stepwell.storage.integrity import _address, add_checksum, verify_checksum  # noqa: E402
from stepwell.storage.lease import Owner  # noqa: E402

# Of a thousand runs.
KINDS = {
    "latest": 900,
    "whole": 40,
    "failed": 10,
    "cancelled": 5,
    "waiting": 20,
    "asleep": 8,
    "queued": 8,
    "driven": 4,
    "stalled": 5,
}
FORKS = 40
TEAMS = ("north", "south", "east", "west")
CUSTOMERS = 5000
EVERY = timedelta(seconds=1)
TAG = "customer 0000"  # of the runs that are copied
BATCH = 5000  # runs
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")
TABLES = ("runs", "commits", "tags", "requests", "superstep_log", "signals")
BODIES = ("commits", "requests", "superstep_log")  # tables with a checksum in the column `body`


@executor(id="prepare")
async def prepare(order: str, ctx: WorkflowContext[str]) -> None:
    ctx.set_state("order", {"number": order, "lines": ["tea", "samovar"]})
    await ctx.send_message(order)


@executor(id="ship")
async def ship(order: str, ctx: WorkflowContext[None, str]) -> None:
    if order == "broken":
        raise ValueError("there is no such order")
    if order == "late":
        await ctx.sleep(timedelta(days=60))
    if order == "large":
        await ctx.ask("May it be shipped?", bool)
    await ctx.yield_output(f"{order} was shipped")


def shipping(storage: SQLiteCheckpointStorage, name: str) -> Workflow:
    return (
        WorkflowBuilder(name=name, start_executor=prepare, checkpoint_storage=storage).add_edge(prepare, ship).build()
    )


parcels = shipping(None, "parcels")  # for a worker that must not touch the runs of the store


async def make_originals(path: Path) -> None:
    """Run one run of each kind, and a tree of forks."""
    storage = SQLiteCheckpointStorage(path)
    latest = SQLiteCheckpointStorage(path, retention=Retention.LatestOnly)
    stored, tags = shipping(storage, "orders"), {"customer": TAG, "team": TEAMS[0]}
    await shipping(latest, "orders").run("small", run_id="original-latest", tags=tags)
    for kind, order in (("whole", "small"), ("waiting", "large"), ("asleep", "late")):
        await shipping(storage, "approvals" if kind == "waiting" else "orders").run(
            order, run_id=f"original-{kind}", tags=tags
        )
    with suppress(HandlerFailed):
        await stored.run("broken", run_id="original-failed", tags=tags)
    for kind in ("cancelled", "queued", "driven", "stalled"):
        await stored.submit("small", run_id=f"original-{kind}", tags=tags)
    await stored.cancel("original-cancelled")
    for kind, seconds in (("driven", 86_400.0), ("stalled", 0.0)):
        elsewhere = Owner("another-host", "another-machine", 4711, "1", "a drive")
        await storage._store.acquire(f"original-{kind}", elsewhere, seconds=seconds)
    await stored.run("small", run_id="forked", tags={"team": TEAMS[0]})
    for number in range(FORKS):
        await fork(storage, "forked@1" if number < FORKS // 2 else "fork-0@0", run_id=f"fork-{number}")
    await storage.close()
    await latest.close()


@dataclass
class Original:
    """The rows of one run, as formats: what differs from run to run is a name in them."""

    run_id: str
    began: datetime
    commits: int
    requests: tuple[str, ...]
    rows: dict[str, list[dict[str, Any]]]
    times: dict[str, timedelta]

    def copy(self, run: int, run_id: str, began: datetime, number: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield the rows of a copy, each with its table."""
        values: dict[str, Any] = {
            name: (began + later).isoformat(timespec="microseconds") for name, later in self.times.items()
        }
        values |= {f"c{n}": checkpoint_id(run_id, 0, n) for n in range(self.commits)}
        values |= {f"r{n}": request_id(run_id, 0, "0.0", n) for n in range(len(self.requests))}
        values |= {"id": run_id, "tag": f"customer {number % CUSTOMERS}", "team": TEAMS[number % len(TEAMS)]}
        for table, rows in self.rows.items():
            for row in rows:
                copied = {name: value % values if type(value) is str else value for name, value in row.items()}
                if "run" in copied:
                    copied["run"] = run
                if table == "runs":
                    copied["hash"] = run_hash(run_id)
                elif table in BODIES:
                    copied["body"] = add_checksum(copied["body"].encode(), address_of(table, run_id, copied)).decode()
                yield table, tuple(copied.values())


def address_of(table: str, run_id: str, row: dict[str, Any]) -> bytes:
    """Return what the checksum of a body contains beside the body."""
    match table:
        case "commits":
            return _address("commit", run_id, f"{row['number']}\0{row['checkpoint_id']}")
        case "requests":
            return _address("request", run_id, f"{row['at']}\0{row['request_id']}")
        case _:
            return _address("log", run_id, f"{row['place']}\0{row['key']}")


def read_original(db: sqlite3.Connection, kind: str) -> Original:
    """Read a run, and find in its rows what differs from run to run."""
    run_id = f"original-{kind}"
    run, began = db.execute("SELECT run, began FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    commits = db.execute("SELECT max(number) + 1 FROM commits WHERE run = ?", (run,)).fetchone()[0]
    requests = tuple(id for (id,) in db.execute("SELECT request_id FROM requests WHERE run_id = ?", (run_id,)))
    names = {run_id: "id", TAG: "tag", TEAMS[0]: "team"}
    names |= {checkpoint_id(run_id, 0, n): f"c{n}" for n in range(commits)}
    names |= {request: f"r{n}" for n, request in enumerate(requests)}
    start, times = datetime.fromisoformat(began), dict[str, timedelta]()

    def name_time(match: re.Match[str]) -> str:
        later = datetime.fromisoformat(match[0]) - start
        name = next((name for name, known in times.items() if known == later), f"t{len(times)}")
        times[name] = later
        return f"%({name})s"

    def to_format(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        value = value.replace("%", "%%")
        for text, name in names.items():
            value = value.replace(text, f"%({name})s")
        return TIME.sub(name_time, value)

    rows: dict[str, list[dict[str, Any]]] = {}
    for table in TABLES:
        columns = column_names(db, table)
        key = ("run_id", run_id) if "run" not in columns else ("run", run)
        found = db.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE {key[0]} = ? ORDER BY 1", key[1:])
        rows[table] = []
        for row in [dict(zip(columns, values, strict=True)) for values in found]:
            if table in BODIES:
                row["body"] = verify_checksum(row["body"].encode(), address_of(table, run_id, row), run_id).decode()
            if table in ("commits", "requests"):
                row["position"] = None  # the next one
            rows[table].append({name: to_format(value) for name, value in row.items()})
    return Original(run_id, start, commits, requests, rows, times)


def column_names(db: sqlite3.Connection, table: str) -> list[str]:
    return [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]  # without those that are computed


def copy_runs(db: sqlite3.Connection, runs: int, note: Callable[[int], object]) -> None:
    """Store so many copies, oldest first."""
    originals = {kind: read_original(db, kind) for kind in KINDS}
    kinds = [kind for kind, share in KINDS.items() for _ in range(share)]
    random.Random(4711).shuffle(kinds)
    inserts = {
        table: f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        for table in TABLES
        for names in [column_names(db, table)]
    }
    first = db.execute("SELECT max(run) + 1 FROM runs").fetchone()[0]
    now = datetime.now(UTC).replace(microsecond=1)
    for begin in range(0, runs, BATCH):
        rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in TABLES}
        for number in range(begin, min(begin + BATCH, runs)):
            # Ids are random in most stores, and so is their order.
            run_id = f"{number * 2654435761 % 2**32:08x}-{number}"
            began = now - (runs - number) * EVERY
            for table, row in originals[kinds[number % len(kinds)]].copy(first + number, run_id, began, number):
                rows[table].append(row)
        for table, of_table in rows.items():
            db.executemany(inserts[table], of_table)
        note(min(begin + BATCH, runs))


def fill(path: Path, runs: int, note: Callable[[int], object] = lambda stored: None) -> None:
    """Make a store with so many runs, and those that they are copies of."""
    if path.exists():
        raise FileExistsError(f"{path} exists already; name a new file")
    asyncio.run(make_originals(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        # A file that nobody else has open, and that can be made again: nothing needs to be undone or synced.
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -200000"):
            db.execute(f"PRAGMA {pragma}")
        # It is faster to sort at the end than to insert in the middle each time.
        indexes = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL").fetchall()
        db.execute("BEGIN")
        for name, _ in indexes:
            db.execute(f"DROP INDEX {name}")
        copy_runs(db, runs, note)
        for _, statement in indexes:
            db.execute(statement)
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = WAL")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--runs", type=int, default=1_000_000)
    arguments = parser.parse_args()
    fill(arguments.path, arguments.runs, lambda stored: print(f"\r{stored:,} runs", end="", flush=True))
    print()


if __name__ == "__main__":
    main()
