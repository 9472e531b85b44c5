"""The long run behind docs/reliability.md: every test that tries to break a promise, at full length.

    python -m tests.reliability --kills 300 --minutes 10 --write docs/reliability.md

The exit code is 1 if anything was lost or repeated. The figures are written in either case.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from stepwell.model.checkpoint import Retention
from stepwell.stores.files.store import FileStore
from stepwell.stores.memory.store import MemoryStore
from stepwell.stores.postgres.store import PostgresStore
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing import Ledger, NotTheSame, crash_everywhere
from tests.support import figures
from tests.support.postgres_server import ask, dsn
from tests.testing.test_crash_everywhere import Order, shop

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    what: str
    tried: str
    lost: int
    repeated: int
    seconds: float
    command: str

    def __str__(self) -> str:
        return f"| {self.what} | {self.tried} | {self.lost} | {self.repeated} | {self.seconds:.0f} | `{self.command}` |"


def main() -> int:
    asked = _arguments()
    rows = [row for part in PARTS for row in _timed(part, asked)]
    table = _table(rows, asked)
    print(table)
    if asked.write is not None:
        page = asked.write.read_text()
        pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
        asked.write.write_text(pattern.sub(lambda _: f"{BEGIN}\n\n{table}\n\n{END}", page))
    return 1 if any(row.lost or row.repeated for row in rows) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300, help="number of kills on each kind of store")
    parser.add_argument("--restarts", type=int, default=10, help="number of restarts of the PostgreSQL server")
    parser.add_argument("--minutes", type=float, default=10, help="minutes of simulation")
    parser.add_argument("--long", action="store_true", help="try every power failure instead of a sample")
    parser.add_argument("--write", type=Path, help="a page in which to replace the figures")
    return parser.parse_args()


def _timed(part: Callable[[argparse.Namespace], Iterator[Row]], asked: argparse.Namespace) -> list[Row]:
    began = time.monotonic()
    found = list(part(asked))
    for row in found:
        print(row, flush=True)
    print(f"{part.__name__}: {time.monotonic() - began:.0f} s", flush=True)
    return found


def _table(rows: list[Row], asked: argparse.Namespace) -> str:
    heads = ["| test | amount | lost | repeated | seconds | to run it alone |", "|---|---|---|---|---|---|"]
    options = f"--kills {asked.kills} --restarts {asked.restarts} --minutes {asked.minutes:g}{' --long' * asked.long}"
    opening = f"Last long run: {datetime.now(UTC).date()}, `python -m tests.reliability {options}`."
    return "\n".join([opening, "", *heads, *map(str, rows)])


# ------------------------------------------------------------------------------------------- the parts


def crash_points(asked: argparse.Namespace) -> Iterator[Row]:
    """Crash a workflow that uses every feature before and after each of its writes."""
    for kind in ("memory", "sqlite", "file", "postgres"):
        began, crashes, broken = time.monotonic(), 0, 0
        with _stores(kind) as make:
            for retention in Retention:
                ledger = Ledger()
                trial = crash_everywhere(
                    shop(ledger), Order("tea", 3), answer=lambda _: True, ledger=ledger, store=make, retention=retention
                )
                try:
                    crashes += asyncio.run(trial).crashes
                except NotTheSame as error:
                    print(error)
                    broken += 1
        words = f"{crashes} crashes before and after a write"
        yield Row(f"crash points, {kind}", words, broken, broken, time.monotonic() - began, "pytest tests/testing")


@contextmanager
def _stores(kind: str) -> Iterator[Callable[[], Any]]:
    """Yield a function that creates empty stores of a kind."""
    numbers = count()
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        schema = f"reliability_{os.getpid()}_"
        makers: dict[str, Callable[[], Any]] = {
            "memory": MemoryStore,
            "sqlite": lambda: SQLiteStore(where / f"{next(numbers)}.db"),
            "file": lambda: FileStore(where / str(next(numbers))),
            "postgres": lambda: PostgresStore(dsn(), schema=f"{schema}{next(numbers)}"),
        }
        yield makers[kind]
        for number in range(next(numbers)) if kind == "postgres" else ():
            ask(f"DROP SCHEMA IF EXISTS {schema}{number} CASCADE")


def kills(asked: argparse.Namespace) -> Iterator[Row]:
    """Kill and pause real processes at random moments, and restart their server."""
    yield from _storms(asked, "killed processes")


def killed_workers(asked: argparse.Namespace) -> Iterator[Row]:
    """The same with workers, which find their runs by themselves."""
    yield from _storms(asked, "killed workers", "--workers")


def _storms(asked: argparse.Namespace, name: str, *more: str) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        options = ["--kills", str(asked.kills), "--restarts", str(asked.restarts), *more]
        _run(["crash.long", *options, "--json", str(path)])
        for one in json.loads(path.read_text())["stores"]:
            acts = [f"{one[what]} {what}" for what in ("kills", "pauses", "restarts") if one[what]]
            words = f"{', '.join(acts)}; {one['runs']} runs, {one['commits']} commits, {one['executions']} executions; "
            words += f"recovery {one['recovery_median']:.2f} s, at most {one['recovery_max']:.2f} s"
            lost, repeated = one["lost"] + one["wrong"], one["repeated"] + one["twice"]
            command = f"python -m tests.crash.long {' '.join(options)}"
            yield Row(f"{name}, {one['store']}", words, lost, repeated, one["seconds"], command)


def worlds(asked: argparse.Namespace) -> Iterator[Row]:
    """Run the whole engine in a simulation: random graphs, faults and crashes."""
    began = time.monotonic()
    options = ["--soak", "--minutes", str(asked.minutes), "--begin", str(int(time.time()))]
    printed = _run(["simulation", *options])
    found = re.search(r"in all: (\d+) worlds in .*, (\d+) broke a promise", printed)
    assert found is not None, printed
    broken = int(found[2])
    seconds = time.monotonic() - began
    yield Row("simulations", f"{found[1]} seeds", broken, broken, seconds, "make soak")


def tested(asked: argparse.Namespace) -> Iterator[Row]:
    """Run the suites that report how much they tried."""
    for suite, what in SUITES.items():
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            path, report = Path(folder) / "figures", Path(folder) / "report.xml"
            is_long = asked.long or suite in ONLY_LONG
            env = {figures.WHERE: str(path), **({"STEPWELL_LONG": "1"} if is_long else {})}
            command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", str(HERE / suite)]
            command += ["--junitxml", str(report)]
            ended = subprocess.run(command, cwd=HERE.parent, env={**os.environ, **env}, capture_output=True, text=True)
            failed = len(re.findall(r"^(?:FAILED|ERROR) ", ended.stdout, re.MULTILINE))
            assert ended.returncode == (1 if failed else 0), ended.stdout[-3000:]
            found = re.search(r' tests="(\d+)"', report.read_text())
            assert found is not None
            noted = [f"{number} {name}" for name, number in figures.read(path).items()]
            words = ", ".join([f"{found[1]} tests", *noted])
        command_alone = f"{'STEPWELL_LONG=1 ' * (suite in ONLY_LONG)}pytest tests/{suite}"
        yield Row(what, words, failed, failed, time.monotonic() - began, command_alone)


SUITES = {
    "power": "power failures",
    "testing": "store faults",
    "hostile": "bad input",
    "long": "behind PgBouncer",
}
ONLY_LONG = {"long"}  # needs a program that `make test` does not need


def bugs(asked: argparse.Namespace) -> Iterator[Row]:
    """Run the deliberate bugs: a test must detect each."""
    began = time.monotonic()
    printed = _run(["mutants"])
    found = re.search(r"(\d+) bugs, (\d+) noticed, (\d+) not noticed", printed)
    assert found is not None, printed
    words = "all noticed" if found[1] == found[2] else f"{found[3]} not noticed"
    yield Row("deliberate bugs", words, int(found[3]), int(found[3]), time.monotonic() - began, "make mutants")


def _run(command: list[str]) -> str:
    """Return what a program of the tests prints. Its figures, not its exit code, say whether it failed."""
    ended = subprocess.run(
        [sys.executable, "-m", f"tests.{command[0]}", *command[1:]], cwd=HERE.parent, capture_output=True, text=True
    )
    if ended.returncode:
        print(ended.stdout[-5000:], ended.stderr[-5000:], flush=True)
    return ended.stdout


PARTS = (crash_points, kills, killed_workers, worlds, tested, bugs)

if __name__ == "__main__":
    sys.exit(main())
