"""`stepwell workers`: list the workers of a store."""

from __future__ import annotations

from typing import Any

import click

from stepwell.cli.server_client import find_server
from stepwell.cli.settings import common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage, WorkerInfo
from stepwell.cli.views.output import print_document, print_note, print_table
from stepwell.cli.views.text import format_moment


@click.command("workers")
@json_option
@common_options
def command(json: bool) -> None:
    """List the workers that drive runs.

    A worker says every five seconds that it is there. One that has not for 20 seconds, or whose
    process is known to be dead, is gone; it is listed for a day.
    """

    if (server := find_server()) is not None:
        _print(server.get("workers")["workers"], json)
        return

    async def work(storage: BuiltInStorage) -> None:
        _print([_to_dict(worker) for worker in await storage.list_workers()], json)

    run_on_store(work, waits_for_nothing_else=True)


def _print(workers: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_document(workers=workers)
    elif workers:
        print_table(["worker", "status", "process", "slots", "workflows", "last seen"], [*map(_make_row, workers)])
    else:
        print_note("the store has no workers")


def _make_row(worker: dict[str, Any]) -> list[str]:
    return [
        worker["name"],
        "alive" if worker["is_alive"] else "gone",
        worker["process"],
        f"{len(worker['runs'])} of {worker['slots']}",
        " ".join(f"{name}@{version}" for name, version in sorted(worker["workflows"].items())),
        format_moment(worker["seen_at"]),
    ]


def _to_dict(worker: WorkerInfo) -> dict[str, Any]:
    return {
        "name": worker.name,
        "is_alive": worker.is_alive,
        "process": worker.process,
        "version": worker.version,
        "slots": worker.slots,
        "workflows": dict(worker.workflows),
        "runs": list(worker.runs),
        "started_at": worker.started_at,
        "seen_at": worker.seen_at,
        "takeovers": worker.takeovers,
    }
