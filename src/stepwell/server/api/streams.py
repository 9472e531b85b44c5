"""Event streams, as operations."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from stepwell.admin.lookup import find_run
from stepwell.server.api.operation import ApiCall, operation
from stepwell.server.api.runs import LINES, RunListQuery, RunQuery
from stepwell.server.event_stream import EventStream
from stepwell.server.identity import Role
from stepwell.server.run_feed import (
    EventCursor,
    find_document_maker,
    follow_events,
    follow_several,
    read_cursor,
    read_cursors,
)
from stepwell.storage.followed_run import AT_REST, STOPPED

MEDIA_TYPE = "text/event-stream"
_MOST_RUNS = 20  # that one stream follows


class EventStreamQuery(RunQuery, frozen=True, forbid_unknown_fields=True):
    """From where on; the header `Last-Event-ID` comes first."""

    after: Annotated[str, Meta(description="The id of an event, or the number of a commit.")] = "-1"
    rest: Annotated[bool, Meta(description="End also when the run waits for a response.")] = False
    lines: Annotated[bool, Meta(description=LINES)] = False


class SeveralQuery(RunListQuery, frozen=True, forbid_unknown_fields=True):
    """Which runs are followed: those named, and with `page` how those of a page of the list stand."""

    run: list[str] = []
    page: Annotated[bool, Meta(description="Send how the runs of the page stand.")] = False
    live: Annotated[bool, Meta(description="Also live events, which are not durable.")] = False
    cursor: Annotated[str, Meta(description="The id of an event of this stream.")] | None = None


@operation("GET", "/runs/{run_id}/events/stream", Role.SEE, media_type=MEDIA_TYPE)
async def stream_events(call: ApiCall[EventStreamQuery, None]) -> Response:
    """Send the durable events of a run from a cursor, then new ones as any process commits them, until it stops."""
    services = call.services
    services.streams.check(call.identity.name)
    run = await find_run(services.storage, call.query.run_id)
    cursor = read_cursor(call.headers.get("last-event-id") or call.query.after)
    items = follow_events(
        services.storage,
        run.run_id,
        cursor,
        ends=AT_REST if call.query.rest else STOPPED,
        make_document=await find_document_maker(services.storage, run.run_id, lines=call.query.lines),
    )
    return EventStream(items, call.identity.name, services.streams, services.limits)


@operation("GET", "/stream", Role.SEE, media_type=MEDIA_TYPE)
async def stream_several(call: ApiCall[SeveralQuery, None]) -> Response:
    """Send the events of several runs, and how the runs of a page stand, over one connection."""
    services, query = call.services, call.query
    services.streams.check(call.identity.name)
    if len(query.run) > _MOST_RUNS:
        raise ValueError(f"one stream follows at most {_MOST_RUNS} runs, not {len(query.run)}")
    text = call.headers.get("last-event-id") or query.cursor
    seen = {} if text is None else read_cursors(text)
    runs = [(await find_run(services.storage, name)).run_id for name in query.run]
    cursors = {run_id: seen.get(run_id, EventCursor()) for run_id in runs}
    pages = services.looks.follow(_page_of(query)) if query.page else None
    items = follow_several(services.storage, cursors, pages, live=query.live)
    return EventStream(items, call.identity.name, services.streams, services.limits)


def _page_of(query: SeveralQuery) -> RunListQuery:
    """Return the page alone: streams of other runs may follow the same one."""
    return RunListQuery(**{name: getattr(query, name) for name in RunListQuery.__struct_fields__})


OPERATIONS = (stream_events, stream_several)
