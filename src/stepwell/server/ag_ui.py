"""AG-UI at `/ag-ui/{workflow}`: a thread is a run, an interrupt is a request.

`POST` takes a RunAgentInput and answers with a stream of events, each made and checked by the
protocol's own types. The thread's id is the id of the run. A thread that is new is stored, and
somebody who drives runs drives it; one that exists is followed. Answers to interrupts are responses
to requests. Nothing is held here: a client that lost its connection continues with `Last-Event-ID`,
at any server on the store.

Events of commits have an id, their commit and their place among its events. State, and what is said
about drivers, is as of now, has no id, and is sent anew to whom continues.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    Interrupt,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TextPart,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from pydantic import ValidationError
from starlette.requests import Request
from starlette.routing import Route

from stepwell.admin.calls import calls_of
from stepwell.admin.cancellation import cancel
from stepwell.admin.diffs.documents import document_of
from stepwell.admin.event_documents import data_of
from stepwell.admin.values import main_part, to_data
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.model.event import WorkflowEvent
from stepwell.server.event_stream import EventStream, StreamItem
from stepwell.server.identity import Identity, Role, require
from stepwell.server.problems import RequestRefused
from stepwell.server.responses import send_checked_response
from stepwell.server.run_driver import find_driver
from stepwell.server.run_feed import EventCursor, read_cursor
from stepwell.server.run_start import find_workflow, start_run
from stepwell.server.services import RouteSet, Services
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.store_archive import StoreArchive

PROTOCOL = "1.0"
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
    thread = Thread(services.storage, run_input, after)
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


@dataclass(slots=True)
class Thread:
    """The stream of one request: history from a cursor, then what any process commits, until the run rests."""

    storage: BuiltInStorage
    run_input: RunAgentInput
    after: EventCursor
    _state: dict[str, Any] = field(default_factory=dict)  # as the client has it

    async def items(self) -> AsyncGenerator[StreamItem, None]:
        """Yield what is sent."""
        run_id = self.run_input.thread_id
        started = RunStartedEvent(thread_id=run_id, run_id=self.run_input.run_id, protocol_version=PROTOCOL)
        yield _item(started)
        self._state = await self._read_state()
        yield _item(StateSnapshotEvent(snapshot=self._state))
        async for note in self._note_driver():
            yield note
        commit, seen, failure = self.after.commit, self.after.event, None
        translator = Translator(run_id)
        # A commit of which not everything was seen is read again.
        after = commit if seen is None else commit - 1
        async for event in self.storage.follow(run_id, after=after, until_rest=True):
            if event.type == "failed":
                failure = event
            for place, translated in translator.translate(event):
                if event.commit != commit or place > (seen or 0):
                    yield _item(translated, str(EventCursor(event.commit or 0, place)))
            if event.type in ("superstep_completed", "status"):
                async for delta in self._find_delta():
                    yield delta
        yield _item(await self._end(failure))

    async def _note_driver(self) -> AsyncIterator[StreamItem]:
        """Yield an event that says who drives the run, if nobody does."""
        driver = await find_driver(self.storage, self.run_input.thread_id)
        run = await self.storage.get_run(self.run_input.thread_id)
        if not driver.is_driven and run is not None and run.standing in ("queued", "stalled", "sleeping"):
            value = {"sentence": driver.sentence, "command": driver.command}
            yield _item(CustomEvent(name="stepwell.not_driven", value=value))

    async def _read_state(self) -> dict[str, Any]:
        head = await StoreArchive(self.storage._store, DEFAULT_CODEC).head(self.run_input.thread_id)
        return {} if head is None else {key: to_data(value) for key, value in document_of(head)["state"].items()}

    async def _find_delta(self) -> AsyncIterator[StreamItem]:
        state = await self._read_state()
        patch = list(diff_json(self._state, state, ""))
        if patch:
            yield _item(StateDeltaEvent.model_validate({"delta": patch}))
        self._state = state

    async def _end(self, failure: WorkflowEvent | None) -> BaseEvent:
        """Return the last event: how the run rests."""
        run_id = self.run_input.thread_id
        run = await self.storage.get_run(run_id)
        standing = "cancelled" if run is None else run.standing
        if standing == "failed":
            details = None if failure is None else failure.details
            message = "the run failed" if details is None else details.message
            return RunErrorEvent(message=message, code=None if details is None else details.error_type)
        outcome: Any = RunFinishedSuccessOutcome()
        if standing == "cancelled":
            outcome = RunFinishedCancelledOutcome()
        interrupts = [] if standing in ("cancelled", "completed") else await self._find_interrupts()
        if interrupts:
            outcome = RunFinishedInterruptOutcome(interrupts=interrupts)
        return RunFinishedEvent(thread_id=run_id, run_id=self.run_input.run_id, outcome=outcome)

    async def _find_interrupts(self) -> list[Interrupt]:
        return [
            Interrupt(
                id=request.request_id,
                reason="input_required",
                message=request.question,
                response_schema=request.response_schema,
                expires_at=None if request.deadline is None else request.deadline.isoformat(),
                metadata={"executor": request.executor_id, "request": to_data(request.data)},
            )
            for request in await self.storage.pending_requests(run_id=self.run_input.thread_id)
            if request.answered is None
        ]


class Translator:
    """Turns the durable events of a run into those of the protocol, always the same ones.

    A step is what one handler call did: its tool calls, its outputs as messages. It is known when it
    is committed.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._commit: int | None = None
        self._place = 0  # of the last event among those of its commit
        self._outputs: list[WorkflowEvent] = []  # of the handler call whose completion comes next

    def translate(self, event: WorkflowEvent) -> Iterator[tuple[int, BaseEvent]]:
        """Yield the events for one of ours, each with its place among those of its commit."""
        if event.commit != self._commit:
            self._commit, self._place, self._outputs = event.commit, 0, []
        for translated in self._translate(event):
            self._place += 1
            yield self._place, translated

    def _translate(self, event: WorkflowEvent) -> Iterator[BaseEvent]:
        match event.type:
            case "output" | "intermediate":
                self._outputs.append(event)
            case "executor_completed":
                name, executor = f"{self._run_id}/{event.delivery}", event.executor_id or ""
                yield StepStartedEvent(step_name=executor)
                yield from _translate_tools(name, event)
                for place, output in enumerate(self._outputs):
                    yield from _translate_text(f"{name}/{place}", output)
                yield StepFinishedEvent(step_name=executor)
                self._outputs = []
            case "request_answered":
                yield CustomEvent(name="stepwell.request_answered", value={"id": event.request_id, "by": event.by})
            case "restored" | "migrated" | "warning":
                yield CustomEvent(name=f"stepwell.{event.type}", value=to_data(data_of(event)))


def _translate_tools(name: str, event: WorkflowEvent) -> Iterator[BaseEvent]:
    for place, call in enumerate(call for call in calls_of(event.steps) if call.kind == "tool"):
        id = f"{name}/tool/{place}"
        yield ToolCallStartEvent(tool_call_id=id, tool_call_name=call.name)
        if call.summary.arguments:
            yield ToolCallArgsEvent(tool_call_id=id, delta=call.summary.arguments)
        yield ToolCallEndEvent(tool_call_id=id)
        content = call.summary.error or call.summary.result
        yield ToolCallResultEvent(message_id=f"{id}/result", tool_call_id=id, content=content, role="tool")


def _translate_text(message_id: str, event: WorkflowEvent) -> Iterator[BaseEvent]:
    data = to_data(main_part(data_of(event)))
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    yield TextMessageStartEvent(message_id=message_id, role="assistant", name=event.executor_id)
    if text:
        yield TextMessageContentEvent(message_id=message_id, delta=text)
    yield TextMessageEndEvent(message_id=message_id)


def diff_json(before: Any, after: Any, path: str) -> Iterator[dict[str, Any]]:
    """Yield the operations of a JSON Patch (RFC 6902) that turn one value into the other."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() - after.keys():
            yield {"op": "remove", "path": f"{path}/{_escape(key)}"}
        for key, value in after.items():
            if key in before:
                yield from diff_json(before[key], value, f"{path}/{_escape(key)}")
            else:
                yield {"op": "add", "path": f"{path}/{_escape(key)}", "value": value}
    elif isinstance(before, list) and isinstance(after, list) and after[: len(before)] == before:
        for value in after[len(before) :]:
            yield {"op": "add", "path": f"{path}/-", "value": value}
    elif json.dumps(before) != json.dumps(after):  # not `!=`, to which 1, 1.0 and true are the same
        yield {"op": "replace", "path": path, "value": after}


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _item(event: BaseEvent, id: str | None = None) -> StreamItem:
    return StreamItem("message", event.model_dump(by_alias=True, mode="json", exclude_none=True), id)
