"""The benchmarks run: in the smallest size, for one storage, without the peers."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
RUN = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--tiny", "--repeats", "1", "--table"]
CASES = ("chain", "growth", "big", "history", "fanout", "many", "crash-late", "command")


def test_the_benchmarks_measure_every_case_and_show_it_in_tables() -> None:
    asked = ["--subjects", "stepwell-sqlite", "--cases", ",".join(CASES)]
    done = subprocess.run([*RUN, *asked], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    headings = [line.removeprefix("### ") for line in done.stdout.splitlines() if line.startswith("### ")]
    assert headings == list(CASES)
    assert done.stdout.count("| stepwell-sqlite | sync |") == len(CASES)


def test_two_versions_are_measured_side_by_side() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "versions.py"), "--before", str(ROOT), "--size", "tiny"]
    asked = ["--stores", "none,memory", "--cases", "chain", "--repeats", "1"]
    done = subprocess.run([*command, *asked], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    measured = [line.split("|")[1:3] for line in done.stdout.splitlines()[2:]]
    assert [(case.strip(), name.strip()) for case, name in measured] == [
        ("chain", "stepwell"),
        ("chain", "stepwell-memory"),
    ]


def test_the_benchmark_of_operating_measures_everything_it_does() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "operating.py"), "--sizes", "700", "--repeats", "1"]
    done = subprocess.run([*command, "--stores", "SQLite"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1].split()[0] for row in rows] == [
        *("list", "list", "list", "show", "show", "requests", "respond", "doctor", "prune", "prune", "compact")
    ]
