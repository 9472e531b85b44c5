"""The first thing that a process reads may be read by many of its threads at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell.storage.port import CommitEffects, Entry, Pending, Record
from stepwell.stores.files.store import FileStore

pytestmark = pytest.mark.process

RUNS = 8
AT = "2026-01-01T00:00:00+00:00"

# What msgspec finds out of a class, it finds out in Python: it must not be while threads read, for two that do so at
# once may crash the process.
READER = """
import asyncio, faulthandler, sys, threading
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
    read = [store.read_log, store.pending_signals, store.head]
    found = await asyncio.gather(*(do(run) if do != store.read_log else do(run, 1) for do in read for run in runs))
    questions = await asyncio.gather(*(store.pending(run_id=run) for run in runs))
    await asyncio.gather(*(store.acquire(run, this_process("d"), seconds=1) for run in runs))
    print(sum(map(len, found[:2 * len(runs)])), sum(map(len, questions)), len(await store.entries()), sorted(late))

asyncio.run(read(FileStore(sys.argv[1]), sys.argv[2:]))
"""


async def fill(path: Path, runs: list[str]) -> None:
    store = FileStore(path)
    for run in runs:
        entry = Entry(run, 0, f"c-{run}", "w", "IDLE", 0, AT, is_snapshot=True, outputs=False)
        asked = (Pending(run, "q", "w", "e", "str", "str", "{}", AT, None),)
        await store.append(Record(entry, b"{}"), CommitEffects(asked=asked, wake=AT))
        await store.write_log(run, 1, "1.0", b"{}")
        await store.send(run, "letter", b"{}")
    await store.close()


def test_many_threads_may_read_at_once_before_anything_was_read(tmp_path: Path) -> None:
    runs = [f"r{n}" for n in range(RUNS)]
    asyncio.run(fill(tmp_path / "runs", runs))
    command = [sys.executable, "-c", READER, str(tmp_path / "runs"), *runs]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{2 * RUNS} {RUNS} {RUNS} []"
