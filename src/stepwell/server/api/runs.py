"""Runs seen from outside: lists, documents, checkpoints, state, differences, events."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from stepwell.admin.diffs.documents import document_of
from stepwell.admin.lineage import find_lineage
from stepwell.admin.lookup import complete_run_id, find_checkpoint, find_inside, find_run, load_checkpoint
from stepwell.admin.overview.lines import format_overview
from stepwell.admin.overview.run_document import describe_run
from stepwell.admin.overview.run_overview import load_overview
from stepwell.admin.run_search import search
from stepwell.admin.transfer.exporter import export_run
from stepwell.admin.values import to_data
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CheckpointCorrupt
from stepwell.kernel.commit import events
from stepwell.model.status_words import Standing, status_word
from stepwell.server.api.documents import (
    CheckpointItem,
    CheckpointPage,
    CheckpointPlace,
    CommandItem,
    EventPage,
    LineageDocument,
    RunDocument,
    RunLines,
    StateDocument,
)
from stepwell.server.api.operation import ApiCall, operation
from stepwell.server.damaged_entries import DamagedEntry, KeptSurvey
from stepwell.server.identity import Role
from stepwell.server.run_feed import find_document_maker
from stepwell.server.run_items import RunPage, run_item
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import CheckpointFilter, RunFilter
from stepwell.storage.run_list import RunInfo
from stepwell.storage.statistics import RunPlace
from stepwell.storage.wire.format import read_commit

PageSize = Annotated[int, Meta(ge=1, le=500, description="Items on the page.")]
DAMAGED = "If entries are damaged, list them beside those that can be read, instead of failing."
TEXT = "In the id, the workflow or a tag. Looks through 100,000 runs; `next` continues, even after a page with none."
LINES = "Also each event as lines that people read."
LOOKED_THROUGH = 100_000  # runs, by one search for a text: no index answers it
_COMMITS = 100  # on a page of events
# Larger numbers fit no store.
Number = Annotated[int, Meta(ge=0, le=2**62)]


class RunQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which run."""

    run_id: Annotated[str, Meta(min_length=1, description="The id, or 4 or more characters that it starts with.")]


class RunListQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs; each criterion that is given must be met."""

    workflow: str | None = None
    status: Standing | None = None
    tag: list[Annotated[str, Meta(description="Each NAME=VALUE.")]] = []
    parent: Annotated[str, Meta(description="The run that it was forked from.")] | None = None
    prefix: Annotated[str, Meta(description="The id starts with it.")] | None = None
    text: Annotated[str, Meta(description=TEXT)] | None = None
    contains: Annotated[str, Meta(description="In the state, a request or an output. Reads every run.")] | None = None
    since: Annotated[datetime, Meta(tz=True, description="Started then or later.")] | None = None
    until: Annotated[datetime, Meta(tz=True, description="Started before.")] | None = None
    changed_since: Annotated[datetime, Meta(tz=True)] | None = None
    changed_until: Annotated[datetime, Meta(tz=True)] | None = None
    after: Annotated[str, Meta(description="The `next` of the previous page.")] | None = None
    limit: PageSize = 50
    damaged: Annotated[bool, Meta(description=DAMAGED)] = False


class CheckpointListQuery(RunQuery, frozen=True, forbid_unknown_fields=True):
    """Which checkpoints of a run."""

    before: Annotated[int, Meta(ge=0, le=2**62, description="The `next` of the previous page.")] | None = None
    limit: PageSize = 50


class LineageQuery(RunQuery, frozen=True, forbid_unknown_fields=True):
    """How much of a tree of forks."""

    limit: PageSize = 100


class StateQuery(RunQuery, frozen=True, forbid_unknown_fields=True):
    """Which checkpoint of a run: the newest, unless a number is given."""

    at: Annotated[int, Meta(ge=-(2**62), le=2**62, description="-1 is the newest.")] | None = None


class LinesQuery(RunQuery, frozen=True, forbid_unknown_fields=True):
    """Which checkpoint, and how much of it."""

    at: Annotated[str, Meta(description="A number or the id of a checkpoint; without it, the newest.")] | None = None
    full: Annotated[bool, Meta(description="Shorten nothing, and read all commits.")] = False


class RunDocumentQuery(StateQuery, frozen=True, forbid_unknown_fields=True):
    """Which checkpoint of a run, and what its graph contains."""

    open: list[Annotated[str, Meta(description="The run of a sub-workflow whose graph is part of the graph.")]] = []


class PlaceQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which checkpoint: RUN, RUN@NUMBER, or an id. Ids may be shortened to 4 characters."""

    name: Annotated[str, Meta(min_length=1)]
    run: Annotated[str, Meta(description="Only a checkpoint of this run; the name may be a number.")] | None = None


class EventQuery(RunQuery, frozen=True, forbid_unknown_fields=True):
    """From which commit on."""

    after: Annotated[int, Meta(ge=-1, le=2**62, description="Events past this commit.")] = -1
    lines: Annotated[bool, Meta(description=LINES)] = False


class ExportQuery(RunQuery, frozen=True, forbid_unknown_fields=True):
    """What to leave out."""

    without: list[Annotated[str, Meta(description="Paths of private values, such as state.token.")]] = []
    unsealed: Annotated[bool, Meta(description="Export a sealed run without its seal.")] = False


@operation("GET", "/runs", Role.SEE)
async def list_runs(call: ApiCall[RunListQuery, None]) -> RunPage:
    """List runs, latest start first."""
    return await read_page(call.services.storage, call.services.survey, call.query)


async def read_page(storage: BuiltInStorage, survey: KeptSurvey, query: RunListQuery) -> RunPage:
    """Return a page of the list of runs."""
    parent = None if query.parent is None else await complete_run_id(storage, query.parent)
    past = None if query.after is None else await find_run(storage, query.after)
    tags = dict(split_tag(tag) for tag in query.tag)
    end = None if query.text is None else await _find_end(storage, past)
    since = max([at for at in (query.since, end and datetime.fromisoformat(end.began)) if at], default=None)
    filters: dict[str, Any] = {
        "workflow_name": query.workflow,
        "standing": query.status,
        "tags": tags or None,
        "parent": parent,
        "prefix": query.prefix,
        "text": query.text,
        "since": since,
        "until": query.until,
        "changed_since": query.changed_since,
        "changed_until": query.changed_until,
        "after": past,
    }
    # One more than is shown, to know whether there is another page.
    wanted = query.limit + 1
    damaged: list[DamagedEntry] = []
    if query.contains is None:
        try:
            runs = await storage.list_runs(**filters, limit=wanted)
        except CheckpointCorrupt:
            if not query.damaged:
                raise
            readable = _filter_of(query, parent, tags)
            runs, damaged = await survey.list_runs(readable, query.status, past=past, limit=wanted)
    else:
        runs = []
        async for match in search(storage, query.contains, **filters):
            runs.append(match.run)
            if len(runs) == wanted:
                break
    if end is not None:
        # Runs that began at the same moment as the last one that is looked through may come after it.
        runs = [run for run in runs if (run.began_at, run.run_id) >= end]
    page = runs[: query.limit]
    following = page[-1].run_id if len(runs) > len(page) else None if end is None else end.run_id
    is_whole = end is None or len(runs) > len(page)
    return RunPage([run_item(run) for run in page], following, damaged, is_whole)


async def _find_end(storage: BuiltInStorage, past: RunInfo | None) -> RunPlace | None:
    """Return the last run that one search by text looks through; None if no run is left after it."""
    if storage._statistics is None:
        return None
    place = None if past is None else RunPlace(past.began_at, past.run_id)
    return await storage._statistics.find_place(place, LOOKED_THROUGH)


def _filter_of(query: RunListQuery, parent: str | None, tags: dict[str, str]) -> RunFilter:
    times = (query.since, query.until, query.changed_since, query.changed_until)
    since, until, changed_since, changed_until = [None if at is None else clock.stored_moment(at) for at in times]
    return RunFilter(
        workflow=query.workflow,
        tags=tags,
        parent=parent,
        prefix=query.prefix,
        text=query.text,
        since=since,
        until=until,
        changed_since=changed_since,
        changed_until=changed_until,
    )


def split_tag(text: str) -> tuple[str, str]:
    name, divider, value = text.partition("=")
    if not divider:
        raise ValueError(f"the tag {text!r} is not of the form NAME=VALUE")
    return name, value


@operation("GET", "/runs/{run_id}", Role.SEE)
async def get_run(call: ApiCall[RunDocumentQuery, None]) -> RunDocument:
    """Return a run: what it is, why it waits or stopped, what it holds, its turns, its timeline and its graph."""
    storage = call.services.storage
    run = await find_run(storage, call.query.run_id)
    # Without a number, the newest commit at the time it is read: the run may be moving.
    name = run.run_id if call.query.at is None else f"{run.run_id}@{call.query.at}"
    return msgspec.convert(await describe_run(storage, name, opened=call.query.open), RunDocument)


@operation("GET", "/runs/{run_id}/lineage", Role.SEE)
async def get_lineage(call: ApiCall[LineageQuery, None]) -> LineageDocument:
    """Return the tree of forks that a run belongs to: what it descends from, and what was forked from these runs."""
    lineage = await find_lineage(call.services.storage, call.query.run_id, limit=call.query.limit)
    return msgspec.convert(lineage.to_dict(), LineageDocument)


@operation("GET", "/runs/{run_id}/lines", Role.SEE)
async def get_run_lines(call: ApiCall[LinesQuery, None]) -> RunLines:
    """Return a run as lines that people read. Times are ISO 8601 between ⟦ and ⟧, for the reader's own zone."""
    storage, query = call.services.storage, call.query
    name = query.run_id if query.at is None else await find_inside(storage, query.run_id, query.at)
    overview = await load_overview(storage, name, every_commit=query.full)
    lines = format_overview(overview, full=query.full, moment=lambda stored: f"⟦{stored}⟧")
    command = lines.command
    return RunLines(
        lines.sentence,
        None if command is None else CommandItem(command.name, list(command.arguments), list(command.options)),
        lines.explanation,
        lines.sections,
    )


@operation("GET", "/runs/{run_id}/checkpoints", Role.SEE)
async def list_checkpoints(call: ApiCall[CheckpointListQuery, None]) -> CheckpointPage:
    """List the checkpoints of a run, newest first."""
    query, storage = call.query, call.services.storage
    run = await find_run(storage, query.run_id)
    before = None
    if query.before is not None:
        place = await find_checkpoint(storage, f"{run.run_id}@{query.before}")
        before = await storage._store.locate(place.checkpoint_id)
    entries = await storage._store.checkpoints(
        CheckpointFilter(run_id=run.run_id), before=before, limit=query.limit + 1
    )
    newest = entries[::-1][: query.limit]
    items = [
        CheckpointItem(entry.checkpoint_id, entry.number, entry.iteration, status_word(entry.status), entry.at)
        for entry in newest
    ]
    return CheckpointPage(run.run_id, items, newest[-1].number if len(entries) > len(newest) else None)


@operation("GET", "/checkpoint", Role.SEE)
async def find_place(call: ApiCall[PlaceQuery, None]) -> CheckpointPlace:
    """Find the checkpoint that a name means."""
    query, storage = call.query, call.services.storage
    name = query.name if query.run is None else await find_inside(storage, query.run, query.name)
    place = await find_checkpoint(storage, name)
    return CheckpointPlace(place.run_id, place.number, place.checkpoint_id)


@operation("GET", "/runs/{run_id}/state", Role.SEE)
async def get_state(call: ApiCall[StateQuery, None]) -> StateDocument:
    """Return the state of a run at a checkpoint."""
    storage = call.services.storage
    run = await find_run(storage, call.query.run_id)
    number = run.number if call.query.at is None else call.query.at
    place = await find_checkpoint(storage, f"{run.run_id}@{number}")
    document = document_of((await load_checkpoint(storage._store, place))[0])
    state = {key: to_data(value) for key, value in document["state"].items()}
    executors = {key: to_data(value) for key, value in document["executors"].items()}
    return StateDocument(run.run_id, place.number, place.checkpoint_id, state, executors)


@operation("GET", "/runs/{run_id}/events", Role.SEE)
async def list_events(call: ApiCall[EventQuery, None]) -> EventPage:
    """List the durable events of a run, oldest first."""
    storage = call.services.storage
    run = await find_run(storage, call.query.run_id)
    # Numbers are missing where commits were pruned, so the page ends where a hundred numbers do.
    upto = min(call.query.after + _COMMITS, run.number)
    records = await storage._store.history(run.run_id, after=call.query.after, upto=upto)
    commits = [read_commit(record, DEFAULT_CODEC)[0] for record in records]
    make_document = await find_document_maker(storage, run.run_id, lines=call.query.lines)
    page = [
        make_document(event, commit.stamp.at)
        for commit in commits
        for event in events(run.run_id, commit, stored=True, replayed=True)
    ]
    return EventPage(run.run_id, page, upto if upto < run.number else None)


@operation("GET", "/runs/{run_id}/export", Role.OPERATE, media_type="application/octet-stream")
async def export(call: ApiCall[ExportQuery, None]) -> Response:
    """Export a run as one file, for `stepwell import`."""
    run = await find_run(call.services.storage, call.query.run_id)
    content = await export_run(
        call.services.storage, run.run_id, without=call.query.without, unsealed=call.query.unsealed
    )
    # The id may hold anything; the name of the file must not.
    headers = {"content-disposition": 'attachment; filename="run.stepwell"'}
    return Response(content, headers=headers, media_type="application/octet-stream")


OPERATIONS = (
    list_runs,
    get_run,
    get_run_lines,
    get_lineage,
    list_checkpoints,
    get_state,
    find_place,
    list_events,
    export,
)
