"""The first thing that a process reads may be read by many of its threads at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell.storage.stored_values import CommitEffects, Entry, Record, RequestEntry
from stepwell.stores.files.store import FileStore

pytestmark = pytest.mark.process

RUNS = 8
AT = "2026-01-01T00:00:00+00:00"

# What msgspec finds out of a class, it finds out in Python: it must not be while threads read, for two that do so at
# once may crash the process.
READER = """
import asyncio, faulthandler, sys, threading
from stepwell.storage.filters import RequestFilter
from stepwell.storage.lease import this_process
from stepwell.stores.files.store import FileStore

faulthandler.enable()
sys.setswitchinterval(1e-6)
late = set()
def watch(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.endswith("msgspec/_utils.py"):
        late.add(code.co_name)
threading.setprofile(watch)

async def read(store, runs):
    opened = await asyncio.gather(*(store.open(run) for run in runs))
    signals = await asyncio.gather(*(store.pending_signals(run) for run in runs))
    requests = await asyncio.gather(*(store.requests(RequestFilter(run_id=run)) for run in runs))
    await asyncio.gather(*(store.acquire(run, this_process("d"), seconds=1) for run in runs))
    logged = [row for run in opened for row in run.log]
    print(len(logged), sum(map(len, signals)), sum(map(len, requests)), len(await store.checkpoints()), sorted(late))

asyncio.run(read(FileStore(sys.argv[1]), sys.argv[2:]))
"""


async def fill(path: Path, runs: list[str]) -> None:
    store = FileStore(path)
    for run in runs:
        entry = Entry(run, 0, f"c-{run}", "w", "IDLE_WITH_PENDING_REQUESTS", 0, AT, is_snapshot=True, outputs=False)
        asked = (RequestEntry(run, "q", "w", "e", "str", "str", "{}", AT, None),)
        await store.append(Record(entry, b"{}"), CommitEffects(asked=asked, wake=AT))
        await store.write_log(run, 1, "1.0", b"{}")
        await store.send(run, "input", b"{}")
    await store.close()


def test_many_threads_may_read_at_once_before_anything_was_read(tmp_path: Path) -> None:
    runs = [f"r{n}" for n in range(RUNS)]
    asyncio.run(fill(tmp_path / "runs", runs))
    command = [sys.executable, "-c", READER, str(tmp_path / "runs"), *runs]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{RUNS} {RUNS} {RUNS} {RUNS} []"
