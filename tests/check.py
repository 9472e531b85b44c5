"""Everything `make test` checks, one after the other; the last lines say what failed."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

CHECKS: dict[str, list[list[str]]] = {
    "lint": [[str(BIN / "ruff"), "check", "."], [str(BIN / "ruff"), "format", "--check", "."]],
    "types": [[str(BIN / "mypy")]],
    "contracts": [[str(BIN / "lint-imports"), "--no-cache"]],
    "unit": [[sys.executable, "-m", "pytest", "-n", "2"]],
}
ALONE = [sys.executable, "-m", "pytest", "-n", "0", "--last-failed", "--last-failed-no-failures", "none"]
FEW = 5
PATIENCE = 4000  # seconds


MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30


@contextlib.contextmanager
def environment() -> Iterator[dict[str, str]]:
    """Compiled modules are kept, whatever the machine says: hundreds of tests start processes of their own.

    What tests write is kept in memory if there is room. Processes are killed here, the machine is not: what reaches the
    disk is proven by looking at what the system is asked for, and waiting for a slow disk proves nothing more.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kept["PYTHONPYCACHEPREFIX"] = str(BIN.parent / "compiled")
    if "TMPDIR" in kept or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ROOM:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="stepwell-tests-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # the account of the database server goes through it
        yield {**kept, "TMPDIR": folder}


def passes(name: str) -> bool:
    """Whether a check passes.

    A few tests that failed are tried once more, one at a time: on a machine that is busy with something else, one that
    waits for other processes may have waited in vain. Whatever passes only then is named.
    """
    with environment() as known:
        if all(ended(command, known) == 0 for command in CHECKS[name]):
            return True
        failed = failures() if name == "unit" else []
        if not 0 < len(failed) <= FEW or ended(ALONE, known) != 0:
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


def failures() -> list[str]:
    """The tests that failed last."""
    noted = ROOT / ".pytest_cache/v/cache/lastfailed"
    return list(json.loads(noted.read_text())) if noted.exists() else []


def main(wanted: list[str]) -> int:
    verdicts: list[tuple[str, bool, float]] = []
    for name in wanted or CHECKS:
        started = time.monotonic()
        print(f"== {name}", flush=True)
        verdicts.append((name, passes(name), time.monotonic() - started))
    print()
    for name, passed, seconds in verdicts:
        print(f"{'passed' if passed else 'FAILED'}  {name}  ({seconds:.1f} s)")
    return 0 if all(passed for _, passed, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
