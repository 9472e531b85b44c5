"""The stream of one request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from ag_ui.core import (
    PROTOCOL_VERSION,
    BaseEvent,
    CustomEvent,
    Interrupt,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
)

from stepwell.admin.diffs.documents import document_of
from stepwell.admin.diffs.json_diff import compare, patch_of
from stepwell.admin.values import to_data
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.model.event import WorkflowEvent
from stepwell.server.ag_ui.live_text import LiveText
from stepwell.server.ag_ui.translation import Translator
from stepwell.server.event_stream import StreamItem
from stepwell.server.run_driver import RunDrivers
from stepwell.server.run_feed import EventCursor, follow_history, follow_live, interleave, when_reachable
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.followed_run import AT_REST
from stepwell.storage.store_archive import StoreArchive


@dataclass(slots=True)
class ThreadStream:
    """The stream of one request: history from a cursor, then what any process commits, until the run rests."""

    storage: BuiltInStorage
    drivers: RunDrivers
    run_input: RunAgentInput
    after: EventCursor
    _state: dict[str, Any] = field(default_factory=dict)  # as the client has it
    _state_at: int = -1  # the commit that it is of
    _translator: Translator = field(init=False)

    def __post_init__(self) -> None:
        self._translator = Translator(self.run_input.thread_id)

    async def items(self) -> AsyncGenerator[StreamItem, None]:
        """Yield what is sent."""
        run_id = self.run_input.thread_id
        started = RunStartedEvent(thread_id=run_id, run_id=self.run_input.run_id, protocol_version=PROTOCOL_VERSION)
        yield _item(started)
        await when_reachable(self._read_state)
        yield _item(StateSnapshotEvent(snapshot=self._state))
        async for note in self._note_driver():
            yield note
        live, failure = LiveText(run_id), None
        async with aclosing(interleave((self._follow(), follow_live(self.storage, run_id)))) as feed:
            async for event in feed:
                if event is None:
                    break
                if isinstance(event, StreamItem):
                    for translated in live.translate(event.data):
                        yield _item(translated)
                    continue
                if event.type == "failed":
                    failure = event
                for item in self._translate(event, live):
                    yield item
                # What is shown of the past changes nothing: the state is as of now.
                if event.type in ("superstep_completed", "status") and (event.commit or 0) > self._state_at:
                    async for delta in self._find_delta():
                        yield delta
        for translated in live.end():
            yield _item(translated)
        yield _item(await when_reachable(lambda: self._end(failure)))

    async def _follow(self) -> AsyncGenerator[WorkflowEvent | StreamItem | None, None]:
        """Yield the durable events from the cursor on; None when the run rests."""
        # A commit of which not everything was seen is read again: the places in it are our own.
        cursor = self.after if self.after.event is None else EventCursor(self.after.commit - 1)
        async with aclosing(follow_history(self.storage, self.run_input.thread_id, cursor, ends=AT_REST)) as history:
            async for _, timed in history:
                yield timed.event
        yield None

    def _translate(self, event: WorkflowEvent, live: LiveText) -> Iterator[StreamItem]:
        """Yield what is sent of a durable event that the client has not seen."""
        places = self._translator.translate(event)
        if event.commit == self.after.commit:
            items: Iterable[tuple[int | None, BaseEvent]] = (
                item for item in places if item[0] > (self.after.event or 0)
            )
        else:
            items = live.join(event, places)
        for place, translated in items:
            yield _item(translated, None if place is None else str(EventCursor(event.commit or 0, place)))

    async def _note_driver(self) -> AsyncIterator[StreamItem]:
        """Yield an event that says who drives the run, if nobody does."""
        driver = await self.drivers.find(self.run_input.thread_id)
        run = await self.storage.get_run(self.run_input.thread_id)
        if not driver.is_driven and run is not None and run.standing in ("queued", "stalled", "sleeping"):
            value = {"sentence": driver.sentence, "command": driver.command}
            yield _item(CustomEvent(name="stepwell.not_driven", value=value))

    async def _read_state(self) -> None:
        head = await StoreArchive(self.storage._store, DEFAULT_CODEC).head(self.run_input.thread_id)
        if head is not None:
            self._state = {key: to_data(value) for key, value in document_of(head)["state"].items()}
            self._state_at = head.number

    async def _find_delta(self) -> AsyncIterator[StreamItem]:
        before = self._state
        await when_reachable(self._read_state)
        if patch := patch_of(compare(before, self._state)):
            yield _item(StateDeltaEvent.model_validate({"delta": patch}))

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


def _item(event: BaseEvent, id: str | None = None) -> StreamItem:
    # The models leave out what has no value; a null that stands for one, as in a patch, stays.
    return StreamItem("message", event.model_dump(by_alias=True, mode="json"), id)
