"""`holdfast requests`: what people are asked, over all runs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ..output import document, note, table
from ..running import on_the_store
from ..settings import as_json, everywhere
from ..words import deadline, length

if TYPE_CHECKING:
    from ...durable.pending import PendingRequest
    from ...durable.storage import BuiltInStorage


@click.command("requests")
@click.option("--workflow", metavar="NAME", help="Only of runs of this workflow.")
@as_json
@everywhere
def command(workflow: str | None, json: bool) -> None:
    """The questions that wait for an answer, over all runs, the oldest first."""

    async def work(storage: BuiltInStorage) -> None:
        from ...durable import clock

        found, now = await storage.pending_requests(workflow_name=workflow), clock.now()
        if json:
            document(requests=[_told(one, now) for one in found])
        elif found:
            columns = ["request", "run", "workflow", "asked by", "question", "answer", "age", "deadline"]
            table(columns, [_row(one, now) for one in found])
        else:
            note("nobody is asked anything")

    on_the_store(work)


def _told(one: PendingRequest, now: datetime) -> dict[str, Any]:
    return {
        "request_id": one.request_id,
        "run_id": one.run_id,
        "workflow": one.workflow_name,
        "executor": one.executor_id,
        "request_type": one.request_type,
        "response_type": one.response_type,
        "response_schema": one.response_schema,
        "asked_at": one.asked_at.isoformat(),
        "age_seconds": int((now - one.asked_at).total_seconds()),
        "deadline": None if one.deadline is None else one.deadline.isoformat(),
    }


def _row(one: PendingRequest, now: datetime) -> list[str]:
    asked = [one.executor_id, one.request_type, one.response_type]
    waits = [length(now - one.asked_at), deadline(one.deadline, now)]
    return [one.request_id, one.run_id, one.workflow_name, *asked, *waits]
