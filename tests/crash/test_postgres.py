"""Real processes, real SIGKILL, a real server that crashes too: nothing told is run again, and the run ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.postgres_server import own_server

KILLS, ROUNDS = 6, 24
ROOT = Path(__file__).parents[2]
SUPERSTEP = {"split": 0, **{f"branch-{n}": 1 for n in range(5)}, "join": 2}

# the same worker as for the other stores, on this one
LIFE = """
import asyncio, sys
sys.path.insert(0, {root!r})
from tests.crash import worker
from stepwell import PostgresCheckpointStorage

worker.SQLiteCheckpointStorage = lambda path: PostgresCheckpointStorage({dsn!r}, timeout=600)
asyncio.run(worker.main("sqlite", "", "run-1"))
"""


def superstep_of(line: list[str]) -> int:
    """Which superstep of the run a handler belongs to: three in each round, counted from one."""
    return int(line[1]) * 3 + SUPERSTEP[line[2]] + 1


def test_a_run_ends_and_repeats_nothing_that_was_told_though_its_workers_and_its_server_die(tmp_path: Path) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")
    chance, ledger = random.Random(seed), tmp_path / "ledger"
    ledger.touch()
    with own_server() as server:

        def born() -> subprocess.Popen[bytes]:
            life = LIFE.format(root=str(ROOT), dsn=server.dsn)
            return subprocess.Popen([sys.executable, "-c", life], env={**os.environ, "LEDGER": str(ledger)})

        def has_written(worker: subprocess.Popen[bytes], lines: int) -> None:
            before = ledger.stat().st_size
            while worker.poll() is None and ledger.read_bytes()[before:].count(b"\n") < lines:
                time.sleep(0.0005)

        for kill in range(KILLS):
            worker = born()
            has_written(worker, chance.randint(1, 14))
            if kill % 2:  # the worker outlives its server, for a while
                server.stop("immediate")
                server.start()
                has_written(worker, chance.randint(1, 5))
            worker.send_signal(signal.SIGKILL)
            assert worker.wait() == -signal.SIGKILL
        assert born().wait() == 0

    told = 0
    ran: dict[tuple[str, str], int] = {}
    for line in [line.split(maxsplit=2) for line in ledger.read_text().splitlines()]:
        if line[0] == "told":
            told = max(told, int(line[1]))
        elif line[0] == "ran":
            assert superstep_of(line) > told, f"{line} ran after superstep {told} had been told, seed {seed}"
            ran[line[1], line[2]] = ran.get((line[1], line[2]), 0) + 1
    assert len(ran) == ROUNDS * 7, "every handler of every round ran"
    repeated = sum(times - 1 for times in ran.values())
    assert repeated <= KILLS * 5, f"{repeated} repeated by {KILLS} kills: only what was cut off may run again"
    assert f"output {ROUNDS * (0 + 1 + 2 + 3 + 4)} after {ROUNDS * 5} parts" in ledger.read_text()
