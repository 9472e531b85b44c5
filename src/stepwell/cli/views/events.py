"""Events as a person and a program read them, and those of a run from its store: all, the last, and what comes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepwell.cli.views.text import leaf, printable

if TYPE_CHECKING:
    from stepwell.model.event import WorkflowEvent
    from stepwell.model.superstep import Commit
    from stepwell.storage.built_in_storage import BuiltInStorage

PAGE = 100  # records that are in memory at a time
LOOK_EVERY = (0.05, 0.1, 0.25)  # seconds between two looks at a run that somebody else drives; the last from then on


@dataclass(frozen=True)
class TimedEvent:
    """An event, and when that was: of one that is stored, the time of its commit."""

    event: WorkflowEvent
    at: str

    def as_dict(self) -> dict[str, Any]:
        """For a program."""
        event = self.event
        optional = {
            "executor": event.executor_id,
            "path": list(event.path) or None,
            "iteration": event.iteration,
            "attempt": event.attempt,
            "request_id": event.request_id if event.type == "request_info" else None,
            "error": None if event.details is None else f"{event.details.error_type}: {event.details.message}",
            "data": data_of(event),
        }
        present = {name: value for name, value in optional.items() if value is not None}
        state = None if event.state is None else event.state.value
        return {
            "run_id": event.run_id,
            "commit": event.commit,
            "at": self.at,
            "type": event.type,
            "state": state,
            **present,
        }

    def format_line(self) -> str:
        """For a person."""
        number = "-" if self.event.commit is None else self.event.commit
        return f"{number:>4}  {self.at[:19].replace('T', ' ')}  {self.describe()}"

    def describe(self) -> str:
        """The same without the number of the commit and the time."""
        fields = self.as_dict()
        parts = [self.event.type]
        if self.event.type == "status":
            parts.append(fields["state"])
        if self.event.path:
            fields["executor"] = place_of(self.event)
        parts += [
            f"{name}={fields[name]}" for name in ("executor", "iteration", "request_id", "error") if name in fields
        ]
        return printable("  ".join(parts)) + (f"  {leaf(fields['data'])}" if "data" in fields else "")


def place_of(event: WorkflowEvent) -> str:
    """Which executor it is about, and inside which ones; a sub-workflow as a whole goes by who calls it."""
    return "/".join([*event.path, event.executor_id] if event.executor_id is not None else event.path)


def data_of(event: WorkflowEvent) -> Any:
    """What it carries, in the form it is stored: no class need be known for that."""
    import msgspec

    from stepwell.model.payload import PayloadList
    from stepwell.storage.json_text import json_of

    parcel = event.payload
    if parcel is None:
        return None if event.details is not None else _plain(event.data)
    if isinstance(parcel, PayloadList):
        return [msgspec.json.decode(json_of(payload)) for payload in parcel.payloads]
    return msgspec.json.decode(json_of(parcel))


def _plain(value: Any) -> Any:
    """What is told live was never stored, and need not be made of anything that can be."""
    import msgspec

    return msgspec.to_builtins(value, str_keys=True, enc_hook=repr)


async def read_history(storage: BuiltInStorage, run_id: str) -> AsyncIterator[TimedEvent]:
    """The events of a run, oldest first; a page of commits is read at a time."""
    numbers = sorted(entry.number for entry in await storage._store.entries(run_id=run_id))
    for begin in range(0, len(numbers), PAGE):
        page = numbers[begin : begin + PAGE]
        for commit in await read_commits(storage, run_id, page[0] - 1, page[-1]):
            for event in events_of(run_id, commit):
                yield event


async def read_latest(storage: BuiltInStorage, run_id: str, upto: int, count: int) -> list[TimedEvent]:
    """The last so many events up to a commit. As much is read as they are in."""
    events: deque[TimedEvent] = deque()
    width, last = PAGE, upto
    while last >= 0 and len(events) < count:
        page = await read_commits(storage, run_id, last - width, last)
        for commit in reversed(page):
            events.extendleft(reversed(events_of(run_id, commit)))
            if len(events) >= count:
                break
        last, width = last - width, width * 2  # whatever was pruned is passed over in few steps
    return list(events)[-count:] if count else []


async def follow_commits(storage: BuiltInStorage, run_id: str, after: int) -> AsyncIterator[Commit | None]:
    """The commits of a run past a number, as they are made; None where there is nothing new at the moment."""
    quiet = 0
    while True:
        page = await read_commits(storage, run_id, after, None)
        for commit in page:
            after = commit.number
            yield commit
        if not page:
            yield None
            await asyncio.sleep(LOOK_EVERY[min(quiet, len(LOOK_EVERY) - 1)])
        quiet = 0 if page else quiet + 1


async def read_commits(storage: BuiltInStorage, run_id: str, after: int, upto: int | None) -> list[Commit]:
    from stepwell.codec.codec import DEFAULT_CODEC
    from stepwell.storage.wire.format import read_commit

    records = await storage._store.history(run_id, after=max(after, -1), upto=upto)
    return [read_commit(record, DEFAULT_CODEC)[0] for record in records]


def events_of(run_id: str, commit: Commit) -> list[TimedEvent]:
    """What a stored commit tells."""
    from stepwell.kernel.commit_events import events

    return [TimedEvent(event, commit.stamp.at) for event in events(run_id, commit, stored=True, replayed=True)]
