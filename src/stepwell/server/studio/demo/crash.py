"""A program that dies in the middle of a run, as programs do: `python -m stepwell.server.studio.demo.crash STORE`."""

import asyncio
import os
import sys

from stepwell import SQLiteCheckpointStorage
from stepwell.server.studio.demo import program


async def main(path: str) -> None:
    """Start a run, and end this process while its second executor works."""
    export = program.build_export(SQLiteCheckpointStorage(path))
    async for event in export.run(program.Reminder("R-3311", 80.0), run_id="export-88", stream=True):
        if event.type == "executor_invoked" and event.executor_id == "upload":
            os._exit(1)  # at once: nothing is cleaned up, nothing released


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
