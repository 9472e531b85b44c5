"""Where the CPU time of one superstep, and of one step, goes, by part of the library: a table in Markdown.

    python benchmarks/superstep_profile.py [--supersteps 1000] [--repeats 15] [--write docs/performance.md]

The cases are `chain`, and `steps` on SQLite. The time is the least of the repeats, without a profiler. How it is spread
over the parts is what cProfile counts in the thread of the event loop, without the time of calls into other parts.
Built-in functions belong to the part that calls them.
"""

import argparse
import asyncio
import cProfile
import pstats
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from job import Job
from run import split_page
from subjects.stepwell.functions import loop
from subjects.stepwell.speed import counting_down
from subjects.stepwell.workflow import WARM, close, looping, storage

from stepwell import CheckpointStorage, Workflow

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src" / "stepwell"
Build = Callable[[int, CheckpointStorage | None], Workflow[Any]]


def chain(supersteps: int, kept: CheckpointStorage | None) -> Workflow[Any]:
    return looping(counting_down(), kept, limit=supersteps)


def steps(_: int, kept: CheckpointStorage | None) -> Workflow[Any]:
    return loop.build(checkpoint_storage=kept)


CASES: dict[str, tuple[str, Build]] = {
    "none": ("none", chain),
    "memory": ("memory", chain),
    "sqlite": ("sqlite", chain),
    "a step, sqlite": ("sqlite", steps),
}
PARTS = {
    "engine": "plans, calls the handler, decides, emits (`engine`)",
    "graph": "chooses the handler (`graph`)",
    "kernel": "merges, routes, applies, makes events (`kernel`)",
    "model": "state and payloads (`model`)",
    "codec": "encodes and decodes values (`codec`)",
    "storage": "builds the record, its id and its checksum (`storage`)",
    "stores": "hands the record to the store, and wakes up again (`stores`)",
    "handler": "the handler",
    "event loop": "the event loop",
}
OTHER_THREADS = "other threads: the statements, and the commit"


def part_of(function: tuple[str, int, str]) -> str | None:
    """Return the part that a function belongs to; None if it is built in."""
    path = Path(function[0])
    if function[0] == "~":
        return None
    if path.is_relative_to(SOURCE):
        part = path.relative_to(SOURCE).parts[0]
        return part if part in PARTS else "engine"
    return "handler" if path.is_relative_to(HERE) else "event loop"


def spread(profile: cProfile.Profile) -> dict[str, float]:
    """Return the share of each part in the time of a profile."""
    seconds: Counter[str] = Counter()
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for function, (_, _, own, _, callers) in stats.items():
        part = part_of(function)
        if part is not None:
            seconds[part] += own
            continue
        for caller, (_, _, own_there, _) in callers.items():
            seconds[part_of(caller) or "event loop"] += own_there
    # What the loop waits for the disk is not CPU time.
    waits = ("select.epoll", "select.poll", "select.kqueue")
    for function, (_, _, own, _, _) in stats.items():
        if any(wait in function[2] for wait in waits):
            seconds["event loop"] -= own
    total = sum(seconds.values())
    return {part: each / total for part, each in seconds.items()}


async def measure(place: str, build_case: Build, supersteps: int, repeats: int) -> dict[str, float]:
    """Return the microseconds that a superstep, or a step, takes in each part."""
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        kept = storage(place, Job({}, Path(folder)))

        def build() -> Workflow[Any]:
            return build_case(supersteps, kept)

        await build().run(WARM)
        here = [await least(build, supersteps, time.thread_time) for _ in range(repeats)]
        everywhere = [await least(build, supersteps, time.process_time) for _ in range(repeats)]
        profile = cProfile.Profile()
        workflow = build()
        profile.enable()
        await workflow.run(supersteps)
        profile.disable()
        await close(kept)
    parts = {part: share * min(here) for part, share in spread(profile).items()}
    return parts | {OTHER_THREADS: max(0.0, min(everywhere) - min(here))}


async def least(build: Callable[[], Workflow[Any]], supersteps: int, clock: Callable[[], float]) -> float:
    workflow = build()
    began = clock()
    await workflow.run(supersteps)
    return (clock() - began) / supersteps * 1e6


def table(measured: dict[str, dict[str, float]]) -> str:
    lines = [f"| µs of one superstep | {' | '.join(measured)} |", f"| --- | {' | '.join('---:' for _ in measured)} |"]
    for part, words in {**PARTS, OTHER_THREADS: OTHER_THREADS}.items():
        row = [parts.get(part, 0.0) for parts in measured.values()]
        lines.append(f"| {words} | {' | '.join(f'{each:.1f}' if each >= 0.05 else '-' for each in row)} |")
    totals = [f"**{sum(parts.values()):.0f}**" for parts in measured.values()]
    return "\n".join([*lines, f"| **all** | {' | '.join(totals)} |"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--supersteps", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--write", type=Path, help="a page in which to replace the table")
    asked = parser.parse_args()
    measured = table(
        {name: asyncio.run(measure(*case, asked.supersteps, asked.repeats)) for name, case in CASES.items()}
    )
    print(measured)
    if asked.write is not None:
        before, after = split_page(asked.write, "profile")
        asked.write.write_text(f"{before}\n\n{measured}\n\n{after}")


if __name__ == "__main__":
    main()
