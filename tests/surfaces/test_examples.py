"""Every program under examples/ runs, ends well, soon, and shows what it says it shows."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.status_names import status_names

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

SHOWN = {
    "agents_by_name": "  output: good: All about kelp.",
    "concurrent_agents": "models were called: {'legal': 1, 'sales': 2, 'design': 1}",
    "counter_with_hooks": "output after the resume: [5]",
    "custom_storage": "continued from the second line: [112]",
    "file_storage_restart": "  output: [['table', 'chair', 'lamp', 'carpet']]",
    "functions": "longest: lighthouse (10)",
    "group_chat": "output: The switch is ordered.",
    "handoff": "shipping: A label for the red lamp is on its way. Anything else?",
    "handles": "  all outputs now: ['1 m', '2 m', '3 m', '4 m', '5 m']",
    "human_in_the_loop": "  a boat: refused (too expensive)",
    "older_api": "new workflow: a jar of sliced clean apples",
    "persistent_attribute": "continued from there: [100, 200, 300] make 600",
    "recovery_loop": "factored, in this order: [2, 3, 4, 5, 6, 7, 8, 9, 10]",
    "resume_same_and_new_instance": "its lineage leads to the older checkpoint: True",
    "retry": "  300 paid in 1 booking",
    "routing": "'a broken cup': archived 'a broken cup'; answered, because ['billing: checked', 'shipping: checked']",
    "sequential": "output: [in French] Our lamp shines.",
    "shared_state": "warmest of 3: 24",
    "sub_workflow_checkpoint": "  launched with: (not published: too loud)",
    "timers": "  due in four days: ada of library",
    "tool_approval": "  payments recorded by the bank: 1",
    "workflow_as_agent": "  planner: booked: two nights in Lisbon",
    "writer_with_a_human": "  printed: Lamp: light.",
}
"""A line that each example must print."""

OTHERWISE_TESTED = {
    "demo",  # it keeps its data on purpose and takes longer
    "service",  # it serves until it is stopped
    # Programs to start from keep their data in a folder, and are killed: test_example_programs
    "code_migration",
    "durable_function",
    "fastapi_service",
    "invoice_pipeline",
    "research_team",
    "support_agent",
}


def found() -> list[str]:
    return sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in OTHERWISE_TESTED)


def run(name: str, directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *args]
    environment = {**os.environ, "TMPDIR": str(directory), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=30)


@pytest.mark.process
@pytest.mark.parametrize("name", found())
def test_an_example_shows_what_it_says_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    assert name in SHOWN, f"say in SHOWN which line examples/{name}.py must print"
    done = run(name, tmp_path)
    assert done.returncode == 0, done.stderr
    assert SHOWN[name] in done.stdout.splitlines(), done.stdout
    assert done.stderr == ""
    assert status_names(done.stdout) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_the_restart_example_keeps_its_files_where_it_is_told(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    done = run("file_storage_restart", tmp_path, str(kept))
    assert done.returncode == 0, done.stderr
    assert "  exit code 9" in done.stdout.splitlines()
    (log,) = kept.glob("runs/*/*.jsonl")
    assert log.read_text().count('{"line":"commit"') == 5


def test_every_line_that_is_looked_for_belongs_to_an_example() -> None:
    assert set(SHOWN) == set(found())


def test_the_list_of_examples_has_each_with_its_first_sentence() -> None:
    rows = re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\) \| (.+) \|$", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    programs = {path.stem: ast.get_docstring(ast.parse(path.read_text())) or "" for path in EXAMPLES.glob("*.py")}
    assert dict(rows) == {name: " ".join(text.split("\n\n")[0].split()) for name, text in programs.items()}


def test_an_example_is_short_enough_to_be_read() -> None:
    lengths = {name: len((EXAMPLES / f"{name}.py").read_text().splitlines()) for name in found()}
    assert {name: lines for name, lines in lengths.items() if lines > 90} == {}
