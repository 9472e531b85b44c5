"""Who drives a run that a command has made ready."""

from __future__ import annotations

from stepwell.cli.failures import command_line
from stepwell.cli.type_names import BuiltInStorage


async def find_next_driver(storage: BuiltInStorage, run_id: str) -> str:
    """Return who drives a run that is ready, or the command that does."""
    from stepwell.admin.live_workers import describe_workers, find_live_workers  # lazy: a dry run needs neither

    run = await storage.get_run(run_id)
    if run is not None and (workers := await find_live_workers(storage, run.workflow_name)):
        return f"{describe_workers(workers)} takes it"
    return f"to resume it: {command_line('resume', run_id, 'MODULE:WORKFLOW')}"
