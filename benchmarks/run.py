"""Measure Stepwell, its peers and raw baselines side by side, and print how they compare.

Every measurement runs in its own process. The repeats of all subjects are interleaved in shuffled order.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import machine
import postgres
import report
import subjects
from cases import CASES
from job import Subject

HERE = Path(__file__).resolve().parent
PACKAGES = (
    "stepwell",
    "agent-framework-core",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "dbos",
)
TIME_LIMIT = 900  # seconds for one measurement
BEGIN, END = "<!-- {part}: begin -->", "<!-- {part}: end -->"


@dataclass(frozen=True, slots=True)
class Planned:
    """One subject in one case."""

    system: str
    subject: Subject
    sizes: Mapping[str, int]


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", help=f"some of {','.join(CASES)}; default: all")
    parser.add_argument("--subjects", help="prefixes of names, such as stepwell,langgraph-sqlite; default: all")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--quick", dest="size", action="store_const", const="quick", default="full", help="use smaller sizes"
    )
    parser.add_argument(
        "--tiny",
        dest="size",
        action="store_const",
        const="tiny",
        help="use the smallest sizes, to check that everything runs",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random order")
    parser.add_argument("--folder", type=Path, help="where to create files; must be a disk, not memory")
    parser.add_argument("--json", type=Path, help="save every measurement to this file")
    parser.add_argument("--from", dest="kept", type=Path, help="show measurements saved by --json instead of measuring")
    parser.add_argument("--table", action="store_true", help="print all tables in Markdown; default: only the goals")
    parser.add_argument("--write", type=Path, help="a page in which to replace the measured part")
    parser.add_argument("--part", default="measured", help="the part of the page to replace, as named in its marks")
    return parser.parse_args(given)


def planned(asked: argparse.Namespace) -> tuple[list[Planned], list[str]]:
    """Return what to measure, and what has to be skipped and why."""
    wanted: list[Planned] = []
    left_out = [f"{system}: not installed" for system in subjects.SYSTEMS if system not in subjects.installed()]
    without_postgres = postgres.why_not()
    for system in subjects.installed():
        for subject in subjects.of(system):
            if not _asked_for(subject, asked):
                continue
            if subject.postgres and without_postgres is not None:
                left_out.append(f"{subject.case} {subject.name}: {without_postgres}")
                continue
            wanted.append(Planned(system, subject, CASES[subject.case].sizes(asked.size, subject.name)))
    return wanted, left_out


def _asked_for(subject: Subject, asked: argparse.Namespace) -> bool:
    cases = asked.cases.split(",") if asked.cases else list(CASES)
    names = tuple(asked.subjects.split(",")) if asked.subjects else ("",)
    return subject.case in cases and subject.name.startswith(names)


def measure_all(wanted: list[Planned], left_out: list[str], asked: argparse.Namespace) -> dict[str, Any]:
    """Return all measurements. With --json they are saved after each one, so an interrupted run loses none."""
    result: dict[str, Any] = {
        "machine": machine.words(),
        "versions": versions(),
        "size": asked.size,
        "repeats": asked.repeats,
        "left_out": left_out,
        "failed": [],
        "measurements": [],
    }
    needed = any(one.subject.postgres for one in wanted)
    with postgres.server() if needed else nullcontext(None) as server:
        for one in measured(wanted, asked, server):
            if "failed" in one:
                result["failed"].append(f"{one['case']} {one['subject']}")
            else:
                result["measurements"].append(one)
            if asked.json:
                asked.json.write_text(json.dumps(result, indent=1))
    return result


def measured(wanted: list[Planned], asked: argparse.Namespace, server: str | None) -> Iterator[dict[str, Any]]:
    order = random.Random(asked.seed)
    for repeat in range(asked.repeats):
        for one in order.sample(wanted, len(wanted)):
            if repeat >= CASES[one.subject.case].most_repeats:
                continue
            figures = measure(one, asked.folder, server)
            say(f"{repeat + 1}/{asked.repeats} {one.subject.case} {one.subject.name}: {brief(figures)}")
            yield figures


def measure(one: Planned, folder: Path | None, server: str | None) -> dict[str, Any]:
    subject = one.subject
    known = {"case": subject.case, "subject": subject.name, "keeps": subject.keeps, "sizes": dict(one.sizes)}
    database = postgres.fresh_database(server or "") if subject.postgres else nullcontext(None)
    with tempfile.TemporaryDirectory(dir=folder, prefix="bench-") as work, database as dsn:
        command = [sys.executable, str(HERE / "one.py"), one.system, subject.case, subject.name, work]
        command += [json.dumps(known["sizes"]), *(["--dsn", dsn] if dsn else [])]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False)
        except subprocess.TimeoutExpired:
            return known | {"failed": f"took more than {TIME_LIMIT} s"}
    if done.returncode:
        return known | {"failed": done.stderr[-2000:]}
    return known | json.loads(done.stdout.splitlines()[-1])


def brief(figures: Mapping[str, Any]) -> str:
    if "failed" in figures:
        return f"FAILED\n{figures['failed']}"
    noted = ", ".join(f"{name} {report.number(value)}" for name, value in figures["notes"].items())
    if "seconds" not in figures:
        return noted
    case = CASES[figures["case"]]
    rate = case.count(figures["sizes"]) / figures["seconds"]
    return f"{report.number(rate)} {case.unit}s/s, others {figures['others']:.2f}" + (f", {noted}" if noted else "")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in PACKAGES if _is_installed(name)}


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def rewrite(page: Path, part: str, shown: str) -> None:
    """Replace the text between the two marks of a part of a page."""
    begin, end = BEGIN.format(part=part), END.format(part=part)
    before, there, rest = page.read_text().partition(begin)
    if not there:
        raise SystemExit(f"{page} does not contain {begin}")
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{shown}\n{end}{after}")


def main(given: list[str] | None = None) -> int:
    asked = arguments(given)
    if asked.kept:
        result = json.loads(asked.kept.read_text())
    else:
        wanted, left_out = planned(asked)
        for line in left_out:
            say(f"skipped: {line}")
        result = measure_all(wanted, left_out, asked)
    if asked.write:
        rewrite(asked.write, asked.part, report.markdown(result))
    print(report.markdown(result, tables=asked.table))
    return 1 if result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
