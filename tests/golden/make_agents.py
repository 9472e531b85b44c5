"""Makes the golden store of runs with agents: `python -m tests.golden.make_agents tests/golden/agents/vN.db`.

Run once per format, for what agents store or for records, and commit what it makes; never make an old one again.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from stepwell import HandlerFailed, SQLiteCheckpointStorage, Workflow, WorkflowRunResult
from stepwell.agents import BudgetRequest
from stepwell.engine import failures as failing
from stepwell.storage import lease as ownership
from tests.support.golden_agents import Clerk, Sender, build_around, build_booking, build_unlimited


async def fill(storage: SQLiteCheckpointStorage) -> None:
    await fill_waiting(build_booking(storage, Clerk()))
    with suppress(HandlerFailed):  # the line breaks when a model and a tool were called
        await build_unlimited(storage, Clerk(broken=True)).run("tea", run_id="failed")
    sending = build_unlimited(storage, Sender(broken=True))
    with suppress(HandlerFailed):  # the letter was sent, or it was not
        await sending.run("write", run_id="lost")
    await sending.run(run_id="lost")
    await build_around(storage).run("paint", run_id="nested")


async def fill_waiting(workflow: Workflow) -> None:
    """A whole turn, and one that stands in its middle: a limit was raised, one call is approved, another is not yet,
    and more was said meanwhile."""
    result = await settle(workflow, await workflow.run("tea", run_id="waiting"))
    assert len(result.get_outputs()) == 2, result
    handle = workflow.attach("waiting", drive=True)
    await handle.send("milk")
    result = await settle(workflow, await handle.result(), approve=False)
    first, _ = result.get_request_info_events()
    await workflow.run(run_id="waiting", responses={first.request_id: first.data.approve()})
    await handle.send("sugar")
    await handle.result()


async def settle(workflow: Workflow, result: WorkflowRunResult, *, approve: bool = True) -> WorkflowRunResult:
    """Raise every limit by one call, and approve what is asked about, or stop there."""
    while events := result.get_request_info_events():
        if not approve and not isinstance(events[0].data, BudgetRequest):
            break
        answers = {
            event.request_id: event.data.raise_to(event.data.limit + 1)
            if isinstance(event.data, BudgetRequest)
            else event.data.approve()
            for event in events
        }
        result = await workflow.run(run_id="waiting", responses=answers)
    return result


async def main(path: Path) -> None:
    ownership._self = lambda pid: ("host", "machine", 1, "0")  # type: ignore[assignment]
    failing._trace = lambda error: "left out: it would name the folders of the machine that made this"
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    async with SQLiteCheckpointStorage(path) as storage:
        await fill(storage)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
