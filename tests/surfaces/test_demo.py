"""`make demo` does what it says, on a terminal and without one, twice in a row."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.status_names import status_names

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "demo.py"
RECORDING = ROOT / "docs" / "pictures" / "demo.svg"
INSIDE = [f"research/{name}" for name in ("desk", "weather", "museums", "trains", "collector")]
ONCE = ["planner", *INSIDE, "editor", "decision", "publisher"]
TWICE = ["research/hotels", "research/restaurants"]


def check(told: str, folder: Path) -> None:
    for name in ONCE:
        assert re.search(rf"{name} +1x", told), told
    for name in TWICE:
        assert re.search(rf"{name} +2x", told), told
    assert "killed with SIGKILL while 2 of them were still working" in told
    assert "Another worker takes the run over, right there inside the research" in told
    assert "Nothing that had finished ran again." in told
    assert "the run is waiting" in told
    assert "was killed too, while the run waits" in told
    assert "the run is completed; its output" in told
    assert "restaurants: what there is to know about restaurants in Lisbon" in told
    assert status_names(told) == []
    # It ends with what `stepwell show` prints of the run.
    shown = told[told.index("stepwell show ") :].splitlines()[1:]
    assert re.match(r"Run \S+ of city guide is completed; it took ", shown[0])
    assert {"input", "output", "answers"} <= set(shown)
    assert (folder / ".demo" / "runs.db").exists()


def test_the_demo_works_without_a_terminal_and_twice_in_a_row(tmp_path: Path) -> None:
    for _ in range(2):
        command = [sys.executable, "-W", "error", str(DEMO)]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == "long values are shortened; --full shows them\n"  # a note of `stepwell show`
        assert "\033" not in done.stdout
        check(done.stdout, tmp_path)


def test_the_demo_is_coloured_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    with subprocess.Popen([sys.executable, str(DEMO)], cwd=tmp_path, stdout=theirs, env=env) as demo:
        os.close(theirs)
        told = b""
        try:
            while chunk := os.read(ours, 65536):
                told += chunk
        except OSError:  # how the end of a terminal's output shows on Linux
            pass
    os.close(ours)
    assert demo.returncode == 0
    assert b"\033[" in told
    check(re.sub(r"\033\[[0-9;]*m", "", told.decode()), tmp_path)
    check_recording(re.sub(r"\033\[[0-9;]*m", "", told.decode()))


def check_recording(told: str) -> None:
    """What the picture shows is what the demo prints, except for the answer that a person typed."""
    rows = ElementTree.parse(RECORDING).getroot().iter("{http://www.w3.org/2000/svg}text")
    shown = {make_timeless("".join(row.itertext())) for row in rows}
    assert {line for line in shown if "[Y/n]" not in line} <= {make_timeless(line) for line in told.splitlines()}


def make_timeless(line: str) -> str:
    return re.sub(r" +", " ", re.sub(r"demo-[0-9a-f]+|\d{3,}", "N", line)).strip()
