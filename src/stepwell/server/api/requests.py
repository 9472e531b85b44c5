"""Open requests of all runs, and their responses."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from stepwell.admin.lookup import NotFound, find_run
from stepwell.admin.overview.request_documents import pending_request_to_dict
from stepwell.errors import CheckpointCorrupt
from stepwell.model.valid_text import check_words
from stepwell.server.api.documents import LinkDocument, RequestPage, Responded
from stepwell.server.api.operation import ApiCall, operation
from stepwell.server.api.runs import DAMAGED, PageSize, RunQuery
from stepwell.server.damaged_entries import read_each_request
from stepwell.server.identity import Role
from stepwell.server.response_links.signature import ResponseLink, sign
from stepwell.server.responses import send_checked_response
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import RequestFilter
from stepwell.storage.pending_requests import PendingRequest


class RequestListQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which requests."""

    workflow: str | None = None
    run: Annotated[str, Meta(description="The id of a run, or its beginning.")] | None = None
    asked_until: Annotated[datetime, Meta(tz=True)] | None = None
    due_until: Annotated[datetime, Meta(tz=True, description="By deadline, the earliest first.")] | None = None
    damaged: Annotated[bool, Meta(description=DAMAGED)] = False
    stored: Annotated[bool, Meta(description="`data` in its stored form, with the names of classes.")] = False
    after: Annotated[str, Meta(description="The `next` of the previous page.")] | None = None
    limit: PageSize = 50


class RequestQuery(RunQuery, frozen=True, forbid_unknown_fields=True):
    """Which request of a run."""

    request_id: Annotated[str, Meta(min_length=1)]


class ResponseOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A response in plain JSON, checked against the schema of the request."""

    value: Any
    comment: Annotated[str, Meta(min_length=1)] | None = None


@operation("GET", "/requests", Role.SEE)
async def list_requests(call: ApiCall[RequestListQuery, None]) -> RequestPage:
    """List the open requests of all runs, oldest first."""
    query, storage = call.query, call.services.storage
    run_id = None if query.run is None else (await find_run(storage, query.run)).run_id
    try:
        return await _read_page(storage, query, run_id)
    except CheckpointCorrupt:
        if not query.damaged:
            raise
        return await _read_damaged_page(storage, query, run_id)


async def _read_page(storage: BuiltInStorage, query: RequestListQuery, run_id: str | None) -> RequestPage:
    requests = await storage.pending_requests(
        workflow_name=query.workflow,
        run_id=run_id,
        asked_until=query.asked_until,
        due_until=query.due_until,
        after=None if query.after is None else await _find_last(storage, query.after),
        limit=query.limit + 1,
    )
    page, now = requests[: query.limit], clock.now()
    following = f"{page[-1].run_id}/{page[-1].request_id}" if len(requests) > len(page) else None
    return RequestPage([_describe(request, now, query.stored) for request in page], following)


async def _read_damaged_page(storage: BuiltInStorage, query: RequestListQuery, run_id: str | None) -> RequestPage:
    """Return a page with what can be read of it, and the entries that cannot."""
    wanted = RequestFilter(
        workflow=query.workflow,
        run_id=run_id,
        asked_until=None if query.asked_until is None else clock.stored_moment(query.asked_until),
        due_until=None if query.due_until is None else clock.stored_moment(query.due_until),
    )
    unverified, past = storage._guard.inner, None
    for run, request in [] if query.after is None else _split_name(query.after):
        past = next(iter(await unverified.requests(RequestFilter(run_id=run, request_id=request), limit=1)), past)
    entries = await unverified.requests(wanted, past=past, limit=query.limit + 1)
    page = entries[: query.limit]
    following = f"{page[-1].run_id}/{page[-1].request_id}" if len(entries) > len(page) else None
    requests, damaged = await read_each_request(storage, page)
    now = clock.now()
    return RequestPage([_describe(request, now, query.stored) for request in requests], following, damaged)


@operation("POST", "/runs/{run_id}/requests/{request_id}/response", Role.RESPOND)
async def respond(call: ApiCall[RequestQuery, ResponseOrder]) -> Responded:
    """Respond to an open request. The first response wins; the process that drives the run applies it."""
    storage = call.services.storage
    run_id = (await find_run(storage, call.query.run_id)).run_id
    by = call.identity.name
    await send_checked_response(
        storage, run_id, call.query.request_id, call.body.value, by=by, comment=call.body.comment
    )
    return Responded(run_id, call.query.request_id, by=by, driver=await call.services.drivers.find(run_id))


class LinkOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who gets a response link, and for how long."""

    by: Annotated[str, Meta(min_length=1, max_length=200, description="Stored as who responds.")]
    seconds: Annotated[int, Meta(ge=60, le=90 * 86_400)] = 7 * 86_400


@operation("POST", "/runs/{run_id}/requests/{request_id}/link", Role.OPERATE, status=HTTPStatus.CREATED, writes=False)
async def create_link(call: ApiCall[RequestQuery, LinkOrder]) -> LinkDocument:
    """Make a link by which a person without a token responds to this request, and to nothing else."""
    storage, by = call.services.storage, call.body.by
    check_words("by", by)
    run_id = (await find_run(storage, call.query.run_id)).run_id
    request = await storage.get_request(call.query.request_id, run_id=run_id)
    expires = int(clock.seconds()) + call.body.seconds
    asked_at = request.asked_at.isoformat()
    link = ResponseLink(run_id, request.request_id, asked_at=asked_at, by=by, expires=expires)
    token = sign(link, call.services.key)
    return LinkDocument(f"/respond/{token}", by, datetime.fromtimestamp(expires, UTC).isoformat())


async def _find_last(storage: BuiltInStorage, name: str) -> PendingRequest:
    """Return the last request of the previous page. Raises NotFound if it is no longer open."""
    for run_id, request_id in _split_name(name):
        for request in await storage.pending_requests(run_id=run_id):
            if request.request_id == request_id:
                return request
    raise NotFound(f"request {name!r} is no longer open, so the next page is unknown; start again without `after`")


def _split_name(name: str) -> Iterator[tuple[str, str]]:
    # Both ids may contain slashes, so every slash may be the one between them.
    return ((name[:n], name[n + 1 :]) for n, letter in enumerate(name) if letter == "/")


def _describe(request: PendingRequest, now: datetime, stored: bool) -> dict[str, Any]:
    document = pending_request_to_dict(request, now)
    return {**document, "data": request.data} if stored and not document["sealed"] else document


OPERATIONS = (list_requests, respond, create_link)
