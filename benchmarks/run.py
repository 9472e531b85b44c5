"""Measure Stepwell, its peers and raw baselines side by side, and print how they compare.

Every measurement runs in its own process, with the source of this checkout. The repeats of a case's subjects are
interleaved in shuffled order.
"""

import argparse
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import machine
import postgres
import report
import subjects
from cases import CASES, Case
from goals import GOALS
from job import Subject

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PACKAGES = (
    "agent-framework-core",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "dbos",
)
TIME_LIMIT = 1800  # seconds for one measurement
PARTS = {
    ROOT / "docs" / "performance.md": ("goals", report.goals),
    ROOT / "docs" / "performance-figures.md": ("figures", report.tables),
}
"""The pages, and the part of each that is written here: what stands between its two marks."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One subject in one case, with the source tree to measure."""

    system: str
    subject: Subject
    name: str
    tree: Path


@dataclass(frozen=True, slots=True)
class Place:
    """Where a subject stores its runs."""

    folder: str
    dsn: str | None


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", help=f"some of {','.join(CASES)}; default: all")
    parser.add_argument("--subjects", help="prefixes of names, such as stepwell,langgraph-sqlite; default: all")
    parser.add_argument("--repeats", type=int, help="how often each subject is measured; default: as the case says")
    parser.add_argument(
        "--extra", type=int, default=0, help="at most so many more repeats of subjects with fewer than three quiet ones"
    )
    parser.add_argument(
        "--quick",
        dest="size",
        action="store_const",
        const="quick",
        default="full",
        help="use smaller sizes, and only the subjects of the goals; takes about ten minutes",
    )
    parser.add_argument(
        "--tiny", dest="size", action="store_const", const="tiny", help="only check that everything runs"
    )
    parser.add_argument("--before", help="also measure the source of this commit, or of the checkout in this folder")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random order")
    parser.add_argument("--folder", type=Path, help="where to create files; must be a disk, not memory")
    parser.add_argument("--json", type=Path, help="save every measurement to this file")
    parser.add_argument(
        "--from", dest="kept", type=Path, nargs="+", help="show measurements saved by --json instead of measuring"
    )
    parser.add_argument("--table", action="store_true", help="print all figures; default: only the goals")
    parser.add_argument("--write", action="store_true", help="write the goals and the figures into the pages in docs/")
    return parser.parse_args(given)


def plan(asked: argparse.Namespace, trees: Mapping[str, Path]) -> tuple[list[Planned], list[str]]:
    """Return what to measure, and what has to be skipped and why."""
    skipped = [f"{system}: not installed" for system in subjects.SYSTEMS if system not in subjects.installed()]
    without_postgres = postgres.why_not()
    planned: list[Planned] = []
    for system in subjects.installed():
        for subject in subjects.of(system):
            if not _is_asked_for(subject, asked):
                continue
            if subject.postgres and without_postgres is not None:
                skipped.append(f"{subject.case} {subject.name}: {without_postgres}")
                continue
            for suffix, tree in trees.items():
                if not suffix or subject.name.startswith("stepwell"):
                    planned.append(Planned(system, subject, subject.name + suffix, tree))
    return planned, skipped


def _is_asked_for(subject: Subject, asked: argparse.Namespace) -> bool:
    cases = asked.cases.split(",") if asked.cases else list(CASES)
    names = tuple(asked.subjects.split(",")) if asked.subjects else ("",)
    counts = asked.size != "quick" or any(subject.name in goal.subjects for goal in GOALS[subject.case])
    return subject.case in cases and subject.name.startswith(names) and counts


def measure_all(asked: argparse.Namespace, trees: Mapping[str, Path]) -> dict[str, Any]:
    """Return all measurements. With --json they are saved after each one, so an interrupted run loses none."""
    planned, skipped = plan(asked, trees)
    for line in skipped:
        say(f"skipped: {line}")
    result: dict[str, Any] = {
        "machine": machine.words(),
        "versions": {name: metadata.version(name) for name in PACKAGES if subjects.is_there(name)},
        "size": asked.size,
        "skipped": skipped,
        "failed": [],
        "measurements": [],
    }
    with ExitStack() as stack:
        server = stack.enter_context(postgres.server()) if any(one.subject.postgres for one in planned) else None
        for case in CASES.values():
            mine = [one for one in planned if one.subject.case == case.name]
            for one in measure_case(case, mine, asked, server):
                if "failed" in one:
                    result["failed"].append(f"{one['case']} {one['subject']}")
                else:
                    result["measurements"].append(one)
                if asked.json:
                    asked.json.write_text(json.dumps(result, indent=1))
    return result


def measure_case(
    case: Case, planned: list[Planned], asked: argparse.Namespace, server: str | None
) -> Iterator[dict[str, Any]]:
    order, quiet = random.Random(asked.seed), Counter[str]()
    repeats = asked.repeats or case.times(asked.size)
    extra = asked.extra if any(goal.is_elapsed_time for goal in GOALS[case.name]) else 0
    with ExitStack() as stack:
        prepared: dict[str, Place] = {}  # by name, for the subjects that fill a store once
        for repeat in range(repeats + extra):
            left = [one for one in planned if repeat < repeats or quiet[one.name] < report.ENOUGH]
            for one in order.sample(left, len(left)):
                if one.subject.prepare is None:
                    with _place(one.subject, asked.folder, server) as place:
                        figures = measure(one, place, asked)
                else:
                    if one.name not in prepared:
                        prepared[one.name] = stack.enter_context(_place(one.subject, asked.folder, server))
                        measure(one, prepared[one.name], asked, "--prepare")
                    figures = measure(one, prepared[one.name], asked)
                quiet[one.name] += report.is_quiet(figures)
                say(f"{repeat + 1}/{repeats} {one.subject.case} {one.name}: {brief(figures)}")
                yield figures


@contextmanager
def _place(subject: Subject, folder: Path | None, server: str | None) -> Iterator[Place]:
    with ExitStack() as stack:
        work = stack.enter_context(tempfile.TemporaryDirectory(dir=folder, prefix="bench-"))
        dsn = stack.enter_context(postgres.fresh_database(server or "")) if subject.postgres else None
        yield Place(work, dsn)


def measure(one: Planned, place: Place, asked: argparse.Namespace, *options: str) -> dict[str, Any]:
    subject, sizes = one.subject, dict(CASES[one.subject.case].sizes(asked.size))
    known = {"case": subject.case, "subject": one.name, "keeps": subject.keeps, "sizes": sizes}
    command = [sys.executable, str(HERE / "one.py"), one.system, subject.case, subject.name, place.folder]
    command += [json.dumps(sizes), *(["--dsn", place.dsn] if place.dsn else []), *options]
    env = os.environ | {"PYTHONPATH": str(one.tree / "src"), "PYTHONDONTWRITEBYTECODE": ""}  # "": it may write
    began, busy, used = time.perf_counter(), machine.machine_busy(), machine.used_by_children()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False, env=env)
    except subprocess.TimeoutExpired:
        return known | {"failed": f"took more than {TIME_LIMIT} s"}
    if done.returncode:
        return known | {"failed": done.stderr[-2000:]}
    others = machine.machine_busy() - busy - (machine.used_by_children() - used)
    known["others"] = max(0.0, others) / (time.perf_counter() - began)  # timed subjects count for themselves
    return known | json.loads(done.stdout.splitlines()[-1])


def brief(figures: Mapping[str, Any]) -> str:
    if "failed" in figures:
        return f"FAILED\n{figures['failed']}"
    shown = [f"others {figures['others']:.2f}"] if "others" in figures else []
    if "seconds" in figures:
        case = CASES[figures["case"]]
        shown.insert(0, f"{report.number(case.count(figures['sizes']) / figures['seconds'])} {case.unit}s/s")
    return ", ".join([*shown, *(f"{name} {report.number(value)}" for name, value in figures["notes"].items())])


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def merge(kept: list[Path]) -> dict[str, Any]:
    """Return the measurements of several files as one result."""
    results = [json.loads(path.read_text()) for path in kept]
    for same in ("machine", "versions", "size"):
        if any(one[same] != results[0][same] for one in results):
            raise SystemExit(f"the files differ in their {same}; show them one by one")
    joined = {name: [item for one in results for item in one[name]] for name in ("failed", "measurements")}
    return results[0] | joined | {"skipped": list(dict.fromkeys(line for one in results for line in one["skipped"]))}


def split_page(page: Path, part: str) -> tuple[str, str]:
    """Return what stands before and after a part of a page, with its marks."""
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    text = page.read_text()
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise SystemExit(f"{page} must contain {begin} and, after it, {end}, each once")
    return text[: text.index(begin) + len(begin)], text[text.index(end) :]


def write(result: Mapping[str, Any]) -> None:
    """Replace the measured parts of the pages."""
    missing = set(CASES) - {one["case"] for one in result["measurements"]}
    if missing:
        raise SystemExit(f"--write replaces all tables, and {', '.join(sorted(missing))} was not measured")
    for page, (part, shown) in PARTS.items():
        before, after = split_page(page, part)
        page.write_text(f"{before}\n\n{shown(result)}\n{after}")


@contextmanager
def unpacked(before: str | None) -> Iterator[dict[str, Path]]:
    """Yield the source trees by the suffix of their subjects' names: this one, and that of a commit."""
    with tempfile.TemporaryDirectory() as folder:
        if before is None:
            yield {"": ROOT}
        elif Path(before).is_dir():
            yield {"": ROOT, "@before": Path(before).resolve()}
        else:
            archive = subprocess.run(
                ["git", "archive", before, "src"], cwd=ROOT, capture_output=True, check=True
            ).stdout
            with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
                packed.extractall(folder, filter="data")
            yield {"": ROOT, "@before": Path(folder)}


def main(given: list[str] | None = None) -> int:
    asked = arguments(given)
    for page, (part, _) in PARTS.items() if asked.write else ():
        split_page(page, part)  # before an hour of measuring
    if asked.kept:
        result = merge(asked.kept)
    else:
        with unpacked(asked.before) as trees:
            result = measure_all(asked, trees)
    if asked.write:
        write(result)
    if asked.table:
        print(report.tables(result))
    print(report.goals(result))
    return 1 if result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
