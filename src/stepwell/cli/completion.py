"""Completion of ids in a shell: those of runs, and of the open requests of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click
from click.shell_completion import CompletionItem

from stepwell.cli.failures import CommandFailed
from stepwell.cli.type_names import BuiltInStorage
from stepwell.errors import StepwellError

MOST = 50


def complete_runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the newest runs whose ids start with what is typed, with their workflow and status as help."""

    async def find(storage: BuiltInStorage) -> list[CompletionItem]:
        runs = await storage.list_runs(prefix=incomplete or None, limit=MOST)
        return [CompletionItem(run.run_id, help=f"{run.workflow_name}, {run.standing}") for run in runs]

    return _look(context, find)


def complete_requests(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the open requests of the run that is named before it."""

    async def find(storage: BuiltInStorage) -> list[CompletionItem]:
        requests = await storage.pending_requests(run_id=context.params.get("run"), limit=MOST)
        ids = [request.request_id for request in requests if request.request_id.startswith(incomplete)]
        return [CompletionItem(id) for id in ids]

    return _look(context, find)


def _look(
    context: click.Context, find: Callable[[BuiltInStorage], Awaitable[list[CompletionItem]]]
) -> list[CompletionItem]:
    from stepwell.cli.stores.session import run_on_store  # lazy: every command imports this module

    # A shell that asks for ids has nowhere to show an error: without a store there are none.
    try:
        with context:
            return run_on_store(find, waits_for_nothing_else=True)
    except (CommandFailed, StepwellError, OSError):
        return []
