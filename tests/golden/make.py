"""Makes the golden stores of the present format: `python -m tests.golden.make tests/golden/vN`.

Run once per released format and commit what it makes; never make an old one again.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from stepwell import (
    FileCheckpointStorage,
    HandlerFailed,
    LatestOnly,
    PostgresCheckpointStorage,
    SQLiteCheckpointStorage,
)
from stepwell.admin import fork
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.engine import failures as failing
from stepwell.model.signal import ReceivedCancel, ReceivedInput
from stepwell.storage import lease as ownership
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.signals import cancel_key, input_key, write_signal
from tests.support import golden_migrated
from tests.support.golden_later import build_counting, build_judging, build_nested, build_sleeping
from tests.support.golden_migrated import Loan, build_second
from tests.support.golden_workflow import GIVEN, build, build_asking
from tests.support.postgres_dump import dump
from tests.support.postgres_server import dsn, fresh_schema


async def fill(storage: BuiltInStorage) -> None:
    """A run that is done, one that stopped at a failure with finished siblings remembered, and one that waits."""
    await build(storage, broken=False).run(GIVEN, run_id="done")
    with suppress(HandlerFailed):
        await build(storage, broken=True).run(GIVEN, run_id="failed")
    await build_asking(storage).run("gold", run_id="waiting")
    await fill_later(storage)
    await build_counting(storage).run(1, run_id="tagged", tags={"customer": "ada", "urgent": "yes"})
    await build_counting(storage).submit(1, run_id="urgent", priority=10)
    await fill_migrated(storage)
    await build_judging(storage).run("gold", run_id="judged")
    await build_judging(storage).respond("judged", "first question", True, by="ada", comment="it shines")
    await build_judging(storage).run(run_id="judged")
    await fork(storage, "done@2", run_id="forked", by="ada")
    await storage.close()


async def fill_later(storage: BuiltInStorage) -> None:
    """Runs inside runs, a run that failed once and sleeps, one that was moved back, and letters that wait."""
    await build_nested(storage).run(3, run_id="nested")
    await build_sleeping(storage, broken=True).run("good morning", run_id="asleep")
    counting = build_counting(storage)
    moved = counting.start(1, run_id="moved back")
    await moved.result()
    await moved.send(10)
    await moved.result()
    await moved.restore((await moved.checkpoints())[1])
    await moved.result()
    await counting.run(1, run_id="sent to")
    value = DEFAULT_CODEC.pack(10, "$.message")
    await storage._store.send("sent to", input_key(0, "golden"), write_signal(ReceivedInput(value)))
    await build_asking(storage).run("gold", run_id="stopped")
    await storage._store.send("stopped", cancel_key(0, 1), write_signal(ReceivedCancel(1)))


async def fill_migrated(storage: BuiltInStorage) -> None:
    """Runs that the second version of their workflow took over: one waits, one failed with a finished sibling."""
    for run_id in ("migrated", "failed in the second"):
        await golden_migrated.build(storage).run(Loan(3), run_id=run_id)
    await build_second(storage).run(run_id="migrated")
    with suppress(HandlerFailed):
        answers = {"golden loan": True}
        await build_second(storage, broken=True).run(run_id="failed in the second", responses=answers)


async def fill_latest(storage: BuiltInStorage) -> None:
    """A run that keeps only its latest checkpoint, and waits."""
    await build_asking(storage).run("gold", run_id="latest only")
    await storage.close()


async def main(folder: Path) -> None:
    ownership._self = lambda pid: ("host", "machine", 1, "0")  # type: ignore[assignment]
    failing._trace = lambda error: "left out: it would name the folders of the machine that made this"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    await fill(SQLiteCheckpointStorage(folder / "runs.db"))
    await fill_latest(SQLiteCheckpointStorage(folder / "runs.db", retention=LatestOnly))
    await fill(FileCheckpointStorage(folder / "runs"))
    await fill_latest(FileCheckpointStorage(folder / "runs", retention=LatestOnly))
    with fresh_schema() as schema:
        await fill(PostgresCheckpointStorage(dsn(), schema=schema))
        await fill_latest(PostgresCheckpointStorage(dsn(), schema=schema, retention=LatestOnly))
        dump(schema, folder / "runs.sql")
    storage = SQLiteCheckpointStorage(folder / "runs.db")
    dicts = [checkpoint.to_dict() for checkpoint in await storage.list_checkpoints(run_id="failed")]
    (folder / "checkpoints.json").write_text(json.dumps(dicts, indent=1))
    await storage.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
