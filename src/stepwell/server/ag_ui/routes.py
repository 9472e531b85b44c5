"""The route of the protocol: stores what an input asks for, and answers with a stream."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from ag_ui.core import (
    ResumeEntry,
    RunAgentInput,
    TextPart,
)
from pydantic import ValidationError
from starlette.requests import Request
from starlette.routing import Route

from stepwell.admin.cancellation import cancel
from stepwell.server.ag_ui.thread import Thread
from stepwell.server.event_stream import EventStream
from stepwell.server.identity import Identity, Role, require
from stepwell.server.problems import RequestRefused
from stepwell.server.responses import send_checked_response
from stepwell.server.run_feed import EventCursor, read_cursor
from stepwell.server.run_start import find_workflow, start_run
from stepwell.server.services import RouteSet, Services
from stepwell.storage.built_in_storage import BuiltInStorage

_SHOWN = 500  # characters of what is wrong with an input


def make_routes(services: Services) -> RouteSet:
    """Return the route of the protocol."""

    async def serve(request: Request) -> EventStream:
        return await _serve(services, request)

    return RouteSet([Route("/ag-ui/{workflow}", serve, methods=["POST"])])


async def _serve(services: Services, request: Request) -> EventStream:
    find_workflow(services, request.path_params["workflow"])
    try:
        run_input = RunAgentInput.model_validate_json(await request.body())
    except ValidationError as error:
        raise RequestRefused(
            HTTPStatus.UNPROCESSABLE_ENTITY, f"this is not a RunAgentInput of AG-UI: {error}"[:_SHOWN]
        ) from error
    last = request.headers.get("last-event-id")
    cursor = None if last is None else read_cursor(last)
    identity = require(request, Role.SEE if cursor is not None else Role.RESPOND)
    services.streams.check(identity.name)
    after = await _begin(services, request, run_input, cursor)
    thread = Thread(services.storage, services.drivers, run_input, after)
    return EventStream(thread.items(), identity.name, services.streams, services.limits)


async def _begin(
    services: Services, request: Request, run_input: RunAgentInput, cursor: EventCursor | None
) -> EventCursor:
    """Store what the input asks for; return where the stream begins."""
    storage, run_id, workflow = services.storage, run_input.thread_id, request.path_params["workflow"]
    run = await storage.get_run(run_id)
    if run is not None and run.workflow_name != workflow:
        raise RequestRefused(HTTPStatus.CONFLICT, f"the thread {run_id!r} is a run of {run.workflow_name!r}")
    if run is None:
        if run_input.resume or cursor is not None:
            raise RequestRefused(HTTPStatus.NOT_FOUND, f"there is no thread {run_id!r} to resume")
        await _start(services, workflow, run_input, require(request, Role.OPERATE))
        return EventCursor()
    if cursor is not None:  # a client that continues: what it sent was stored before
        return cursor
    for entry in run_input.resume or ():
        await _answer(storage, run_id, entry, request)
    # A thread that is opened again, without an answer, is shown from its beginning.
    return EventCursor(run.number) if run_input.resume else EventCursor()


async def _start(services: Services, workflow: str, run_input: RunAgentInput, identity: Identity) -> None:
    value = _find_input(run_input)
    try:
        await start_run(services, workflow, value, by=identity.name, run_id=run_input.thread_id)
    except RequestRefused:
        # A workflow that takes an object gets one from a client that can send text only.
        try:
            parsed = json.loads(value) if isinstance(value, str) else None
        except ValueError:
            parsed = None
        if parsed is None:
            raise
        await start_run(services, workflow, parsed, by=identity.name, run_id=run_input.thread_id)


def _find_input(run_input: RunAgentInput) -> Any:
    """Return what a run starts with: `input` of the forwarded properties, or the text of the last message."""
    forwarded = run_input.forwarded_props
    if isinstance(forwarded, dict) and "input" in forwarded:
        return forwarded["input"]
    for message in reversed(run_input.messages):
        if message.role == "user":
            if isinstance(message.content, str):
                return message.content
            texts = [part.text for part in message.content if isinstance(part, TextPart)]
            if len(texts) == len(message.content):
                return "\n".join(texts)
            raise RequestRefused(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "a message can be text only; send other things as forwardedProps.input",
            )
    raise RequestRefused(
        HTTPStatus.UNPROCESSABLE_ENTITY, "a new thread needs a message of the user, or forwardedProps.input"
    )


async def _answer(storage: BuiltInStorage, run_id: str, entry: ResumeEntry, request: Request) -> None:
    identity = require(request, Role.OPERATE if entry.status == "cancelled" else Role.RESPOND)
    if entry.status == "cancelled":
        await cancel(storage, run_id, reason=f"the interrupt {entry.interrupt_id} was abandoned", by=identity.name)
    else:
        await send_checked_response(storage, run_id, entry.interrupt_id, entry.payload, by=identity.name)
