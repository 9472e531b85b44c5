"""Finds who drives a run that a command has made ready."""

from __future__ import annotations

from stepwell.cli.failures import command_line
from stepwell.cli.type_names import BuiltInStorage


async def find_next_driver(
    storage: BuiltInStorage, run_id: str, *, does: str = "takes it", otherwise: str = "to resume it"
) -> str:
    """Return who drives a run that is ready, or the command that does."""
    from stepwell.admin.live_workers import describe_workers, find_live_workers  # lazy: a dry run needs neither
    from stepwell.admin.lookup import load_header  # lazy: for the same reason
    from stepwell.admin.overview.next_command import resume_command  # lazy: for the same reason

    header = await load_header(storage._store, run_id)
    if workers := await find_live_workers(storage, header.workflow):
        return f"{describe_workers(workers)} {does}"
    command = resume_command(header)
    return f"{otherwise}: {command_line(command.name, *command.arguments, options=command.options)}"
