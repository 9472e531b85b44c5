"""Read the history of a run from its store: checkpoints, commits and events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from stepwell.admin.run_events import TimedEvent
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.declarative.stored_run import is_led, is_of_named_agents
from stepwell.kernel.commit import events
from stepwell.model.commit import Commit
from stepwell.model.state_writes import Assigned
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import CheckpointFilter
from stepwell.storage.store_archive import StoreArchive
from stepwell.storage.wire.format import read_commit

PAGE = 100  # records in memory at a time
# Seconds between two looks at a run that another process drives; the last one is repeated.
LOOK_EVERY = (0.05, 0.1, 0.25)


async def read_history(storage: BuiltInStorage, run_id: str) -> AsyncIterator[TimedEvent]:
    """Yield the events of a run, oldest first. Reads one page of commits at a time."""
    # From the list of commits, not by counting: numbers are missing where commits were pruned.
    numbers = [entry.number for entry in await storage._store.checkpoints(CheckpointFilter(run_id=run_id))]
    for begin in range(0, len(numbers), PAGE):
        page = numbers[begin : begin + PAGE]
        for commit in await read_commits(storage, run_id, page[0] - 1, page[-1]):
            for event in events_of(run_id, commit):
                yield event


async def leads_named_agents(storage: BuiltInStorage, run_id: str) -> bool:
    """Return whether a run is one of named agents, whose conductor people do not know."""
    # Its first commit tells that, and is small; only if it was pruned, the newest checkpoint is read.
    records = await storage._store.history(run_id, upto=0)
    if records:
        commit = read_commit(records[0], DEFAULT_CODEC)[0]
        begun = commit.state.get("begun")
        payloads = [message.payload for message in commit.messages or ()]
        return is_led(payloads if not isinstance(begun, Assigned) else [*payloads, begun.value])
    head = await StoreArchive(storage._store, DEFAULT_CODEC).head(run_id)
    return head is not None and is_of_named_agents(head)


async def read_latest(storage: BuiltInStorage, run_id: str, upto: int, count: int) -> list[TimedEvent]:
    """Return the last `count` events up to a commit. Reads only as many commits as they are in."""
    events: deque[TimedEvent] = deque()
    width, last = PAGE, upto
    while last >= 0 and len(events) < count:
        page = await read_commits(storage, run_id, last - width, last)
        for commit in reversed(page):
            events.extendleft(reversed(events_of(run_id, commit)))
            if len(events) >= count:
                break
        # Each page is twice as wide as the one before, so that a pruned stretch is crossed in few
        # reads.
        last, width = last - width, width * 2
    return list(events)[-count:] if count else []


async def follow_commits(storage: BuiltInStorage, run_id: str, after: int) -> AsyncIterator[Commit | None]:
    """Yield new commits of a run as they are made; None whenever there are none."""
    quiet = 0
    while True:
        page = await read_commits(storage, run_id, after, None)
        for commit in page:
            after = commit.number
            yield commit
        # Only a look that finds nothing waits: a reader that is behind catches up at full speed.
        if not page:
            yield None
            await asyncio.sleep(LOOK_EVERY[min(quiet, len(LOOK_EVERY) - 1)])
        quiet = 0 if page else quiet + 1


async def read_commits(storage: BuiltInStorage, run_id: str, after: int, upto: int | None) -> list[Commit]:
    """Return the stored commits with numbers above `after`, up to and including `upto`."""
    records = await storage._store.history(run_id, after=max(after, -1), upto=upto)
    return [read_commit(record, DEFAULT_CODEC)[0] for record in records]


def events_of(run_id: str, commit: Commit) -> list[TimedEvent]:
    """Return the durable events of a commit."""
    return [TimedEvent(event, commit.stamp.at) for event in events(run_id, commit, stored=True, replayed=True)]
