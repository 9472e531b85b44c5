"""Everything `make test` checks, one after the other; the last lines say what failed.

`make fast` and `make matrix` are other selections of the same checks: see `SELECTIONS`.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.interpreters import ROOT, Machine, NotFound, set_up

PYTHON = Path(sys.executable)
FAST_LANE = ["-m", "not process and not long"]  # see tests/support/lanes.py
CORES = 2
WAITING = 1  # further processes: half of the tests wait for others, not for a core
FEW = 5
PATIENCE = 4000  # seconds
MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30


@dataclass(frozen=True)
class Check:
    """Commands that must all succeed; `python` is the interpreter whose environment they use."""

    name: str
    commands: list[list[str]]
    python: Path = PYTHON
    cache: Path | None = None  # where failures are remembered, if they are those of tests


Together = tuple[Check, ...]  # what runs at the same time: mostly one check, on all cores


def checked_by_tests(
    name: str, *arguments: str, python: Path = PYTHON, cache: Path | None = None, workers: int = CORES
) -> Check:
    """Each check remembers failures of its own."""
    cache = cache or python.parent.parent / "failures" / name.replace(" ", "-")
    return Check(name, [[*pytest(python, cache), "-n", str(workers), *arguments]], python, cache)


def pytest(python: Path, cache: Path) -> list[str]:
    return [str(python), "-m", "pytest", "-o", f"cache_dir={cache}"]


def tool(name: str, *arguments: str) -> list[str]:
    return [str(PYTHON.parent / name), *arguments]


LINT = Check("lint", [tool("ruff", "check", "."), tool("ruff", "format", "--check", ".")])
TYPES = Check("types", [tool("mypy")])
CONTRACTS = Check("contracts", [tool("lint-imports", "--no-cache")])
UNIT = checked_by_tests("unit", cache=ROOT / ".pytest_cache", workers=CORES + WAITING)
FAST_TESTS = checked_by_tests("fast tests", *FAST_LANE)


def everything() -> Iterator[Together]:
    yield from alone(LINT, TYPES, CONTRACTS, UNIT)
    yield on_other_pythons()


def alone(*checks: Check) -> list[Together]:
    return [(check,) for check in checks]


def on_other_pythons() -> Together:
    """The fast lane on every further Python of this machine. Two run side by side: each collects its tests once."""
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    others = Machine(os.environ).find_others(than=this)
    if not others:
        print(f"No other Python than {this} was found: `make matrix` says where it looks for them.", flush=True)
    workers = CORES if len(others) == 1 else 0
    with ThreadPoolExecutor() as pool:
        pythons = list(pool.map(set_up, others, others.values()))
    return tuple(
        checked_by_tests(f"fast tests on {version}", *FAST_LANE, python=python, workers=workers)
        for version, python in zip(others, pythons, strict=True)
    )


def matrix() -> Iterator[Together]:
    """All tests, on every Python that is supported; one that is missing is an error."""
    found = Machine(os.environ).find_all()
    for version, program in found.items():
        yield (checked_by_tests(f"unit on {version}", python=set_up(version, program)),)


SELECTIONS: dict[str, Callable[[], Iterable[Together]]] = {
    "all": everything,
    "fast": lambda: alone(LINT, TYPES, CONTRACTS, FAST_TESTS),
    "matrix": matrix,
    "lint": lambda: alone(LINT),
    "types": lambda: alone(TYPES),
    "contracts": lambda: alone(CONTRACTS),
    "unit": lambda: alone(UNIT),
}


@contextlib.contextmanager
def environment(python: Path) -> Iterator[dict[str, str]]:
    """Compiled modules are kept, whatever the machine says: hundreds of tests start processes of their own.

    What tests write is kept in memory if there is room. Processes are killed here, the machine is not: what reaches the
    disk is proven by looking at what the system is asked for, and waiting for a slow disk proves nothing more.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kept["PYTHONPYCACHEPREFIX"] = str(python.parent.parent / "compiled")
    if "TMPDIR" in kept or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ROOM:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="stepwell-tests-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # the account of the database server goes through it
        yield {**kept, "TMPDIR": folder}


def passes(check: Check) -> bool:
    with environment(check.python) as known:
        passed = all(ended(command, known) == 0 for command in check.commands)
    return passed or passes_alone(check)


def passes_alone(check: Check) -> bool:
    """Whether the few tests of a check that failed pass when they are tried once more, one at a time.

    On a machine that is busy with something else, one that waits for other processes may have waited in vain. Whatever
    passes only then is named.
    """
    failed = failures(check.cache) if check.cache else []
    if check.cache is None or not 0 < len(failed) <= FEW:
        return False
    alone = [*pytest(check.python, check.cache), "-n", "0", "--last-failed", "--last-failed-no-failures", "none"]
    with environment(check.python) as known:
        if ended(alone, known) != 0:
            return False
    print("\n".join(["PASSED ONLY ALONE:", *failed]), flush=True)
    return True


def pass_side_by_side(checks: Together) -> list[bool]:
    """Whether each of several checks passes. They run at the same time; what each said is shown when it has ended."""
    with contextlib.ExitStack() as after:
        processes = []
        for check in checks:
            said = after.enter_context(tempfile.TemporaryFile())
            known = after.enter_context(environment(check.python))
            (command,) = check.commands
            process = subprocess.Popen(command, cwd=ROOT, env=known, stdout=said, stderr=said, start_new_session=True)
            after.callback(_kill, process)
            processes.append((check, process, said))
        passed = [_has_passed(*each) for each in processes]
    return [each or passes_alone(check) for check, each in zip(checks, passed, strict=True)]


def _has_passed(check: Check, process: subprocess.Popen[bytes], said: IO[bytes]) -> bool:
    try:
        code = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        code = None
        print(f"DID NOT END in {PATIENCE} s: {check.name}", flush=True)
    said.seek(0)
    print(f"-- {check.name}\n{said.read().decode(errors='replace')}", flush=True)
    return code == 0


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ended(command: list[str], known: dict[str, str]) -> int:
    """How a command ended. One that does not end is killed, with all that it has started, and begun once more."""
    for attempt in (1, 2):
        process = subprocess.Popen(command, cwd=ROOT, env=known, start_new_session=True)
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            print(f"DID NOT END in {PATIENCE} s, at attempt {attempt}: {' '.join(command)}", flush=True)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        process.wait()
    return 1


def failures(cache: Path) -> list[str]:
    """The tests that failed last."""
    noted = cache / "v/cache/lastfailed"
    return list(json.loads(noted.read_text())) if noted.exists() else []


def main(wanted: str = "all") -> int:
    verdicts: list[tuple[str, bool, float]] = []
    started = time.monotonic()
    try:
        for checks in SELECTIONS[wanted]():  # what an environment takes to set up counts, too
            print("==", ", ".join(check.name for check in checks) or "nothing more", flush=True)
            passed = [passes(check) for check in checks] if len(checks) < 2 else pass_side_by_side(checks)
            seconds = time.monotonic() - started
            verdicts += [(check.name, each, seconds) for check, each in zip(checks, passed, strict=True)]
            started = time.monotonic()
    except (NotFound, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        verdicts.append(("setting up", False, time.monotonic() - started))
    print()
    for name, has_passed, seconds in verdicts:
        print(f"{'passed' if has_passed else 'FAILED'}  {name}  ({seconds:.1f} s)")
    return 0 if all(has_passed for _, has_passed, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
