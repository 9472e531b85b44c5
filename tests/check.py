"""Everything `make test` checks, one after the other; the last lines say what failed."""

import contextlib
import os
import shutil
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
    with tempfile.TemporaryDirectory(prefix="holdfast-tests-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # the account of the database server goes through it
        yield {**kept, "TMPDIR": folder}


def main(wanted: list[str]) -> int:
    verdicts: list[tuple[str, bool, float]] = []
    for name in wanted or CHECKS:
        started = time.monotonic()
        print(f"== {name}", flush=True)
        with environment() as known:
            passed = all(subprocess.run(command, cwd=ROOT, env=known).returncode == 0 for command in CHECKS[name])
        verdicts.append((name, passed, time.monotonic() - started))
    print()
    for name, passed, seconds in verdicts:
        print(f"{'passed' if passed else 'FAILED'}  {name}  ({seconds:.1f} s)")
    return 0 if all(passed for _, passed, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
