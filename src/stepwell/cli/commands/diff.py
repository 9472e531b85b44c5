"""`stepwell diff`: compare two checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from stepwell import admin
from stepwell.cli import server_runs
from stepwell.cli.completion import complete_runs
from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.server_client import find_server
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.changes import describe_difference, print_difference
from stepwell.cli.views.output import note_shortened_values, print_json
from stepwell.error_ids import ErrorId


@click.command("diff")
@click.argument("checkpoint", metavar="RUN[@N]", shell_complete=complete_runs)
@click.argument("other", metavar="[RUN[@N]]", required=False, shell_complete=complete_runs)
@click.option("--patch", is_flag=True, help="Print a JSON Patch (RFC 6902) from the first to the second.")
@click.option("--full", is_flag=True, help="Do not shorten large values.")
@json_option
@common_options
def command(checkpoint: str, other: str | None, patch: bool, full: bool, json: bool) -> None:
    """Compare two checkpoints.

    They may belong to one run or to two. With one argument, a fork, the checkpoint is compared with
    the one of its parent that the fork started from. + marks what was added, - what was removed, ~
    what changed. Exits with 0 whether they differ or not.
    """
    if patch and json:
        raise CommandFailed(
            ErrorId.WRONG_USAGE, "--patch and --json cannot be used together", "pass one of them", USAGE
        )
    if (server := find_server()) is not None:
        with _explaining():
            before, after = (None, checkpoint) if other is None else (checkpoint, other)
            difference = server_runs.diff(server, before, after, full=full)
    else:
        difference = run_on_store(lambda storage: _compare(storage, checkpoint, other, full))
    if patch:
        print_json(difference["patch"])
    else:
        print_difference(difference, json=json)
        if difference["is_shortened"] and not json:
            note_shortened_values()


async def _compare(storage: BuiltInStorage, checkpoint: str, other: str | None, full: bool) -> Mapping[str, Any]:
    with _explaining():
        if other is None:
            difference = await admin.diff_from_parent(storage, checkpoint)
        else:
            difference = await admin.diff(storage, checkpoint, other)
        return describe_difference(difference, full=full)


@contextmanager
def _explaining() -> Iterator[None]:
    try:
        yield
    except admin.NotForked as error:
        raise CommandFailed(error.id, str(error), "pass two checkpoints, such as RUN@3 RUN@6", USAGE) from error
