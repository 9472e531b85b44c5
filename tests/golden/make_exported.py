"""Makes the golden exported runs: `python -m tests.golden.make_exported tests/golden/exported/vN`.

They are exported from a copy of the newest golden store, and stay as they are for ever.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from stepwell import SQLiteCheckpointStorage
from stepwell.admin.transfer.exporter import export_to

RUNS = ("failed", "waiting", "nested", "asleep", "moved back", "sent to", "latest only")


async def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    newest = max(path for path in Path(__file__).parent.glob("v*") if path.is_dir())
    with tempfile.TemporaryDirectory() as copied:
        shutil.copy(newest / "runs.db", copied)
        async with SQLiteCheckpointStorage(Path(copied) / "runs.db") as storage:
            for run in RUNS:
                await export_to(folder / f"{run.replace(' ', '-')}.stepwell", storage, run)
            await export_to(folder / "redacted.stepwell", storage, "failed", without=["state.parcel", "messages"])


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
