"""`holdfast events`: what a run has told, from its history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import click

from ..output import json_line, lines
from ..running import on_the_store
from ..settings import as_json, everywhere
from ..words import leaf, printable

if TYPE_CHECKING:
    from ...core.events import WorkflowEvent
    from ...durable.storage import BuiltInStorage

PAGE = 100  # records that are in memory at a time


@click.command("events")
@click.argument("run")
@as_json
@everywhere
def command(run: str, json: bool) -> None:
    """What RUN has told: its durable events, oldest first, as far as its history is kept.

    With --json, one JSON document on each line.
    """

    async def work(storage: BuiltInStorage) -> None:
        from ...operating.naming import find_run

        async for event, at in _history(storage, (await find_run(storage, run)).run_id):
            if json:
                json_line(**_told(event, at))
            else:
                lines([_line(event, at)])

    on_the_store(work)


async def _history(storage: BuiltInStorage, run_id: str) -> AsyncIterator[tuple[WorkflowEvent, str]]:
    """The events of a run, each with the time of its commit; a page of commits is read at a time."""
    from ...durable.codec import DEFAULT_CODEC
    from ...durable.wire import read_commit
    from ...kernel.telling import events

    numbers = sorted(entry.number for entry in await storage.store.entries(run_id=run_id))
    for begin in range(0, len(numbers), PAGE):
        page = numbers[begin : begin + PAGE]
        for record in await storage.store.history(run_id, after=page[0] - 1, upto=page[-1]):
            commit = read_commit(record, DEFAULT_CODEC)[0]
            for event in events(run_id, commit, stored=True, replayed=True):
                yield event, commit.stamp.at


def _told(event: WorkflowEvent, at: str) -> dict[str, Any]:
    known = {
        "executor": event.executor_id,
        "iteration": event.iteration,
        "attempt": event.attempt,
        "request_id": event.request_id if event.type == "request_info" else None,
        "error": None if event.details is None else f"{event.details.error_type}: {event.details.message}",
        "data": _data(event),
    }
    said = {name: value for name, value in known.items() if value is not None}
    state = None if event.state is None else event.state.value
    return {"run_id": event.run_id, "commit": event.commit, "at": at, "type": event.type, "state": state, **said}


def _line(event: WorkflowEvent, at: str) -> str:
    told = _told(event, at)
    words = [f"{told['commit']:>4}", at[:19].replace("T", " "), event.type]
    if event.type == "status":
        words.append(told["state"])
    words += [f"{name}={told[name]}" for name in ("executor", "iteration", "request_id", "error") if name in told]
    return printable("  ".join(words)) + (f"  {leaf(told['data'])}" if "data" in told else "")


def _data(event: WorkflowEvent) -> Any:
    """What it carries, in the form it is stored: no class need be known for that."""
    import msgspec

    from ...core.parcel import Bundle
    from ...durable.texts import json_of

    parcel = event.parcel
    if parcel is None:
        return None if event.details is not None else event.data
    parcels = parcel.parcels if isinstance(parcel, Bundle) else None
    if parcels is None:
        return msgspec.json.decode(json_of(parcel))
    return [msgspec.json.decode(json_of(one)) for one in parcels]
