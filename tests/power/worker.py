"""The process that is recorded: makes the run of `story`, and says what was acknowledged, and when.

python -m power.worker sqlite|file|sqlite-latest|file-latest <folder> <fault>
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

from stepwell import FileCheckpointStorage, FullHistory, LatestOnly, SQLiteCheckpointStorage
from stepwell.storage import durable_files
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.files import run_file
from stepwell.stores.sqlite import schema as sqlite_schema
from stepwell.stores.sqlite import store as sqlite
from stepwell.testing.faults.wrapped_store import Call, WrappedStore

from .story import FIRST, RUN, Watch, answer, build

CHECKPOINT_AT = (
    24  # pages in the WAL: SQLite folds it into the database some times in this short run, not once at its end
)
KINDS = ["sqlite", "file", "sqlite-latest", "file-latest"]
LEASING = ("open", "acquire", "release")  # they write, too


def place(kind: str, folder: Path) -> Path:
    """Where the store is: in a folder that is made with it."""
    return folder / "made" / ("runs.db" if kind.startswith("sqlite") else "runs")


def storage_in(kind: str, folder: Path) -> BuiltInStorage:
    """A storage with all of its history, or only with what is newest."""
    storage: Any = SQLiteCheckpointStorage if kind.startswith("sqlite") else FileCheckpointStorage
    retention = LatestOnly if kind.endswith("-latest") else FullHistory
    opened: BuiltInStorage = storage(place(kind, folder), retention=retention)
    return opened


class Marking(WrappedStore):
    """Passes everything on to a store; tells the recorder when a write begins and when it was acknowledged."""

    _numbers = itertools.count()

    async def write(self, name: str, args: tuple[Any, ...], call: Call) -> Any:
        return await self._marked(name, _about(name, args), call)

    async def use(self, name: str, call: Call) -> Any:
        return await (self._marked(name, {}, call) if name in LEASING else call())

    async def _marked(self, name: str, about: dict[str, Any], call: Call) -> Any:
        number = next(self._numbers)
        mark("begun", write=number, what=name, **about)
        result = await call()
        mark("done", write=number, what=name, **about)
        return result


def _about(name: str, args: tuple[Any, ...]) -> dict[str, Any]:
    """What a reader has to know of a write to tell whether it is there."""
    if name == "append":
        record, effects = args
        return {
            "number": record.entry.number,
            "outputs": record.entry.outputs,
            "drop_below": effects.drop_below,
            "reduced": {str(one.entry.number): one.body.decode() for one in effects.reduced},
            "body": record.body.decode(),
            "settled": effects.drop_log_through,
            "consumed": effects.consumed,
            "asked": [question.request_id for question in effects.asked],
            "closed": effects.closed,
        }
    if name == "write_log":
        return {"place": args[1], "key": args[2], "body": args[3].decode()}
    return {"key": args[1], "body": args[2].decode()} if name == "send" else {}


def mark(happened: str, **about: Any) -> None:
    """Write a line between the recorded calls."""
    text = json.dumps({"happened": happened, **about}).encode()
    ctypes.CDLL(None).recorder_mark(text, ctypes.c_size_t(len(text)))


def break_it(fault: str) -> None:
    """Leave out what a store must do, to see that it is missed."""
    prepare = sqlite_schema.prepare

    def prepared(db: sqlite3.Connection, path: str) -> None:
        prepare(db, path)
        db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_AT}")
        if fault.startswith("synchronous="):
            db.execute(f"PRAGMA {fault}")

    sqlite.prepare = prepared  # type: ignore[attr-defined]  # the name that it has imported
    if fault == "no fsync":
        os.fsync = lambda fd: None
    elif fault == "no fsync of folders":
        for module in (durable_files, run_file):
            module.sync_folder = lambda folder: None  # type: ignore[attr-defined]  # the name that it has imported


async def drive(kind: str, folder: Path, *given: Any, **options: Any) -> dict[str, Any]:
    """One life of a process, from opening the store to closing it. The answers to what is asked then."""
    storage = storage_in(kind, folder)
    storage._store = Marking(storage._store)
    watch = Watch(stepped=lambda name: mark("stepped", name=name), pace=0.03)
    async with storage:
        stream: Any = build(storage, watch).run(*given, run_id=RUN, stream=True, **options)
        async for event in stream:
            if event.commit is not None:
                mark("told", number=event.commit)
        asked = (await stream).get_request_info_events()
        return {event.request_id: answer(event.data) for event in asked}


async def main(kind: str, folder: Path) -> None:
    responses = await drive(kind, folder, FIRST)
    while responses:
        responses = await drive(kind, folder, responses=responses)


if __name__ == "__main__":
    break_it(sys.argv[3])
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
