"""One measurement: the input of a subject, and the figures it returns."""

import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import machine
import postgres

Keeps = Literal["none", "mem", "page", "sync"]
"""What a finished superstep survives: nothing, as long as the process lives, SIGKILL, a power failure."""
TURNS = (10, 100, 1000, 3000)
"""Turns of a conversation at which its cost is noted."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One system, in one configuration, in one case."""

    case: str
    name: str
    keeps: Keeps
    run: Callable[["Job"], Awaitable[None] | None]
    postgres: bool = False
    prepare: Callable[["Job"], Awaitable[None]] | None = None
    """Fills the store once, in a process of its own; each repeat then runs on that store."""


@dataclass(slots=True)
class Job:
    """Passes sizes and locations to a subject; the subject marks the start and end of what is measured."""

    sizes: Mapping[str, int]
    folder: Path
    dsn: str | None = None
    again: bool = False  # the second process, after a crash
    sized: bool = True  # the store is empty now, and its size counts
    notes: dict[str, float] = field(default_factory=dict)
    _laps: dict[str, list[float]] = field(default_factory=dict)
    _gauge: postgres.Gauge | None = None
    _size_before: int = 0
    _began: machine.Reading | None = None
    _ended: machine.Reading | None = None
    _server: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.dsn is not None and self.sized:  # otherwise the driver is not loaded here: its import is measured
            self._gauge = postgres.Gauge(self.dsn)
            self._size_before = self._gauge.size()

    def __getitem__(self, size: str) -> int:
        return self.sizes[size]

    def start(self) -> None:
        """Start measuring."""
        self._read_server()
        self._began = machine.read()

    def stop(self) -> None:
        """Stop measuring. Everything done so far must be durable by now."""
        self._ended = machine.read()
        self._read_server()

    @contextmanager
    def counted(self) -> Iterator[None]:
        self.start()
        yield
        self.stop()

    def note_empty(self) -> None:
        """Note the size of a store that holds no runs yet."""
        self.notes["empty"] = self._size()

    @contextmanager
    def lap(self, note: str) -> Iterator[None]:
        """Note how many milliseconds the block took; the median if it runs several times."""
        began = time.perf_counter()
        yield
        self.note_lap(note, time.perf_counter() - began)

    def note_lap(self, note: str, seconds: float) -> None:
        taken = self._laps.setdefault(note, [])
        taken.append(seconds * 1000)
        self.notes[note] = statistics.median(taken)

    def figures(self) -> dict[str, Any]:
        """Return the figures. Call it after the subject has closed what it opened."""
        found: dict[str, Any] = {"notes": self.notes}
        if self._began is not None and self._ended is not None:
            found |= {"left": self._size(), "rss": machine.most_memory()}
            found |= self._between(self._began, self._ended)
        return found

    def _size(self) -> int:
        return self._gauge.size() - self._size_before if self._gauge else machine.bytes_in(self.folder)

    def _between(self, began: machine.Reading, ended: machine.Reading) -> dict[str, float]:
        seconds, cpu, written = ended.wall - began.wall, ended.cpu - began.cpu, ended.written - began.written
        if self._gauge:
            (cpu_before, log_before), (cpu_after, log_after) = self._server
            cpu, written = cpu + cpu_after - cpu_before, log_after - log_before
        others = max(0.0, ended.machine_cpu - began.machine_cpu - cpu) / seconds
        return {"seconds": seconds, "cpu": cpu, "written": written, "others": others}

    def _read_server(self) -> None:
        if self._gauge:
            self._server.append((self._gauge.cpu(), self._gauge.log_written()))


class Laps:
    """When each superstep of each run started."""

    def __init__(self) -> None:
        self._times: dict[object, list[float]] = {}

    def mark(self, run: object = None) -> None:
        self._times.setdefault(run, []).append(time.perf_counter())

    def forget(self) -> None:
        """Drop the times of the warm-up."""
        self._times.clear()

    def note_latencies(self, job: Job) -> None:
        """Note the percentiles of the time from one superstep of a run to its next."""
        waits = [after - before for times in self._times.values() for before, after in pairwise(times)]
        percentiles = statistics.quantiles(waits, n=100)
        job.notes |= {"p50_ms": percentiles[49] * 1000, "p99_ms": percentiles[98] * 1000}

    def note_costs(self, job: Job) -> None:
        """Note the mean cost of the `window` supersteps before each of the turns. There must be one run."""
        (times,) = self._times.values()
        for turn in (turn for turn in TURNS if turn <= job["turns"]):
            first, last = max(0, turn - job["window"]), min(turn, len(times)) - 1
            job.notes[f"ms_at_{turn}"] = (times[last] - times[first]) / (last - first) * 1000
