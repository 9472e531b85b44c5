"""What a stream sends of runs: their events, and how they stand."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from stepwell.admin.event_documents import event_to_dict
from stepwell.admin.run_events import TimedEvent, only_of_nodes
from stepwell.admin.run_history import leads_named_agents
from stepwell.errors import CheckpointCorrupt, StepwellError, StoreUnavailable
from stepwell.kernel.commit import events
from stepwell.model.event import WorkflowEvent
from stepwell.server.event_stream import StreamItem
from stepwell.server.live_watch import watching
from stepwell.server.problems import RequestRefused
from stepwell.server.run_items import RunItem, RunPage
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.followed_run import STOPPED, follow_commits

ItemT = TypeVar("ItemT")
MakeDocument = Callable[[WorkflowEvent, str], dict[str, Any]]
NEVER: frozenset[str] = frozenset()
_AGAIN = 1.0  # seconds between two attempts to reach a store that is away
_AHEAD = 100  # items of several runs that are read before they are sent


@dataclass(frozen=True, slots=True)
class EventCursor:
    """Which events of a run were seen: those up to one event of a commit, or to the end of the commit."""

    commit: int = -1
    event: int | None = None

    def __str__(self) -> str:
        return f"{self.commit}" if self.event is None else f"{self.commit}.{self.event}"


def read_cursor(text: str) -> EventCursor:
    """Return a cursor from the id of an event, or the number of a commit. Raises RequestRefused."""
    commit, divider, event = text.partition(".")
    if not _is_number(commit.removeprefix("-")) or (divider and not _is_number(event)):
        raise _cursor_error(text)
    return EventCursor(int(commit), int(event) if divider else None)


def _cursor_error(text: str) -> RequestRefused:
    return RequestRefused(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        f"{text!r} is not a cursor",
        "pass the id of an event of this stream, or the number of a commit",
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 18


async def find_document_maker(storage: BuiltInStorage, run_id: str, *, lines: bool) -> MakeDocument:
    """Return what turns events of a run into documents; with `lines`, each also as people read it.

    What people do not read, such as the steps of the conductor of named agents, has no lines.
    """
    if not lines:
        return event_to_dict
    is_led = await leads_named_agents(storage, run_id)

    def make(event: WorkflowEvent, at: str) -> dict[str, Any]:
        timed = TimedEvent(event, at)
        shown = only_of_nodes(timed) if is_led else timed
        return {**event_to_dict(event, at), "lines": [] if shown is None else shown.to_lines()}

    return make


async def when_reachable(read: Callable[[], Awaitable[ItemT]]) -> ItemT:
    """Return what is read from the store, as soon as it can be reached."""
    while True:
        try:
            return await read()
        except StoreUnavailable:
            await asyncio.sleep(_AGAIN)


async def follow_history(
    storage: BuiltInStorage, run_id: str, cursor: EventCursor, *, ends: frozenset[str] = STOPPED
) -> AsyncGenerator[tuple[EventCursor, TimedEvent], None]:
    """Yield the durable events of a run past a cursor, and new ones as they are committed, until it stands so.

    A store that is away for a while is waited for.
    """
    while True:
        after = cursor.commit if cursor.event is None else cursor.commit - 1
        try:
            async with aclosing(follow_commits(storage._store, run_id, after, ends=ends)) as commits:
                async for commit in commits:
                    seen = cursor.event if commit.number == cursor.commit else None
                    for n, event in enumerate(events(run_id, commit, stored=True, replayed=True)):
                        if seen is None or n > seen:
                            cursor = EventCursor(commit.number, n)
                            yield cursor, TimedEvent(event, commit.stamp.at)
                    cursor = EventCursor(commit.number)
            return
        except StoreUnavailable:
            await asyncio.sleep(_AGAIN)


async def follow_events(
    storage: BuiltInStorage,
    run_id: str,
    cursor: EventCursor,
    *,
    ends: frozenset[str] = STOPPED,
    make_document: MakeDocument = event_to_dict,
) -> AsyncGenerator[StreamItem, None]:
    """Yield what `follow_history` does as documents; `end` is the last."""
    async with aclosing(follow_history(storage, run_id, cursor, ends=ends)) as history:
        async for at, timed in history:
            cursor = at
            yield StreamItem(timed.event.type, make_document(timed.event, timed.at), str(cursor))
    run = await when_reachable(lambda: storage.get_run(run_id))
    status = None if run is None else run.standing
    yield StreamItem("end", {"run_id": run_id, "status": status}, str(EventCursor(cursor.commit)))


async def follow_page(pages: AsyncGenerator[RunPage, None]) -> AsyncGenerator[StreamItem, None]:
    """Yield the runs of a page of the list, then each that is new there or stands otherwise than before.

    `pages` is the page as it is from time to time.
    """
    sent: dict[str, RunItem] = {}
    async with aclosing(pages):
        async for page in pages:
            for run in reversed(page.runs):
                if sent.get(run.run_id) != run:
                    yield StreamItem("run", msgspec.to_builtins(run), None)
            sent = {run.run_id: run for run in page.runs}


async def follow_live(storage: BuiltInStorage, run_id: str) -> AsyncGenerator[StreamItem, None]:
    """Yield the live events of a run that a worker drives, in any process. None of them is durable.

    They have no id, and what is missed is missed. Ends at once if the store has no ring for them.
    """
    if storage._live is None:
        return
    with watching(storage._live, run_id) as watcher:
        while True:
            document = msgspec.json.decode(await watcher.next())
            yield StreamItem(document["type"], {**document, "live": True}, None)


async def follow_several(
    storage: BuiltInStorage,
    cursors: Mapping[str, EventCursor],
    pages: AsyncGenerator[RunPage, None] | None,
    *,
    live: bool = False,
) -> AsyncGenerator[StreamItem, None]:
    """Yield the events of several runs, and how the runs of a page stand. It never ends by itself.

    The id of an event says where all of them stand. `damaged` is the last event of a run whose
    history cannot be read any further.
    """
    seen = {run_id: str(cursor) for run_id, cursor in cursors.items()}

    async def read_events(run_id: str, cursor: EventCursor) -> AsyncGenerator[StreamItem, None]:
        try:
            async with aclosing(follow_events(storage, run_id, cursor, ends=NEVER)) as items:
                async for item in items:
                    yield item
        except CheckpointCorrupt as error:
            # What else is followed goes on; a stream that broke off would be asked for again and again.
            yield StreamItem("damaged", {"run_id": run_id, "detail": str(error)}, None)

    async def label(
        run_id: str, feed: AsyncGenerator[StreamItem, None]
    ) -> AsyncGenerator[tuple[str, StreamItem], None]:
        async with aclosing(feed) as items:
            async for item in items:
                yield run_id, item

    feeds = [label(run_id, read_events(run_id, cursor)) for run_id, cursor in cursors.items()]
    if pages is not None:
        feeds.append(label("", follow_page(pages)))
    if live:
        feeds += [label(run_id, follow_live(storage, run_id)) for run_id in cursors]
    async with aclosing(interleave(feeds)) as items:
        async for run_id, item in items:
            if item.id is not None:
                seen[run_id] = item.id
            yield StreamItem(item.name, item.data, None if item.id is None else write_cursors(seen))


async def interleave(feeds: Sequence[AsyncGenerator[ItemT, None]]) -> AsyncGenerator[ItemT, None]:
    """Yield the items of several feeds as they come, until all have ended. Raises what the first raises that fails."""
    queue = asyncio.Queue[ItemT](_AHEAD)

    async def read(feed: AsyncGenerator[ItemT, None]) -> None:
        async with aclosing(feed) as items:
            async for item in items:
                await queue.put(item)

    reading = asyncio.gather(*map(read, feeds))
    coming: asyncio.Future[ItemT] | None = None
    try:
        while True:
            coming = asyncio.ensure_future(queue.get())
            await asyncio.wait((coming, reading), return_when=asyncio.FIRST_COMPLETED)
            if not coming.done() and queue.empty():
                break
            yield await coming
        await reading
    finally:
        if coming is not None:
            coming.cancel()  # the reader may have left in the middle of the wait
        reading.cancel()
        with suppress(asyncio.CancelledError, StepwellError):
            await reading


def write_cursors(cursors: Mapping[str, str]) -> str:
    """Return where several runs stand, as the id of an event."""
    return urlsafe_b64encode(msgspec.json.encode(cursors)).decode()


def read_cursors(text: str) -> dict[str, EventCursor]:
    """Return where several runs stand, from the id of an event. Raises RequestRefused."""
    try:
        cursors = msgspec.json.decode(urlsafe_b64decode(text), type=dict[str, str])
    except (ValueError, msgspec.DecodeError):
        raise _cursor_error(text) from None
    return {run_id: read_cursor(cursor) for run_id, cursor in cursors.items()}
