"""The targets: for each case, which figure of which subject has to reach what."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Figures = Mapping[str, Mapping[str, float]]
"""By subject: the medians of its figures and notes."""
KIB = 1024
DURABLE = ("sqlite", "postgres", "files")
DATABASES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure of a subject: as it is, divided by another figure of it, or by the best of its peers."""

    words: str
    subject: str
    figure: str
    least: float | None = None
    most: float | None = None
    over: str | None = None
    peers: tuple[str, ...] = ()
    unit: float = 1

    @property
    def subjects(self) -> set[str]:
        return {self.subject, *self.peers}

    @property
    def is_elapsed_time(self) -> bool:
        """True if other programs slow it down; CPU times, bytes and counts they hardly change."""
        words = self.figure.split("_")
        return "rate" in words or ("ms" in words and "cpu" not in words)

    @property
    def target(self) -> str:
        return f"at most {self.most:g}" if self.least is None else f"at least {self.least:g}"

    def measured(self, figures: Figures) -> float | None:
        """Return None if a figure is missing or, on a machine that does not count it, zero."""
        try:
            value = figures[self.subject][self.figure] / self.unit
            if self.over is not None:
                value /= figures[self.subject][self.over]
            if self.peers:
                best = max if self.figure == "rate" else min
                value /= best(figures[peer][self.figure] for peer in self.peers if peer in figures)
        except (KeyError, ValueError, ZeroDivisionError):
            return None
        return value

    def measured_by_cpu(self, figures: Figures) -> float | None:
        """Return the same ratio of speeds by CPU time, which other programs hardly change; None for other goals.

        Call it if the goal could be measured.
        """
        if self.figure != "rate":
            return None
        costs = {name: figures[name]["cpu_us"] for name in self.subjects & figures.keys()}
        return min(costs[peer] for peer in self.peers if peer in costs) / costs[self.subject]

    def is_reached(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


def _speed(words: str, subject: str, peers: Iterable[str], least: float) -> Goal:
    """Where a peer has several configurations, the fastest one counts."""
    return Goal(words, subject, "rate", least=least, peers=tuple(peers))


def _langgraph(place: str, suffix: str = "") -> tuple[str, str]:
    return f"langgraph-{place}{suffix}", f"langgraph-{place}-blocking{suffix}"


_BEST_DURABLE = (*_langgraph("sqlite"), *_langgraph("postgres"), "dbos-sqlite", "dbos-postgres")

GOALS: Mapping[str, tuple[Goal, ...]] = {
    "chain": (
        _speed("SQLite, speed vs raw commits", "stepwell-sqlite", ["raw-sqlite"], 0.75),
        Goal("SQLite, KiB written per superstep", "stepwell-sqlite", "written_each", most=14, unit=KIB),
        _speed("PostgreSQL, speed vs raw insert and commit", "stepwell-postgres", ["raw-postgres"], 0.65),
        _speed("files (synced), speed vs MAF files (not synced)", "stepwell-files", ["maf-files"], 1.2),
        _speed("no storage, speed vs MAF", "stepwell", ["maf"], 4),
        _speed("in memory, speed vs MAF", "stepwell-memory", ["maf-memory"], 4.5),
        _speed("SQLite, speed vs LangGraph", "stepwell-sqlite", _langgraph("sqlite"), 2),
        _speed("PostgreSQL, speed vs LangGraph", "stepwell-postgres", _langgraph("postgres"), 2),
    ),
    "growth": (
        _speed("save hook, no storage, speed vs MAF", "stepwell-hook", ["maf"], 1.5),
        _speed("SQLite, speed vs LangGraph with deltas", "stepwell-sqlite", _langgraph("sqlite", "-delta"), 2.2),
        _speed(
            "PostgreSQL, speed vs LangGraph with deltas", "stepwell-postgres", _langgraph("postgres", "-delta"), 3.2
        ),
        *(
            Goal(f"{place}, disk size vs the conversation", f"stepwell-{place}", "left", most=3, over="conversation")
            for place in DURABLE
        ),
        *(
            Goal(f"{place}, the same minus an empty store", f"stepwell-{place}", "added", most=3, over="conversation")
            for place in DATABASES
        ),
    ),
    "long": tuple(
        Goal(f"{words}, cost at turn 3,000 vs turn 100", subject, "ms_at_3000", most=most, over="ms_at_100")
        for words, subject, most in (
            ("SQLite, `append_state` and `get_state`", "stepwell-sqlite-append-and-read", 3),
            ("SQLite, save hook", "stepwell-sqlite-hook", 3),
            ("SQLite, `append_state`", "stepwell-sqlite", 1.5),
            ("files, `append_state`", "stepwell-files", 1.5),
            ("PostgreSQL, `append_state`", "stepwell-postgres", 1.5),
        )
    ),
    "big": (
        Goal("SQLite, cost vs no documents", "stepwell-sqlite", "ms", most=4, peers=("stepwell-sqlite-small",)),
        Goal("PostgreSQL, cost vs no documents", "stepwell-postgres", "ms", most=4, peers=("stepwell-postgres-small",)),
        *(
            Goal(
                f"{words}, bytes written vs no documents",
                name,
                "written_each",
                most=1.2,
                peers=("stepwell-sqlite-small",),
            )
            for words, name in (("SQLite", "stepwell-sqlite"), ("SQLite, save hook", "stepwell-sqlite-hook"))
        ),
        _speed("SQLite, save hook, speed vs LangGraph", "stepwell-sqlite-hook", _langgraph("sqlite"), 3),
    ),
    "heavy": (Goal("SQLite, worst turn, ms of the loop's CPU", "stepwell-sqlite", "most_between_cpu_ms", most=30),),
    "history": (
        *(
            Goal(
                f"{words}, the newest of 5,000 checkpoints, LangGraph's time = 1",
                f"stepwell-{place}",
                "latest_ms_many",
                most=0.8,
                peers=(f"langgraph-{place}",),
            )
            for place, words in DATABASES.items()
        ),
        *(
            Goal(
                f"{words}, a new process opens the store and calls the next handler, LangGraph's time = 1",
                f"stepwell-{place}",
                "open_to_handler_ms",
                most=1,
                peers=(f"langgraph-{place}",),
            )
            for place, words in DATABASES.items()
        ),
        Goal("files, the same, ms", "stepwell-files", "open_to_handler_ms", most=60),
        *(
            Goal(f"{place}, resume, {words}: call to next handler, ms", f"stepwell-{place}", f"next_ms_{run}", most=ms)
            for run, words in {"many": "5,000 checkpoints", "talk": "300 KiB"}.items()
            for place, ms in {"sqlite": 4, "postgres": 6, "files": 12}.items()
        ),
        *(
            Goal(
                f"{place}, {what}, 5,000 checkpoints vs 100",
                f"stepwell-{place}",
                f"{what}_ms_many",
                most=1.5,
                over=f"{what}_ms_few",
            )
            for place in DURABLE
            for what in ("latest", "resume", "page")
        ),
    ),
    "fanout": tuple(
        _speed(f"{words}, speed vs the best durable peer", f"stepwell-{place}", _BEST_DURABLE, 5)
        for place, words in DATABASES.items()
    ),
    "many": (
        _speed("files (synced), speed vs MAF files (not synced)", "stepwell-files", ["maf-files"], 2),
        _speed("SQLite, speed vs LangGraph", "stepwell-sqlite", ["langgraph-sqlite"], 15),
        _speed("PostgreSQL, speed vs LangGraph", "stepwell-postgres", ["langgraph-postgres"], 13),
        *(
            Goal(f"{words}, p99 vs LangGraph", f"stepwell-{place}", "p99_ms", most=0.25, peers=(f"langgraph-{place}",))
            for place, words in DATABASES.items()
        ),
    ),
    "steps": (
        *(
            _speed(f"{words}, speed vs {peer}", f"stepwell-{place}", [f"{system}-{place}"], least)
            for place, words in DATABASES.items()
            for peer, system, least in (("DBOS", "dbos", 3), ("raw commits", "raw", 0.7))
        ),
        Goal("SQLite, MB on disk after 1,000 steps", "stepwell-sqlite", "left", most=2.5, unit=1_000_000),
    ),
    "agent": tuple(
        goal
        for place, words in DATABASES.items()
        for goal in (
            _speed(f"{words}, speed vs pydantic-ai on DBOS", f"stepwell-{place}", [f"dbos-{place}"], 1),
            Goal(
                f"{words}, bytes written vs pydantic-ai on DBOS",
                f"stepwell-{place}",
                "written_each",
                most=1,
                peers=(f"dbos-{place}",),
            ),
        )
    ),
    "answer": (
        Goal("store reads", "stepwell-sqlite", "reads", most=3),
        Goal("store writes", "stepwell-sqlite", "writes", most=4),
    ),
    "respond": (
        Goal("times the run is folded", "stepwell-sqlite", "folds", most=1),
        Goal("ms of CPU time", "stepwell-sqlite", "command_cpu_ms", most=170),
    ),
    "superstep": (
        Goal("functions entered", "stepwell-sqlite", "functions", most=110),
        Goal("files entered", "stepwell-sqlite", "files", most=24),
    ),
    "source": (
        Goal("lines of the longest function", "stepwell", "longest_function", most=60),
        Goal("lines of the longest file", "stepwell", "longest_file", most=400),
    ),
    **{
        case: tuple(
            Goal(f"{place}, handlers called again", f"stepwell-{place}", "called_again", most=1) for place in DURABLE
        )
        for case in ("crash", "crash-late")
    },
    "import": tuple(
        Goal(f"CPU time vs {peer}", "stepwell", "import_cpu_ms", most=1, peers=(peer,)) for peer in ("maf", "langgraph")
    ),
    "operations": (
        Goal("SQLite, `list`, ms of CPU time", "stepwell-sqlite", "list_cpu_ms", most=150),
        *(
            Goal(
                f"{words}, `{what}` vs a small store",
                f"stepwell-{place}",
                f"{what}_cpu_ms",
                most=1.5,
                peers=(f"stepwell-{place}-small",),
            )
            for place, words in DATABASES.items()
            for what in ("list", "show", "requests", "respond")
        ),
    ),
    "installed": tuple(
        Goal(f"size vs {peer}", "stepwell", "bytes", most=1, peers=(peer,)) for peer in ("maf", "langgraph")
    ),
}
