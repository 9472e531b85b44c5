"""Everything `make test` checks, one after the other; the last lines say what failed."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

CHECKS: dict[str, list[list[str]]] = {
    "lint": [[str(BIN / "ruff"), "check", "."], [str(BIN / "ruff"), "format", "--check", "."]],
    "types": [[str(BIN / "mypy")]],
    "contracts": [[str(BIN / "lint-imports"), "--no-cache"]],
    "unit": [[sys.executable, "-m", "pytest", "-n", "2"]],
}


def environment() -> dict[str, str]:
    """Compiled modules are kept, whatever the machine says: hundreds of tests start processes of their own."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(BIN.parent / "compiled")}


def main(wanted: list[str]) -> int:
    verdicts: list[tuple[str, bool, float]] = []
    for name in wanted or CHECKS:
        started = time.monotonic()
        print(f"== {name}", flush=True)
        passed = all(subprocess.run(command, cwd=ROOT, env=environment()).returncode == 0 for command in CHECKS[name])
        verdicts.append((name, passed, time.monotonic() - started))
    print()
    for name, passed, seconds in verdicts:
        print(f"{'passed' if passed else 'FAILED'}  {name}  ({seconds:.1f} s)")
    return 0 if all(passed for _, passed, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
