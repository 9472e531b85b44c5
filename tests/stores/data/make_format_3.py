"""Made the file of format 3 here, once, with the code that wrote it."""

import asyncio
import sys
from pathlib import Path

from holdfast.durable.ownership import Owner
from holdfast.durable.ports import Along
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.rules_samples import question, record


async def fill(store: SQLiteStore) -> None:
    await store.append(record("r", 0, body={"state": 0}))
    await store.append(record("Other Run", 0, workflow="Other Workflow", outputs=True))
    await store.post("r", "used", b"1")
    opened = Along(consumed=("used",), asked=(question("r", "old"),), wake="2026-01-01")
    await store.append(record("r", 1, frame=False, outputs=True, status="waiting", body={"changed": 1}), opened)
    await store.post("r", "letter", b"2")
    await store.remember("r", 2, "k", b'{"done":true}')
    await store.remember("new", 0, "k", b"1")
    await store.claim("r", Owner("host", "machine", 1, "0", "drive"), seconds=0)
    await store.close()


asyncio.run(fill(SQLiteStore(Path(sys.argv[1]) / "format-3.db")))
