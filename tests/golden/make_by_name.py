"""Makes the golden store of runs of named agents: `python -m tests.golden.make_by_name tests/golden/by_name/vN.db`.

Run once per format, for what such runs store or for records, and commit what it makes; never make an old one again.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from stepwell import HandlerFailed, SQLiteCheckpointStorage
from stepwell.engine import failures as failing
from stepwell.storage import lease as ownership
from tests.support.golden_by_name import GoldenReview, build_golden


async def fill(storage: SQLiteCheckpointStorage) -> None:
    """A run that waits for an approval in the second round of its loop, and one that failed after it."""
    workflow = build_golden(storage, [])
    ((id, asked),) = (await workflow.run("a letter", run_id="waiting")).requests.items()
    assert asked.output == GoldenReview(0, "make it better"), asked
    await workflow.resume("waiting", responses={id: asked.approve()})
    broken = build_golden(storage, [], broken=True)
    ((id, asked),) = (await broken.run("a letter", run_id="failed")).requests.items()
    with suppress(HandlerFailed):
        await broken.resume("failed", responses={id: asked.approve(GoldenReview(8, "by hand"))})


async def main(path: Path) -> None:
    ownership._self = lambda pid: ("host", "machine", 1, "0")  # type: ignore[assignment]
    failing._trace = lambda error: "left out: it would name the folders of the machine that made this"
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    async with SQLiteCheckpointStorage(path) as storage:
        await fill(storage)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
