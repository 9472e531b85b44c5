"""The route of the protocol: stores what an input asks for, and answers with a stream."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeVar

from ag_ui.core import ResumeEntry, RunAgentInput, TextPart
from pydantic import ValidationError
from starlette.requests import Request
from starlette.routing import Route

from stepwell.admin.cancellation import cancel
from stepwell.server.ag_ui.thread_stream import ThreadStream
from stepwell.server.event_stream import EventStream
from stepwell.server.identity import Identity, Role, require
from stepwell.server.problems import RequestRefused
from stepwell.server.responses import send_checked_response
from stepwell.server.run_feed import EventCursor, read_cursor
from stepwell.server.run_start import derive_run_id, find_workflow, send_message, start_run
from stepwell.server.services import RouteSet, Services
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.run_list import RunInfo

T = TypeVar("T")
_MESSAGE_TAG = "ag-ui.message"  # of a run: the message that it was started with
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
    thread = ThreadStream(services.storage, services.drivers, run_input, after)
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
    has_news = bool(run_input.resume) or await _send_further(services, run, run_input, request)
    # A thread that is opened again, without anything new, is shown from its beginning.
    return EventCursor(run.number) if has_news else EventCursor()


async def _send_further(services: Services, run: RunInfo, run_input: RunAgentInput, request: Request) -> bool:
    """Send the last message to its run, if the user has written it since the run was started; once for each id."""
    last = run_input.messages[-1] if run_input.messages else None
    if last is None or last.role != "user" or _message_tag(last.id) == run.tags.get(_MESSAGE_TAG):
        return False
    require(request, Role.OPERATE)
    key, workflow = _message_tag(last.id), run.workflow_name
    return await _try_as_text_and_as_json(
        _find_input(run_input), lambda value: send_message(services, workflow, run.run_id, value, key=key)
    )


def _message_tag(id: str) -> str:
    """Return what is stored of the id of a message: a client may choose any text for it."""
    return derive_run_id("ag-ui message", id)


async def _start(services: Services, workflow: str, run_input: RunAgentInput, identity: Identity) -> None:
    value, messages = _find_input(run_input), run_input.messages
    options: dict[str, Any] = {"by": identity.name, "run_id": run_input.thread_id}
    if messages and messages[-1].role == "user":
        # When the thread is opened again, this message is not a further one.
        options["tags"] = {_MESSAGE_TAG: _message_tag(messages[-1].id)}
    await _try_as_text_and_as_json(value, lambda value: start_run(services, workflow, value, **options))


async def _try_as_text_and_as_json(value: Any, send: Callable[[Any], Awaitable[T]]) -> T:
    """Send a value; a workflow that takes an object gets one from a client that can send text only."""
    try:
        return await send(value)
    except RequestRefused:
        try:
            parsed = json.loads(value) if isinstance(value, str) else None
        except ValueError:
            parsed = None
        if parsed is None:
            raise
        return await send(parsed)


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
