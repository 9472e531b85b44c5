"""The cases: what is measured, at which size, in which unit, and the goals."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from killing import CRASHES

Size = Literal["full", "quick", "tiny"]
Figures = Mapping[str, Mapping[str, float]]
"""By subject: `rate` per second, `ms` and `cpu_us` per unit, `left` and `written_each` in bytes, sizes, and notes."""


Ratio = Callable[[Figures], float]
KIB = 1024


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio, and the target it has to reach."""

    words: str
    ratio: Ratio
    least: float | None = None
    most: float | None = None

    def reached(self, ratio: float) -> bool:
        return (self.least is None or ratio >= self.least) and (self.most is None or ratio <= self.most)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    words: str
    unit: str  # of the rates
    full: Mapping[str, int]
    quick: Mapping[str, int]
    tiny: Mapping[str, int]
    count: Callable[[Mapping[str, int]], int] = lambda sizes: 1
    columns: tuple[str, ...] = ()  # names of notes that are shown as columns
    timed: bool = True
    disk: bool = True
    most_repeats: int = 1000
    slower: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # smaller sizes for slow subjects
    goals: tuple[Goal, ...] = ()

    def sizes(self, size: Size, subject: str) -> dict[str, int]:
        found = dict({"full": self.full, "quick": self.quick, "tiny": self.tiny}[size])
        if size == "full":
            found |= next((given for name, given in self.slower.items() if subject.startswith(name)), {})
        return found


def best(figures: Figures, start: str, what: str = "rate", *, without: str = "\0") -> float:
    """Return the highest figure among the subjects whose names start with `start`."""
    return max(found[what] for name, found in figures.items() if name.startswith(start) and without not in name)


def lowest(figures: Figures, start: str, what: str) -> float:
    return min(found[what] for name, found in figures.items() if name.startswith(start))


def rate_over(subject: str, peer: str, *, without: str = "\0") -> Ratio:
    return lambda figures: figures[subject]["rate"] / best(figures, peer, without=without)


def _times_delta(place: str) -> Ratio:
    def ratio(figures: Figures) -> float:
        peers = [f"langgraph-{place}-delta", f"langgraph-{place}-blocking-delta"]
        return figures[f"stepwell-{place}"]["rate"] / max(figures[peer]["rate"] for peer in peers)

    return ratio


def _left(subject: str) -> Ratio:
    return lambda figures: figures[subject]["left"] / (figures[subject]["turns"] * KIB)


def _added(subject: str) -> Ratio:
    """Bytes added to an empty store, relative to the size of the conversation."""
    return lambda figures: (figures[subject]["left"] - figures[subject]["empty"]) / (figures[subject]["turns"] * KIB)


def _later(after: str, before: str, subject: str) -> Ratio:
    return lambda figures: figures[subject][after] / figures[subject][before]


def _cost(subject: str, other: str) -> Ratio:
    return lambda figures: figures[subject]["ms"] / figures[other]["ms"]


def _bytes(subject: str) -> Ratio:
    return lambda figures: figures[subject]["written_each"] / figures["stepwell-sqlite-small"]["written_each"]


def _times_best_durable(subject: str) -> Ratio:
    def ratio(figures: Figures) -> float:
        peers = [
            best(figures, peer) for peer in ("langgraph-sqlite", "langgraph-postgres", "dbos") if _has(figures, peer)
        ]
        return figures[subject]["rate"] / max(peers)

    return ratio


def _has(figures: Figures, start: str) -> bool:
    return any(name.startswith(start) for name in figures)


def _p99(place: str) -> Ratio:
    return lambda figures: figures[f"stepwell-{place}"]["p99_ms"] / figures[f"langgraph-{place}"]["p99_ms"]


def _kib_written(subject: str) -> Ratio:
    return lambda figures: figures[subject]["written_each"] / KIB


def _time_over(subject: str, peer: str, what: str) -> Ratio:
    return lambda figures: figures[subject][what] / lowest(figures, peer, what)


def _called_once() -> tuple[Goal, ...]:
    return tuple(
        Goal(f"{subject}, handlers called again", _figure(subject, "most_called_again"), most=1)
        for subject in ("stepwell-sqlite", "stepwell-files", "stepwell-postgres")
    )


def _figure(subject: str, what: str) -> Ratio:
    return lambda figures: figures[subject][what]


def _below(peer: str, what: str) -> Goal:
    return Goal(f"vs {peer}", lambda figures: figures["stepwell"][what] / figures[peer][what], most=1)


CHAIN = Case(
    name="chain",
    words="one executor that sends to itself for {supersteps:,} supersteps, with a tiny state",
    unit="superstep",
    full={"supersteps": 1000},
    quick={"supersteps": 200},
    tiny={"supersteps": 20},
    count=lambda sizes: sizes["supersteps"],
    goals=(
        Goal("SQLite, speed vs raw SQLite commits", rate_over("stepwell-sqlite", "raw-sqlite"), least=0.75),
        Goal("SQLite, KiB written per superstep", _kib_written("stepwell-sqlite"), most=14),
        Goal("SQLite, speed vs LangGraph SQLite", rate_over("stepwell-sqlite", "langgraph-sqlite"), least=2),
        Goal("PostgreSQL, speed vs raw insert and commit", rate_over("stepwell-postgres", "raw-postgres"), least=0.65),
        Goal(
            "PostgreSQL, speed vs LangGraph PostgreSQL", rate_over("stepwell-postgres", "langgraph-postgres"), least=2
        ),
        Goal("files (synced), speed vs MAF files (not synced)", rate_over("stepwell-files", "maf-files"), least=1.2),
        Goal("no storage, speed vs MAF", lambda f: f["stepwell"]["rate"] / f["maf"]["rate"], least=4),
        Goal("memory, speed vs MAF", lambda f: f["stepwell-memory"]["rate"] / f["maf-memory"]["rate"], least=4.5),
    ),
)

GROWTH = Case(
    name="growth",
    words="a conversation that grows by 1 KiB in each of {turns:,} supersteps; all of it is stored",
    unit="superstep",
    full={"turns": 300, "window": 128},
    quick={"turns": 100, "window": 128},
    tiny={"turns": 10, "window": 128},
    count=lambda sizes: sizes["turns"],
    columns=("empty",),
    goals=(
        Goal("SQLite, speed vs LangGraph SQLite with delta channels", _times_delta("sqlite"), least=2.2),
        Goal("PostgreSQL, speed vs LangGraph PostgreSQL with delta channels", _times_delta("postgres"), least=3.2),
        Goal("save hooks, no storage, speed vs MAF", rate_over("stepwell-hook", "maf", without="maf-"), least=1.5),
        Goal("SQLite, disk size vs the conversation", _left("stepwell-sqlite"), most=3),
        Goal("files, disk size vs the conversation", _left("stepwell-files"), most=3),
        Goal("PostgreSQL, disk size vs the conversation", _left("stepwell-postgres"), most=3),
        Goal("SQLite, the same without the size of an empty store", _added("stepwell-sqlite"), most=3),
        Goal("PostgreSQL, the same without the size of an empty store", _added("stepwell-postgres"), most=3),
    ),
)

LONG = Case(
    name="long",
    words="the same for {turns:,} supersteps; the cost at a turn is the mean of the {window} supersteps before it",
    unit="superstep",
    full={"turns": 3000, "window": 128},
    quick={"turns": 1000, "window": 128},
    tiny={"turns": 20, "window": 128},
    count=lambda sizes: sizes["turns"],
    columns=("ms_at_10", "ms_at_100", "ms_at_1000", "ms_at_3000"),
    goals=tuple(
        Goal(f"{place}, cost at turn 3,000 vs turn 100", _later("ms_at_3000", "ms_at_100", place), most=most)
        for place, most in {
            "stepwell-sqlite": 1.5,
            "stepwell-files": 1.5,
            "stepwell-postgres": 1.5,
            "stepwell-sqlite-append-and-read": 3,
            "stepwell-sqlite-hook": 3,
        }.items()
    ),
)

BIG = Case(
    name="big",
    words="{kib:,} KiB of documents that are set once, and a counter that changes in each superstep after that",
    unit="superstep",
    full={"kib": 10240, "supersteps": 200},
    quick={"kib": 1024, "supersteps": 50},
    tiny={"kib": 16, "supersteps": 5},
    count=lambda sizes: sizes["supersteps"],
    slower={"maf": {"supersteps": 20}, "langgraph-sqlite": {"supersteps": 50}},
    goals=(
        Goal("SQLite, cost vs no documents", _cost("stepwell-sqlite", "stepwell-sqlite-small"), most=4),
        Goal("SQLite, bytes written vs no documents", _bytes("stepwell-sqlite"), most=1.2),
        Goal("save hook, speed vs LangGraph SQLite", rate_over("stepwell-sqlite-hook", "langgraph-sqlite"), least=3),
        Goal("save hook, bytes written vs no documents", _bytes("stepwell-sqlite-hook"), most=1.2),
        Goal("PostgreSQL, cost vs no documents", _cost("stepwell-postgres", "stepwell-postgres-small"), most=4),
    ),
)

HISTORY = Case(
    name="history",
    words="read the newest checkpoint, resume for a superstep, list a page of {page}: after 100 to 5,000 supersteps",
    unit="checkpoint",
    full={"checkpoints": 5000, "page": 20, "looks": 5},
    quick={"checkpoints": 1000, "page": 20, "looks": 5},
    tiny={"checkpoints": 100, "page": 20, "looks": 5},
    timed=False,
    columns=tuple(f"{what}_ms_{stop}" for what in ("latest", "resume", "page", "next") for stop in (100, 1000, 5000)),
    goals=(
        *(
            Goal(
                f"{place}, reading the newest checkpoint after 5,000, vs LangGraph",
                _time_over(f"stepwell-{place}", f"langgraph-{place}", "latest_ms_5000"),
                most=0.8,
            )
            for place in ("sqlite", "postgres")
        ),
        *(
            Goal(
                f"{place}, ms from the call to the next handler", _figure(f"stepwell-{place}", "next_ms_5000"), most=ms
            )
            for place, ms in {"sqlite": 4, "postgres": 6, "files": 12}.items()
        ),
        *(
            Goal(
                f"{place}, {what} after 5,000 checkpoints vs after 100",
                _later(f"{what}_ms_5000", f"{what}_ms_100", place),
                most=1.5,
            )
            for place in ("stepwell-sqlite", "stepwell-files", "stepwell-postgres")
            for what in ("latest", "resume", "page")
        ),
    ),
)

FRESH = Case(
    name="fresh",
    words="a new process opens a store with a run of {checkpoints:,} checkpoints and calls the run's next handler",
    unit="process",
    full={"checkpoints": 5000, "processes": 7},
    quick={"checkpoints": 1000, "processes": 3},
    tiny={"checkpoints": 20, "processes": 1},
    timed=False,
    disk=False,
    columns=("next_handler_ms",),
    most_repeats=3,
    goals=(
        *(
            Goal(
                f"{place}, vs LangGraph",
                _time_over(f"stepwell-{place}", f"langgraph-{place}", "next_handler_ms"),
                most=1,
            )
            for place in ("sqlite", "postgres")
        ),
        Goal("files, ms", _figure("stepwell-files", "next_handler_ms"), most=60),
    ),
)

HEAVY = Case(
    name="heavy",
    words="{kib:,} KiB of state, of which every superstep changes a little: CPU time of the event loop's thread",
    unit="superstep",
    full={"kib": 20480, "supersteps": 20},
    quick={"kib": 4096, "supersteps": 10},
    tiny={"kib": 16, "supersteps": 3},
    count=lambda sizes: sizes["supersteps"],
    columns=("read_ms", "hand_over_ms", "between_ms"),
    goals=(Goal("SQLite, ms of event loop CPU time between turns", _figure("stepwell-sqlite", "between_ms"), most=30),),
)

FANOUT = Case(
    name="fanout",
    words="one executor fans out to {width}, which fan in to it again; {rounds} rounds",
    unit="message",
    full={"width": 100, "rounds": 20},
    quick={"width": 100, "rounds": 4},
    tiny={"width": 10, "rounds": 2},
    count=lambda sizes: 2 * sizes["width"] * sizes["rounds"],
    goals=(
        Goal("SQLite, speed vs the best durable peer", _times_best_durable("stepwell-sqlite"), least=5),
        Goal("PostgreSQL, speed vs the best durable peer", _times_best_durable("stepwell-postgres"), least=5),
    ),
)

MANY = Case(
    name="many",
    words="{runs} concurrent runs of {supersteps} supersteps in one process",
    unit="superstep",
    full={"runs": 500, "supersteps": 20},
    quick={"runs": 100, "supersteps": 10},
    tiny={"runs": 5, "supersteps": 5},
    count=lambda sizes: sizes["runs"] * sizes["supersteps"],
    columns=("p50_ms", "p99_ms"),
    goals=(
        *tuple(
            goal
            for place, least in {"sqlite": 15, "postgres": 13}.items()
            for goal in (
                Goal(f"{place}, speed vs LangGraph", rate_over(f"stepwell-{place}", f"langgraph-{place}"), least=least),
                Goal(f"{place}, p99 vs LangGraph", _p99(place), most=0.25),
            )
        ),
        Goal("files (synced), speed vs MAF files (not synced)", rate_over("stepwell-files", "maf-files"), least=2),
    ),
)


def _crash(name: str, late: int, words: str) -> Case:
    return Case(
        name=name,
        words=words,
        unit="handler",
        full={"late_ms": late},
        quick={"late_ms": late},
        tiny={"late_ms": min(late, 200)},
        timed=False,
        disk=False,
        columns=("called_again", "most_called_again"),
        goals=_called_once(),
    )


CRASH_WORDS = {
    "crash": "killed the moment nine of ten parallel handlers are about to return: how many are called again",
    "crash-soon": "the same, killed {late_ms} ms later",
    "crash-late": "the same, killed {late_ms:,} ms later",
}

IMPORT = Case(
    name="import",
    words="a new process that imports what a stored workflow needs, minus one that imports nothing",
    unit="import",
    full={"starts": 5},
    quick={"starts": 3},
    tiny={"starts": 1},
    timed=False,
    disk=False,
    columns=("import_ms", "import_cpu_ms"),
    goals=tuple(_below(peer, "import_ms") for peer in ("maf", "langgraph")),
)

COMMAND = Case(
    name="command",
    words="`stepwell list --json` on a store of {runs} runs, from start to exit, beside a process that does nothing",
    unit="command",
    full={"starts": 20, "runs": 20},
    quick={"starts": 5, "runs": 20},
    tiny={"starts": 1, "runs": 1},
    timed=False,
    disk=False,
    columns=("command_cpu_ms", "bare_cpu_ms"),
    goals=(Goal("ms of CPU time", lambda figures: figures["stepwell-sqlite"]["command_cpu_ms"], most=150),),
)

INSTALLED = Case(
    name="installed",
    words="installed into an empty folder, with all dependencies, without compiled files",
    unit="install",
    full={},
    quick={},
    tiny={},
    timed=False,
    disk=False,
    most_repeats=1,
    columns=("bytes", "packages"),
    goals=tuple(_below(peer, "bytes") for peer in ("maf", "langgraph")),
)

CRASHED = tuple(_crash(name, late, CRASH_WORDS[name]) for name, late in CRASHES.items())
ALL = (CHAIN, GROWTH, LONG, BIG, HEAVY, HISTORY, FRESH, FANOUT, MANY, *CRASHED, IMPORT, COMMAND, INSTALLED)
CASES = {case.name: case for case in ALL}
