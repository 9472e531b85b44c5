"""Stores that break one promise each."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

from msgspec.structs import replace

from stepwell.errors import CheckpointCorrupt, CommitConflict
from stepwell.storage.lease import Owner
from stepwell.storage.port import ANY_RUN, NOTHING_ALONG, Along, Entry, Pending, Record, RunEntry, Sieve
from stepwell.stores.memory.store import MemoryStore


class AppendsWithoutCheck(MemoryStore):
    async def append(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        await self.put(record, along)


class ConsumesBeforeItAppends(MemoryStore):
    """A refused append has consumed its mail and forgotten its memory."""

    async def append(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        head = await self.head(record.entry.run_id)
        if head is not None:
            await self.put(head, Along(consumed=along.consumed, settled=along.settled))
        await asyncio.sleep(0)  # and meanwhile somebody may look
        await super().append(record, replace(along, consumed=(), settled=None))


class ConsumesAfterItAppends(MemoryStore):
    async def append(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        await super().append(record, replace(along, consumed=()))
        await asyncio.sleep(0)  # and meanwhile somebody may look
        await super().put(record, along)


class ForgetsWhatGoesAlong(MemoryStore):
    async def append(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        await super().append(record)


class ReducesNothing(MemoryStore):
    async def append(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        await super().append(record, replace(along, reduced=()))


class ReducesFirst(MemoryStore):
    """A refused append has reduced what was there."""

    async def append(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        await self.thin_out(record.entry.run_id, [], whole=along.reduced)
        await super().append(record, along)


class LetsASecondAnswerWin(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self._late: dict[tuple[str, str], bytes] = {}

    async def post(self, run_id: str, key: str, body: bytes) -> bool:
        if not await super().post(run_id, key, body):
            self._late[run_id, key] = body
        return True

    async def mail(self, run_id: str) -> list[tuple[str, bytes]]:
        return [(key, self._late.get((run_id, key), body)) for key, body in await super().mail(run_id)]


class LosesOrder(MemoryStore):
    async def mail(self, run_id: str) -> list[tuple[str, bytes]]:
        return sorted(await super().mail(run_id))

    async def entries(self, **which: Any) -> list[Entry]:
        return sorted(await super().entries(**which), key=lambda entry: (entry.run_id, entry.number))


class MixesMailOfRuns(MemoryStore):
    async def post(self, run_id: str, key: str, body: bytes) -> bool:
        return await super().post("any", key, body)

    async def mail(self, run_id: str) -> list[tuple[str, bytes]]:
        return await super().mail("any")


class MixesRunsOfLikeNames(MemoryStore):
    async def remember(self, run_id: str, place: int, key: str, body: bytes, *, fence: int | None = None) -> bool:
        return await super().remember(run_id.lower(), place, key, body)

    async def recall(self, run_id: str, place: int) -> dict[str, bytes]:
        return await super().recall(run_id.lower(), place)


class TidiesBodies(MemoryStore):
    async def append(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        tidy = json.dumps(json.loads(record.body), sort_keys=True).encode()
        await super().append(Record(record.entry, tidy), along)


class ReadsOverGaps(MemoryStore):
    async def chain(self, run_id: str, number: int) -> list[Record]:
        try:
            return await super().chain(run_id, number)
        except CheckpointCorrupt:
            return await self.history(run_id, upto=number)


class TakesWhatOthersAreBasedOn(MemoryStore):
    async def thin_out(self, run_id: str, numbers: Sequence[int], *, whole: Sequence[Record] = ()) -> int:
        for one in whole:
            self._records.replace(one)
        run = self._records.runs.get(run_id)
        going = [] if run is None else [number for number in numbers if number in run.records]
        for number in going:
            self._records.remove(self._records.runs[run_id], number)
        return len(going)


class LosesThePlaceOfAPage(MemoryStore):
    """The next page begins with the next run, though others of the last one are left."""

    async def pending(self, *, past: Pending | None = None, limit: int | None = None, **asked: Any) -> list[Pending]:
        found = await super().pending(**asked)
        later = [one for one in found if past is None or (one.at, one.run_id) > (past.at, past.run_id)]
        return later[:limit]


class LooksForPatterns(MemoryStore):
    """As a database does that is asked with LIKE."""

    async def runs(self, *, sieve: Sieve = ANY_RUN, limit: int | None = None, **asked: Any) -> list[RunEntry]:
        found = await super().runs(sieve=replace(sieve, prefix=None, text=None), **asked)
        begins, holds = sieve.prefix or "", sieve.text or ""
        said = [(run, (run.run_id, run.workflow, *chain.from_iterable(run.about.tags.items()))) for run in found]
        kept = [run for run, texts in said if any(like(f"%{holds}%", text) for text in texts)]
        return [run for run in kept if like(f"{begins}%", run.run_id)][:limit]


def like(pattern: str, text: str) -> bool:
    """Whether a text is of a pattern of SQL, in which `%` is anything and `_` any character."""
    parts = [{"%": ".*", "_": "."}.get(c, re.escape(c)) for c in pattern]
    return re.fullmatch("".join(parts), text, re.IGNORECASE | re.DOTALL) is not None


class LetsEverybodyDrive(MemoryStore):
    async def claim(self, run_id: str, owner: Owner, *, seconds: float) -> None: ...  # type: ignore[override]


class BelievesWhatItKnew:
    """One opening of a store: it looks up where a run is once, and counts by itself from then on."""

    def __init__(self, shared: MemoryStore) -> None:
        self._shared, self._latest = shared, dict[str, int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shared, name)

    async def head(self, run_id: str) -> Record | None:
        found = await self._shared.head(run_id)
        self._latest.setdefault(run_id, -1 if found is None else found.entry.number)
        return found

    async def append(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        run_id, number = record.entry.run_id, record.entry.number
        await self.head(run_id)
        if number != self._latest[run_id] + 1:
            raise CommitConflict(f"run {run_id!r} is not there")
        await self._shared.put(record, along)
        self._latest[run_id] = number
