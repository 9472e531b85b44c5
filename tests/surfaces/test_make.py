"""What `make fast`, `make test` and `make matrix` run, and how they find the Pythons of a machine."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests import check
from tests.interpreters import VERSIONS, Machine, NotFound

ROOT = Path(__file__).resolve().parents[2]
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"
REAL = Path(sys.executable)

STORES = ("memory", "file", "postgres")

pytestmark = pytest.mark.process


def machine(home: Path, **environ: str) -> Machine:
    return Machine({"HOME": str(home), "PATH": str(home / "bin"), **environ})


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def real(path: Path) -> Path:
    """An interpreter that answers, at a place where it is looked for."""
    return program(path, f'exec {REAL} "$@"')


def silent(path: Path) -> Path:
    """A program that is there and does not answer, as a shim of pyenv."""
    return program(path, "echo 'command not found' >&2; exit 127")


def test_an_interpreter_is_found_on_the_path(tmp_path: Path) -> None:
    there = real(tmp_path / "bin" / f"python{THIS}")
    assert machine(tmp_path).find(THIS) == there


def test_one_that_does_not_answer_is_passed_over_for_one_of_pyenv(tmp_path: Path) -> None:
    silent(tmp_path / "bin" / f"python{THIS}")
    there = real(tmp_path / ".pyenv" / "versions" / f"{THIS}.99" / "bin" / "python")
    assert machine(tmp_path).find(THIS) == there


def test_pyenv_may_be_elsewhere(tmp_path: Path) -> None:
    there = real(tmp_path / "elsewhere" / "versions" / f"{THIS}.1" / "bin" / "python")
    assert machine(tmp_path, PYENV_ROOT=str(tmp_path / "elsewhere")).find(THIS) == there


def test_one_that_is_named_is_taken_first(tmp_path: Path) -> None:
    real(tmp_path / "bin" / f"python{THIS}")
    named = real(tmp_path / "mine")
    assert machine(tmp_path, PYTHONS=f"{named} {REAL}").find(THIS) == named


def test_one_of_another_version_is_not_taken_for_it(tmp_path: Path) -> None:
    program(tmp_path / "bin" / f"python{THIS}", "echo 2.7")
    with pytest.raises(NotFound):
        machine(tmp_path).find(THIS)


def test_one_that_is_named_and_does_not_answer_is_an_error(tmp_path: Path) -> None:
    there = silent(tmp_path / "mine")
    with pytest.raises(NotFound, match=f"{there}, named in PYTHONS, does not answer"):
        machine(tmp_path, PYTHONS=str(there)).find_others(than=THIS)


def test_who_misses_one_hears_where_it_was_looked_for(tmp_path: Path) -> None:
    shim = silent(tmp_path / "bin" / "python3.12")
    with pytest.raises(NotFound) as missing:
        machine(tmp_path).find("3.12")
    said = str(missing.value)
    assert "Python 3.12 was not found" in said
    assert "PYTHONS: not set" in said
    assert f"python3.12 on the PATH: {shim} does not answer" in said
    assert f"{tmp_path}/.pyenv/versions/3.12.*/bin/python" in said
    assert 'make matrix PYTHONS="/path/to/python3.12 ..."' in said


def test_the_matrix_fails_if_a_python_is_missing(tmp_path: Path) -> None:
    there = real(tmp_path / "bin" / f"python{THIS}")
    done = subprocess.run(
        [sys.executable, "tests/check.py", "matrix"],
        cwd=ROOT,
        env={"HOME": str(tmp_path), "PATH": str(there.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "was not found. Looked at:" in done.stderr
    assert "FAILED  setting up" in done.stdout
    assert "== unit" not in done.stdout


def test_the_matrix_runs_all_tests_on_each_python_and_no_lint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "find_all", lambda self: {version: Path(version) for version in VERSIONS})
    monkeypatch.setattr(check, "set_up", lambda version, program: ROOT / f".venv-{version}" / "bin" / "python")
    checks = [one for (one,) in check.SELECTIONS["matrix"]()]
    assert VERSIONS == ("3.11", "3.12", "3.13")
    assert [one.name for one in checks] == [f"unit on {version}" for version in VERSIONS]
    for version, one in zip(VERSIONS, checks, strict=True):
        (command,) = one.commands
        assert command[:3] == [str(ROOT / f".venv-{version}" / "bin" / "python"), "-m", "pytest"]
        assert command[-2:] == ["-n", "2"]  # nothing is left out


def test_the_tests_run_the_fast_lane_on_every_further_python(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {version: Path(f"python{version}") for version in ("3.98", "3.99")}
    monkeypatch.setattr(Machine, "find_others", lambda self, than: others)
    monkeypatch.setattr(check, "set_up", lambda version, program: Path(f"/{version}/bin/{program}"))
    *usual, together = check.SELECTIONS["all"]()
    assert [one.name for (one,) in usual] == ["lint", "types", "contracts", "unit"]
    assert [one.name for one in together] == ["fast tests on 3.98", "fast tests on 3.99"]
    for one, version in zip(together, others, strict=True):
        assert one.commands[0][0] == f"/{version}/bin/python{version}"
        assert one.commands[0][-4:] == ["-n", "0", *check.FAST_LANE]


def test_what_runs_side_by_side_passes_and_fails_each_for_itself(capfd: pytest.CaptureFixture[str]) -> None:
    good = check.Check("good", [[sys.executable, "-c", "print('all is well')"]])
    bad = check.Check("bad", [[sys.executable, "-c", "raise SystemExit('something is wrong')"]])
    assert check.pass_side_by_side((good, bad, good)) == [True, False, True]
    said = capfd.readouterr().out
    assert "-- good\nall is well" in said
    assert "-- bad\nsomething is wrong" in said


def test_who_stops_it_leaves_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = check.Check("slow", [[sys.executable, "-c", "import time; time.sleep(600)"]])
    started: list[subprocess.Popen[bytes]] = []

    def stop(one: check.Check, process: subprocess.Popen[bytes], said: object) -> bool:
        started.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "_has_passed", stop)
    with pytest.raises(KeyboardInterrupt):
        check.pass_side_by_side((slow, slow))
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_a_machine_with_one_python_is_enough_for_the_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real(tmp_path / "bin" / f"python{THIS}")
    for name, value in {"HOME": str(tmp_path), "PATH": str(tmp_path / "bin"), "PYTHONS": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    assert check.on_other_pythons() == ()
    assert f"No other Python than {THIS} was found" in capsys.readouterr().out


def test_an_environment_is_set_up_from_the_lock_by_hashes() -> None:
    asked = ["make", "-n", "VENV=.venv-x", "PYTHON=pythonx", ".venv-x/.ready"]
    said = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True, env=outside_make()).stdout
    assert "pythonx -m venv .venv-x" in said
    assert ".venv-x/bin/python -m pip install" in said
    assert "--require-hashes -r requirements/dev.lock" in said


@pytest.mark.parametrize("target", ["fast", "matrix"])
def test_make_hands_over_what_is_asked(target: str) -> None:
    asked = ["make", "-n", "-o", ".venv/.ready", target]
    said = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True, env=outside_make()).stdout
    assert said.strip().endswith(f"tests/check.py {target}")


def outside_make() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}


def test_the_fast_lane_has_lint_types_contracts_and_the_tests_without_processes() -> None:
    checks = [one for (one,) in check.SELECTIONS["fast"]()]
    assert [one.name for one in checks] == ["lint", "types", "contracts", "fast tests"]
    assert checks[-1].commands[0][-2:] == ["-m", "not process and not long"]


GUARDED = """
import os, subprocess, sys, threading
import pytest
from tests.support.postgres_server import dsn

def start() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)

def test_starts() -> None:
    start()

def test_starts_in_a_thread() -> None:
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()

def test_starts_and_hides_it() -> None:
    try:
        start()
    except BaseException:
        pass

def test_forks() -> None:
    if os.fork() == 0:
        os._exit(0)

def test_uses_a_server() -> None:
    dsn()

@pytest.mark.process
def test_may_start() -> None:
    start()

@pytest.mark.parametrize("store", ["memory", "file", "postgres"])
def test_may_start_for_postgres(store: str) -> None:
    if store == "postgres":
        start()
"""
ROOM = """
import pytest
from tests.support.lanes import ProcessGuard, mark_room

def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "process: starts")
    config.addinivalue_line("markers", "long: takes its time")
    config.pluginmanager.register(ProcessGuard())

def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    {marks}
"""


def guarded_run(folder: Path, *arguments: str) -> dict[str, str]:
    """How each test of a folder ended, and what was said about it."""
    plain = ["-c", "none.ini", "--rootdir", str(folder), "-p", "no:cacheprovider", "-W", "ignore", "-rA", "--tb=line"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plain, *arguments, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "500"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = [line.split(" ", 2) for line in done.stdout.splitlines() if line.startswith(("PASSED", "FAILED"))]
    assert lines, done.stdout + done.stderr
    return {line[1].rpartition("::")[2]: " ".join([line[0], *line[2:]]) for line in lines}


def write_room(folder: Path, *, marks: str = "pass") -> None:
    folder.mkdir(exist_ok=True)
    (folder / "conftest.py").write_text(ROOM.format(marks=marks))
    (folder / "test_guarded.py").write_text(textwrap.dedent(GUARDED))
    (folder / "none.ini").write_text("[pytest]\n")


def test_a_test_that_starts_a_process_must_say_so(tmp_path: Path) -> None:
    write_room(tmp_path)
    ended = guarded_run(tmp_path)
    passed = {name for name, said in ended.items() if said.startswith("PASSED")}
    assert passed == {"test_may_start", *(f"test_may_start_for_postgres[{name}]" for name in STORES)}
    for name, verb in {
        "test_starts": "starts a process",
        "test_starts_in_a_thread": "starts a process",
        "test_starts_and_hides_it": "starts a process",
        "test_forks": "forks",
        "test_uses_a_server": "uses the database server",
    }.items():
        assert f"{name} {verb} and lacks the marker for that: add @pytest.mark.process" in ended[name]


def test_the_fast_lane_leaves_out_what_says_so(tmp_path: Path) -> None:
    write_room(tmp_path)
    chosen = guarded_run(tmp_path, *check.FAST_LANE, "-k", "may_start")
    assert set(chosen) == {"test_may_start_for_postgres[memory]"}


def test_a_room_may_say_so_for_all_its_tests(tmp_path: Path) -> None:
    write_room(tmp_path, marks="mark_room(__file__, items)")
    ended = guarded_run(tmp_path, "-k", "starts")
    assert {said.split()[0] for said in ended.values()} == {"PASSED"}
    assert len(ended) == 3
