"""Stepwell on other systems: every module loads without POSIX, and the memory and SQLite stores work without it."""

import ast
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

import stepwell
from stepwell import FileCheckpointStorage, PostgresCheckpointStorage, StepwellError, StoreUnavailable
from stepwell.declarative import JsonTranscriptStore
from stepwell.storage.lease import LEASE, process_start
from tests.interpreters import VERSIONS
from tests.support.without_posix import MODULES, NAMES

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "stepwell"
# They load the libraries of others.
ADAPTERS = ("stepwell.agents.adapters.", "stepwell.worker.dispatch.procrastinate")
NAMED = {(module.__name__, name) for module, names in NAMES.items() for name in names}
REFUSED_ELSEWHERE = {  # they need POSIX: their stores refuse to be opened without it
    *("storage/durable_files.py", "stores/files/run_file.py"),
    "declarative/transcripts.py",
}
ASKED_FOR = {  # each looks whether the name is there before it uses it, or whether this is Linux
    "storage/posix.py": {"register_at_fork"},
    "storage/permissions.py": {"fchmod"},
    "storage/clock.py": {"clock_gettime", "CLOCK_BOOTTIME"},
    "stores/fork_hooks.py": {"register_at_fork"},
    "stores/jobs.py": {"eventfd"},
    "cli/forms/dialogue.py": {"readline"},
}
RUNTIME = ("claims", "durability", "fences", "position", "requests", "restoring", "retry", "running", "steps", "timers")
ENGINE = [  # a part of the tests of the engine that takes seconds
    *("tests/model", "tests/graph", "tests/kernel", "tests/storage/test_ownership.py"),
    *(f"tests/engine/test_{name}.py" for name in RUNTIME),
    "tests/surfaces/test_platforms.py::test_every_module_loads",
]
ENOUGH = 900  # tests; fewer would mean that the selection has gone wrong


@pytest.mark.process
def test_the_engine_works_without_posix_on_memory_and_sqlite(tmp_path: Path) -> None:
    plugin = ["-p", "tests.support.without_posix", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'tests'}"]
    chosen = ["-m", "not process and not long", *ENGINE]  # none of them is on another store
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-rN", *plugin, *chosen],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > ENOUGH


def test_every_module_loads() -> None:
    loaded = [import_module(name) for name in modules()]
    assert len(loaded) > 300


def modules() -> Iterator[str]:
    """Every module of the package but those that need the library of somebody else, and the script."""
    for found in pkgutil.walk_packages(stepwell.__path__, "stepwell."):
        if not found.name.startswith(ADAPTERS) and not found.name.endswith("__main__"):
            yield found.name


def test_what_only_posix_has_is_used_where_posix_is_required() -> None:
    used = {path: posix_names(SOURCE / path) for path in sources() if path not in REFUSED_ELSEWHERE}
    assert {path: names for path, names in used.items() if names} == ASKED_FOR


def sources() -> list[str]:
    return [path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")]


def posix_names(source: Path) -> set[str]:
    """The names of POSIX that a module uses: `os.fork`, or an import of one of its modules."""
    found = set()
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in NAMED:
                found.add(name)
            case ast.Import(names=names):
                found |= {alias.name for alias in names} & set(MODULES)
            case ast.ImportFrom(module=str(module), names=names):
                found |= {module} & set(MODULES)
                found |= {alias.name for alias in names if (module, alias.name) in NAMED}
    return found


def test_the_readme_says_what_is_tested_and_which_stores_are_refused() -> None:
    section = (ROOT / "README.md").read_text("utf-8").partition("## Platforms\n")[2].partition("\n## ")[0]
    assert f"tested | Linux, Python {', '.join(VERSIONS[:-1])} and {VERSIONS[-1]} |" in section
    (refused,) = [line for line in section.splitlines() if line.startswith("| does not work |")]
    assert all(name in refused for name in ("file store", "PostgreSQL store", "transcripts", "`StoreUnavailable`"))
    assert f"after {LEASE:.0f} seconds" in section


@pytest.mark.parametrize(
    ("opened", "named"),
    [
        (lambda folder: FileCheckpointStorage(folder), "the file store '{folder}'"),
        (lambda folder: JsonTranscriptStore(folder), "the transcript store '{folder}'"),
        (lambda folder: PostgresCheckpointStorage("", schema="runs"), "the PostgreSQL store with schema 'runs'"),
    ],
)
def test_a_store_that_needs_posix_says_so_when_it_is_opened(
    opened: Callable[[Path], object], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "fork")
    with pytest.raises(StoreUnavailable) as refused:
        opened(tmp_path / "runs")
    said = str(refused.value)
    assert said.startswith(f"{named.format(folder=tmp_path / 'runs')} cannot be opened on this system")
    assert "POSIX" in said
    assert "; use " in said
    assert isinstance(refused.value, StepwellError)
    assert list(tmp_path.iterdir()) == []


def test_where_a_process_cannot_be_looked_up_nobody_is_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(pid: int, number: int) -> None:
        raise AssertionError("that interrupts the process on Windows")

    monkeypatch.setattr(Path, "read_text", _no_such_file)
    monkeypatch.setattr(Path, "exists", lambda path: False)
    monkeypatch.setattr(os, "kill", interrupt)
    monkeypatch.delattr(os, "fork")
    assert process_start(os.getpid()) == process_start(2**22 + 1) == "alive"


def _no_such_file(path: Path) -> str:
    raise FileNotFoundError(path)
