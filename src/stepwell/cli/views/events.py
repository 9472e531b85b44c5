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
class Heard:
    """An event, and when that was: of one that is stored, the time of its commit."""

    event: WorkflowEvent
    at: str

    def told(self) -> dict[str, Any]:
        """For a program."""
        event = self.event
        known = {
            "executor": event.executor_id,
            "path": list(event.path) or None,
            "iteration": event.iteration,
            "attempt": event.attempt,
            "request_id": event.request_id if event.type == "request_info" else None,
            "error": None if event.details is None else f"{event.details.error_type}: {event.details.message}",
            "data": data_of(event),
        }
        said = {name: value for name, value in known.items() if value is not None}
        state = None if event.state is None else event.state.value
        return {
            "run_id": event.run_id,
            "commit": event.commit,
            "at": self.at,
            "type": event.type,
            "state": state,
            **said,
        }

    def line(self) -> str:
        """For a person."""
        number = "-" if self.event.commit is None else self.event.commit
        return f"{number:>4}  {self.at[:19].replace('T', ' ')}  {self.words()}"

    def words(self) -> str:
        """The same without the number of the commit and the time."""
        told = self.told()
        words = [self.event.type]
        if self.event.type == "status":
            words.append(told["state"])
        if self.event.path:
            told["executor"] = place_of(self.event)
        words += [f"{name}={told[name]}" for name in ("executor", "iteration", "request_id", "error") if name in told]
        return printable("  ".join(words)) + (f"  {leaf(told['data'])}" if "data" in told else "")


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
        return [msgspec.json.decode(json_of(one)) for one in parcel.payloads]
    return msgspec.json.decode(json_of(parcel))


def _plain(value: Any) -> Any:
    """What is told live was never stored, and need not be made of anything that can be."""
    import msgspec

    return msgspec.to_builtins(value, str_keys=True, enc_hook=repr)


async def history(storage: BuiltInStorage, run_id: str) -> AsyncIterator[Heard]:
    """The events of a run, oldest first; a page of commits is read at a time."""
    numbers = sorted(entry.number for entry in await storage.store.entries(run_id=run_id))
    for begin in range(0, len(numbers), PAGE):
        page = numbers[begin : begin + PAGE]
        for commit in await commits(storage, run_id, page[0] - 1, page[-1]):
            for heard in heard_of(run_id, commit):
                yield heard


async def latest(storage: BuiltInStorage, run_id: str, upto: int, count: int) -> list[Heard]:
    """The last so many events up to a commit. As much is read as they are in."""
    found: deque[Heard] = deque()
    width, last = PAGE, upto
    while last >= 0 and len(found) < count:
        page = await commits(storage, run_id, last - width, last)
        for commit in reversed(page):
            found.extendleft(reversed(heard_of(run_id, commit)))
            if len(found) >= count:
                break
        last, width = last - width, width * 2  # whatever was pruned is passed over in few steps
    return list(found)[-count:] if count else []


async def following(storage: BuiltInStorage, run_id: str, after: int) -> AsyncIterator[Commit | None]:
    """The commits of a run past a number, as they are made; None where there is nothing new at the moment."""
    quiet = 0
    while True:
        found = await commits(storage, run_id, after, None)
        for commit in found:
            after = commit.number
            yield commit
        if not found:
            yield None
            await asyncio.sleep(LOOK_EVERY[min(quiet, len(LOOK_EVERY) - 1)])
        quiet = 0 if found else quiet + 1


async def commits(storage: BuiltInStorage, run_id: str, after: int, upto: int | None) -> list[Commit]:
    from stepwell.codec.codec import DEFAULT_CODEC
    from stepwell.storage.wire.format import read_commit

    records = await storage.store.history(run_id, after=max(after, -1), upto=upto)
    return [read_commit(record, DEFAULT_CODEC)[0] for record in records]


def heard_of(run_id: str, commit: Commit) -> list[Heard]:
    """What a stored commit tells."""
    from stepwell.kernel.commit_events import events

    return [Heard(event, commit.stamp.at) for event in events(run_id, commit, stored=True, replayed=True)]
