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
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.interpreters import ROOT, Machine, NotFound, set_up

PYTHON = Path(sys.executable)
FAST_LANE = ["-m", "not process and not long"]  # see tests/support/lanes.py
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


def checked_by_tests(name: str, *arguments: str, python: Path = PYTHON, cache: Path | None = None) -> Check:
    """Tests on two cores. Each check remembers failures of its own."""
    cache = cache or python.parent.parent / "failures" / name.replace(" ", "-")
    return Check(name, [[*pytest(python, cache), "-n", "2", *arguments]], python, cache)


def pytest(python: Path, cache: Path) -> list[str]:
    return [str(python), "-m", "pytest", "-o", f"cache_dir={cache}"]


def tool(name: str, *arguments: str) -> list[str]:
    return [str(PYTHON.parent / name), *arguments]


LINT = Check("lint", [tool("ruff", "check", "."), tool("ruff", "format", "--check", ".")])
TYPES = Check("types", [tool("mypy")])
CONTRACTS = Check("contracts", [tool("lint-imports", "--no-cache")])
UNIT = checked_by_tests("unit", cache=ROOT / ".pytest_cache")
FAST_TESTS = checked_by_tests("fast tests", *FAST_LANE)


def everything() -> Iterator[Check]:
    yield from (LINT, TYPES, CONTRACTS, UNIT)
    yield from on_other_pythons()


def on_other_pythons() -> Iterator[Check]:
    """The fast lane on every further Python of this machine."""
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    others = Machine(os.environ).find_others(than=this)
    if not others:
        print(f"No other Python than {this} was found: `make matrix` says where it looks for them.", flush=True)
    for version, program in others.items():
        yield checked_by_tests(f"fast tests on {version}", *FAST_LANE, python=set_up(version, program))


def matrix() -> Iterator[Check]:
    """All tests, on every Python that is supported; one that is missing is an error."""
    found = Machine(os.environ).find_all()
    for version, program in found.items():
        yield checked_by_tests(f"unit on {version}", python=set_up(version, program))


SELECTIONS: dict[str, Callable[[], Iterable[Check]]] = {
    "all": everything,
    "fast": lambda: [LINT, TYPES, CONTRACTS, FAST_TESTS],
    "matrix": matrix,
    "lint": lambda: [LINT],
    "types": lambda: [TYPES],
    "contracts": lambda: [CONTRACTS],
    "unit": lambda: [UNIT],
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
    """Whether a check passes.

    A few tests that failed are tried once more, one at a time: on a machine that is busy with something else, one that
    waits for other processes may have waited in vain. Whatever passes only then is named.
    """
    with environment(check.python) as known:
        if all(ended(command, known) == 0 for command in check.commands):
            return True
        if check.cache is None:
            return False
        failed = failures(check.cache)
        alone = [*pytest(check.python, check.cache), "-n", "0", "--last-failed", "--last-failed-no-failures", "none"]
        if not 0 < len(failed) <= FEW or ended(alone, known) != 0:
            return False
    print("\n".join(["PASSED ONLY ALONE:", *failed]), flush=True)
    return True


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
        for check in SELECTIONS[wanted]():  # what an environment takes to set up counts, too
            print(f"== {check.name}", flush=True)
            verdicts.append((check.name, passes(check), time.monotonic() - started))
            started = time.monotonic()
    except (NotFound, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        verdicts.append(("setting up", False, time.monotonic() - started))
    print()
    for name, passed, seconds in verdicts:
        print(f"{'passed' if passed else 'FAILED'}  {name}  ({seconds:.1f} s)")
    return 0 if all(passed for _, passed, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
