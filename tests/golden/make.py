"""Makes the golden stores of the present format: `python tests/golden/make.py tests/golden/vN`.

Run once per released format and commit what it makes; never make an old one again.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from golden_workflow import GIVEN, build, build_asking
from holdfast import FileCheckpointStorage, HandlerFailed, SQLiteCheckpointStorage
from holdfast.runtime import runner


async def fill(storage: FileCheckpointStorage | SQLiteCheckpointStorage) -> None:
    """A run that is done, one that stopped at a failure with finished siblings remembered, and one that waits."""
    await build(storage, broken=False).run(GIVEN, run_id="done")
    with suppress(HandlerFailed):
        await build(storage, broken=True).run(GIVEN, run_id="failed")
    await build_asking(storage).run("gold", run_id="waiting")
    await storage.close()


async def main(folder: Path) -> None:
    runner._trace = lambda error: "left out: it would name the folders of the machine that made this"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    await fill(SQLiteCheckpointStorage(folder / "runs.db"))
    await fill(FileCheckpointStorage(folder / "runs"))
    storage = SQLiteCheckpointStorage(folder / "runs.db")
    dicts = [checkpoint.to_dict() for checkpoint in await storage.list_checkpoints(run_id="failed")]
    (folder / "checkpoints.json").write_text(json.dumps(dicts, indent=1))
    await storage.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
