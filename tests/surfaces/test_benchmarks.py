"""The benchmarks run: in the smallest size, for one storage, without the peers."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell import SQLiteCheckpointStorage
from stepwell.admin import Examined, examine
from stepwell.model.status_words import STANDINGS

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
RUN = [sys.executable, str(BENCHMARKS / "run.py"), "--tiny"]
PAGES = [ROOT / "docs" / name for name in ("performance.md", "performance-figures.md")]
TIMED = ("chain", "growth", "long", "big", "heavy", "fanout", "many")
NOTED = ("history", "answer", "respond", "superstep", "crash", "crash-late", "operations")
WITHOUT_STORE = ("source", "import")


def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*RUN, *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stderr
    return done


def tables(printed: str) -> dict[str, list[list[str]]]:
    """The rows of each case's table, and under "goals" those of the last one."""
    found: dict[str, list[list[str]]] = {}
    name = ""
    for line in printed.splitlines():
        if line.startswith("### "):
            name = line.removeprefix("### ")
        elif line.startswith("| case | goal |"):
            name = "goals"
        elif line.startswith("| "):
            found.setdefault(name, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_every_case_is_measured_and_shown_in_tables() -> None:
    shown = tables(run("--table", "--subjects", "stepwell-sqlite", "--cases", ",".join([*TIMED, *NOTED])).stdout)
    shown |= tables(run("--table", "--subjects", "stepwell", "--cases", ",".join(WITHOUT_STORE)).stdout)
    assert shown.keys() == {*TIMED, *NOTED, *WITHOUT_STORE, "goals"}
    for case in TIMED:
        assert "stepwell-sqlite" in [row[0] for row in shown[case]]
    for case in (*NOTED, *WITHOUT_STORE):
        assert all(value not in ("", "-") for row in shown[case][2:] for value in row[1:]), shown[case]


def test_each_goal_says_whether_it_is_reached() -> None:
    goals = tables(run("--subjects", "stepwell", "--cases", "source,import").stdout)["goals"][1:]
    assert [(case, words) for case, words, *_ in goals if case == "source"] == [
        ("source", "lines of the longest function"),
        ("source", "lines of the longest file"),
    ]
    assert {verdict for case, *_, verdict in goals if case == "source"} <= {"reached", "**not reached**"}
    assert {verdict for case, *_, verdict in goals if case == "import"} == {"**not measured**"}  # without the peers


def test_what_is_counted_is_the_same_in_every_run() -> None:
    def count() -> list[list[str]]:
        printed = run("--table", "--subjects", "stepwell-sqlite", "--cases", "answer,superstep").stdout
        shown = tables(printed)
        return shown["answer"] + shown["superstep"]

    first = count()
    assert all(int(value) > 0 for name, value in first if name in ("reads", "writes", "functions", "files"))
    assert count() == first


def test_two_versions_are_measured_side_by_side() -> None:
    done = run("--before", str(ROOT), "--table", "--subjects", "stepwell,raw-log", "--cases", "chain")
    names = [row[0] for row in tables(done.stdout)["chain"]]
    assert {"stepwell", "stepwell@before", "stepwell-memory", "stepwell-memory@before", "raw-log"} <= set(names)
    assert "raw-log@before" not in names


def test_pages_are_not_written_unless_every_case_was_measured() -> None:
    before = [page.read_bytes() for page in PAGES]
    done = run("--write", "--subjects", "raw-log", "--cases", "chain", code=1)
    assert "was not measured" in done.stderr
    assert [page.read_bytes() for page in PAGES] == before


def test_the_pages_have_the_marks_that_are_written_between() -> None:
    for page, part in zip(PAGES, ("goals", "figures"), strict=True):
        lines = page.read_text().splitlines()
        assert lines.index(f"<!-- {part}: begin -->") < lines.index(f"<!-- {part}: end -->")


@pytest.mark.parametrize("text", ["", "<!-- a: begin -->", "<!-- a: end --><!-- a: begin -->", "<!-- a: begin -->" * 2])
def test_a_page_without_its_marks_is_refused(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    program = f"import run; from pathlib import Path; run.split_page(Path({str(page)!r}), 'a')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=BENCHMARKS, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "must contain <!-- a: begin -->" in done.stderr


async def test_a_large_store_is_filled_with_runs_that_doctor_finds_whole(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    command = [sys.executable, str(BENCHMARKS / "large_store.py"), str(path), "--runs", "1000"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    assert await process.wait() == 0
    storage = SQLiteCheckpointStorage(path)
    (examined,) = [each async for each in examine(storage)]  # nothing else: no finding
    await storage.close()
    assert isinstance(examined, Examined)
    assert examined.runs == 1000 + 9 + 1 + 40  # the copies, one of each kind, and one with its forks
    assert set(examined.statuses) == set(STANDINGS)
