"""A durable function whose process is killed again and again comes to its end, and repeats only what was not stored."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.functional.worker import BRANCHES, STEPS

pytestmark = pytest.mark.process


def test_a_function_survives_sigkill(tmp_path: Path) -> None:
    database, ledger = tmp_path / "runs.db", tmp_path / "ledger"
    command = [sys.executable, "-m", "tests.functional.worker", str(database), str(ledger)]
    dice, kills = random.Random(7), 0
    while True:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        before = len(ledger.read_text().splitlines()) if ledger.exists() else 0
        _wait_for(ledger, before + dice.randint(1, 20), process)
        if process.poll() is None:
            process.kill()
            kills += 1
        printed, _ = process.communicate(timeout=60)
        if process.returncode == 0:
            break
    calls = Counter(line.split()[0] for line in ledger.read_text().splitlines())
    keys = set(ledger.read_text().splitlines())
    assert kills > 3
    assert printed.strip() == str([sum(n * b for n in range(STEPS) for b in range(BRANCHES))])
    assert len(calls) == len(keys) == STEPS * BRANCHES, "every attempt at a step has the same key"
    # At a kill, at most the steps of one round were under way.
    assert sum(calls.values()) <= STEPS * BRANCHES + kills * BRANCHES


def _wait_for(ledger: Path, lines: int, process: subprocess.Popen[str]) -> None:
    while process.poll() is None and (not ledger.exists() or len(ledger.read_text().splitlines()) < lines):
        time.sleep(0.002)
