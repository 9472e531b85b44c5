"""Puts each bug into a copy of the source and runs its tests: `make mutants`. Ends with 1 if a bug was not noticed.

`python -m tests.mutants --only sums` tries those whose name has that word in it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.bugs import BUGS, Bug

ROOT = Path(__file__).resolve().parents[2]
NOTICED, PASSED = 1, 0  # what pytest ends with
PATIENCE = 180  # seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only bugs with this word in their name")
    wanted = [bug for bug in BUGS if parser.parse_args().only in bug.name]
    missed = [bug.name for bug in wanted if not _is_noticed(bug)]
    print(f"{len(wanted)} bugs, {len(wanted) - len(missed)} noticed, {len(missed)} not noticed", flush=True)
    return 1 if missed or not wanted else 0


def _is_noticed(bug: Bug) -> bool:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        put_in(bug, source / "stepwell")
        found = _tested(bug, source)
    words = "noticed" if found else "NOT NOTICED"
    print(f"{words:11}  {time.monotonic() - began:5.1f} s  {bug.name}", flush=True)
    return found


def put_in(bug: Bug, package: Path) -> None:
    """Change the source."""
    path = package / bug.file
    text = path.read_text()
    assert text.count(bug.good) == 1, f"{bug.name!r} cannot be put in: {bug.file} must have this once: {bug.good!r}"
    path.write_text(text.replace(bug.good, bug.bad))


def _tested(bug: Bug, source: Path) -> bool:
    """Whether a test failed. Each file alone, so that the first that notices is enough."""
    env = {**os.environ, "PYTHONPATH": str(source), "CI": "true", "PYTHONDONTWRITEBYTECODE": "1"}
    for name in bug.tests:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(ROOT / "tests" / name)]
        try:
            ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return True  # with the bug it never ends, and without it that takes seconds
        if ended.returncode not in (NOTICED, PASSED):
            raise SystemExit(f"{bug.name}: the tests did not run\n{ended.stdout[-3000:]}{ended.stderr[-1000:]}")
        if ended.returncode == NOTICED:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
