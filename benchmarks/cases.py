"""The cases: what is measured, and at which sizes. The targets are in `goals`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Size = Literal["full", "quick", "tiny"]
Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    words: str
    full: Sizes
    quick: Sizes
    tiny: Sizes
    unit: str | None = None  # of the rates; None: what is measured are the subject's notes
    count: Callable[[Sizes], int] = lambda sizes: 1  # units in one measurement
    notes: tuple[str, ...] = ()  # shown in this order
    repeats: tuple[int, int] = (5, 3)  # at full and at quick size

    def sizes(self, size: Size) -> Sizes:
        return {"full": self.full, "quick": self.quick, "tiny": self.tiny}[size]

    def times(self, size: Size) -> int:
        return {"full": self.repeats[0], "quick": self.repeats[1], "tiny": 1}[size]


def _crash(name: str, late_ms: int, words: str) -> Case:
    sizes = {"late_ms": late_ms}
    return Case(name, words, full=sizes, quick=sizes, tiny={"late_ms": min(late_ms, 200)}, notes=("called_again",))


OPERATIONS = ("list", "list_filtered", "list_text", "show", "show_long", "requests", "respond")
PASSES = ("doctor", "prune_dry_run", "prune", "compact")

ALL = (
    Case(
        name="chain",
        words="one executor that sends to itself for {supersteps:,} supersteps, with a tiny state",
        full={"supersteps": 2000},
        quick={"supersteps": 1000},
        tiny={"supersteps": 20},
        unit="superstep",
        count=lambda sizes: sizes["supersteps"],
        repeats=(9, 7),
    ),
    Case(
        name="growth",
        words="a conversation that grows by 1 KiB in each of {turns:,} supersteps; all of it is stored",
        full={"turns": 300, "window": 128},
        quick={"turns": 300, "window": 128},
        tiny={"turns": 10, "window": 128},
        unit="superstep",
        count=lambda sizes: sizes["turns"],
        notes=("empty",),
    ),
    Case(
        name="long",
        words="the same for {turns:,} supersteps; the cost at a turn is the mean of the {window} supersteps before it",
        full={"turns": 3000, "window": 128},
        quick={"turns": 3000, "window": 128},
        tiny={"turns": 20, "window": 128},
        unit="superstep",
        count=lambda sizes: sizes["turns"],
        notes=("ms_at_10", "ms_at_100", "ms_at_1000", "ms_at_3000"),
        repeats=(3, 2),
    ),
    Case(
        name="big",
        words="{kib:,} KiB of documents that are set once, and a counter that changes in each superstep after that",
        full={"kib": 10240, "supersteps": 100},
        quick={"kib": 2048, "supersteps": 50},
        tiny={"kib": 16, "supersteps": 5},
        unit="superstep",
        count=lambda sizes: sizes["supersteps"],
        repeats=(3, 3),
    ),
    Case(
        name="heavy",
        words=(
            "{kib:,} KiB of state, of which every superstep changes a little. CPU time of the event loop's thread, to "
            "encode all of it (the least), to read it, to hand it over, and between two handler calls"
        ),
        full={"kib": 20480, "supersteps": 20},
        quick={"kib": 20480, "supersteps": 6},
        tiny={"kib": 16, "supersteps": 4},
        unit="superstep",
        count=lambda sizes: sizes["supersteps"],
        notes=("encode_cpu_ms", "read_cpu_ms", "hand_over_cpu_ms", "between_cpu_ms", "most_between_cpu_ms"),
    ),
    Case(
        name="history",
        words=(
            "in a store with a run of few ({few:,}) and one of many ({checkpoints:,}) checkpoints, and a talk of "
            "{talk} KiB. A new process calls the next handler of the run of many; then it reads the newest "
            "checkpoint of each, lists {page}, and resumes"
        ),
        full={"few": 100, "checkpoints": 5000, "talk": 300, "page": 20, "looks": 5},
        quick={"few": 100, "checkpoints": 5000, "talk": 300, "page": 20, "looks": 5},
        tiny={"few": 10, "checkpoints": 30, "talk": 10, "page": 20, "looks": 2},
        notes=(
            "open_to_handler_ms",
            "process_to_handler_ms",
            *(f"{what}_ms_{run}" for what in ("latest", "page", "next", "resume") for run in ("few", "many", "talk")),
        ),
        repeats=(9, 7),
    ),
    Case(
        name="fanout",
        words="one executor fans out to {width}, which fan in to it again; {rounds} rounds",
        full={"width": 100, "rounds": 40},
        quick={"width": 100, "rounds": 20},
        tiny={"width": 10, "rounds": 2},
        unit="message",
        count=lambda sizes: 2 * sizes["width"] * sizes["rounds"],
    ),
    Case(
        name="many",
        words="{runs} concurrent runs of {supersteps} supersteps in one process",
        full={"runs": 500, "supersteps": 20},
        quick={"runs": 500, "supersteps": 8},
        tiny={"runs": 5, "supersteps": 5},
        unit="superstep",
        count=lambda sizes: sizes["runs"] * sizes["supersteps"],
        notes=("p50_ms", "p99_ms"),
    ),
    Case(
        name="steps",
        words="a durable function that makes {steps:,} steps, one after the other, each with a result of 500 bytes",
        full={"steps": 1000},
        quick={"steps": 1000},
        tiny={"steps": 20},
        unit="step",
        count=lambda sizes: sizes["steps"],
    ),
    Case(
        name="agent",
        words="an agent of pydantic-ai: {requests:,} requests to its model, with a tool call after each but the last",
        full={"requests": 40},
        quick={"requests": 40},
        tiny={"requests": 5},
        unit="request",
        count=lambda sizes: sizes["requests"],
    ),
    Case(
        name="answer",
        words="an answer by `run(responses=)`, until the run is completed: calls of the store",
        full={},
        quick={},
        tiny={},
        notes=("reads", "writes"),
        repeats=(1, 1),
    ),
    Case(
        name="respond",
        words="`stepwell respond --response` on a conversation of {turns:,} KiB, from start to exit",
        full={"turns": 300, "starts": 10},
        quick={"turns": 300, "starts": 5},
        tiny={"turns": 20, "starts": 1},
        notes=("folds", "command_cpu_ms", "bare_cpu_ms"),
        repeats=(3, 3),
    ),
    Case(
        name="superstep",
        words="one superstep of `chain`, from one handler call to the next: what Python enters of the library",
        full={"supersteps": 50},
        quick={"supersteps": 50},
        tiny={"supersteps": 20},
        notes=("functions", "files"),
        repeats=(1, 1),
    ),
    Case(
        name="source",
        words="the source of the library: lines of the longest function and of the longest file, and all statements",
        full={},
        quick={},
        tiny={},
        notes=("longest_function", "longest_file", "statements"),
        repeats=(1, 1),
    ),
    _crash("crash", 20, "killed {late_ms} ms after nine of ten parallel handlers: how many are called again"),
    _crash("crash-late", 1000, "the same, killed {late_ms:,} ms later"),
    Case(
        name="import",
        words="a new process that imports what a stored workflow needs, minus one that imports nothing",
        full={"starts": 5},
        quick={"starts": 3},
        tiny={"starts": 1},
        notes=("import_ms", "import_cpu_ms"),
    ),
    Case(
        name="operations",
        words=(
            "operations on a store of {checkpoints:,} checkpoints (small: {small:,}), from the command line and by "
            "calls of the API; the passes over all of it in checkpoints per second"
        ),
        full={"checkpoints": 100_000, "small": 1000, "looks": 5},
        quick={"checkpoints": 20_000, "small": 1000, "looks": 2},
        tiny={"checkpoints": 500, "small": 300, "looks": 1},
        notes=(
            *(f"{what}_{unit}" for what in OPERATIONS for unit in ("cpu_ms", "api_ms")),
            *(f"{what}_rate" for what in PASSES),
        ),
        repeats=(1, 1),
    ),
    Case(
        name="installed",
        words="installed into an empty folder, with all dependencies, without compiled files",
        full={},
        quick={},
        tiny={},
        notes=("bytes", "packages"),
        repeats=(1, 1),
    ),
)
CASES = {case.name: case for case in ALL}
