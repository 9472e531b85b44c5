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
from stepwell.storage.port import ANY_RUN, NO_EFFECTS, CommitEffects, Entry, Pending, Record, RunEntry, RunFilter
from stepwell.stores.memory.store import MemoryStore


class AppendsWithoutCheck(MemoryStore):
    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await self.put(record, effects)


class ConsumesBeforeItAppends(MemoryStore):
    """A refused append has consumed its mail and forgotten its memory."""

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        head = await self.head(record.entry.run_id)
        if head is not None:
            await self.put(head, CommitEffects(consumed=effects.consumed, drop_log_through=effects.drop_log_through))
        await asyncio.sleep(0)  # and meanwhile somebody may look
        await super().append(record, replace(effects, consumed=(), drop_log_through=None))


class ConsumesAfterItAppends(MemoryStore):
    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await super().append(record, replace(effects, consumed=()))
        await asyncio.sleep(0)  # and meanwhile somebody may look
        await super().put(record, effects)


class ForgetsWhatGoesAlong(MemoryStore):
    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await super().append(record)


class ReducesNothing(MemoryStore):
    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await super().append(record, replace(effects, reduced=()))


class ReducesFirst(MemoryStore):
    """A refused append has reduced what was there."""

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await self.thin_out(record.entry.run_id, [], rewritten=effects.reduced)
        await super().append(record, effects)


class LetsASecondAnswerWin(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self._late: dict[tuple[str, str], bytes] = {}

    async def send(self, run_id: str, key: str, body: bytes) -> bool:
        if not await super().send(run_id, key, body):
            self._late[run_id, key] = body
        return True

    async def pending_signals(self, run_id: str) -> list[tuple[str, bytes]]:
        return [(key, self._late.get((run_id, key), body)) for key, body in await super().pending_signals(run_id)]


class LosesOrder(MemoryStore):
    async def pending_signals(self, run_id: str) -> list[tuple[str, bytes]]:
        return sorted(await super().pending_signals(run_id))

    async def entries(self, **which: Any) -> list[Entry]:
        return sorted(await super().entries(**which), key=lambda entry: (entry.run_id, entry.number))


class MixesMailOfRuns(MemoryStore):
    async def send(self, run_id: str, key: str, body: bytes) -> bool:
        return await super().send("any", key, body)

    async def pending_signals(self, run_id: str) -> list[tuple[str, bytes]]:
        return await super().pending_signals("any")


class MixesRunsOfLikeNames(MemoryStore):
    async def write_log(self, run_id: str, place: int, key: str, body: bytes, *, fence: int | None = None) -> bool:
        return await super().write_log(run_id.lower(), place, key, body)

    async def read_log(self, run_id: str, place: int) -> dict[str, bytes]:
        return await super().read_log(run_id.lower(), place)


class TidiesBodies(MemoryStore):
    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        tidy = json.dumps(json.loads(record.body), sort_keys=True).encode()
        await super().append(Record(record.entry, tidy), effects)


class ReadsOverGaps(MemoryStore):
    async def chain(self, run_id: str, number: int) -> list[Record]:
        try:
            return await super().chain(run_id, number)
        except CheckpointCorrupt:
            return await self.history(run_id, upto=number)


class TakesWhatOthersAreBasedOn(MemoryStore):
    async def thin_out(self, run_id: str, numbers: Sequence[int], *, rewritten: Sequence[Record] = ()) -> int:
        for one in rewritten:
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

    async def runs(self, *, run_filter: RunFilter = ANY_RUN, limit: int | None = None, **asked: Any) -> list[RunEntry]:
        found = await super().runs(run_filter=replace(run_filter, prefix=None, text=None), **asked)
        begins, holds = run_filter.prefix or "", run_filter.text or ""
        said = [(run, (run.run_id, run.workflow, *chain.from_iterable(run.metadata.tags.items()))) for run in found]
        kept = [run for run, texts in said if any(like(f"%{holds}%", text) for text in texts)]
        return [run for run in kept if like(f"{begins}%", run.run_id)][:limit]


def like(pattern: str, text: str) -> bool:
    """Whether a text is of a pattern of SQL, in which `%` is anything and `_` any character."""
    parts = [{"%": ".*", "_": "."}.get(c, re.escape(c)) for c in pattern]
    return re.fullmatch("".join(parts), text, re.IGNORECASE | re.DOTALL) is not None


class LetsEverybodyDrive(MemoryStore):
    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> None: ...  # type: ignore[override]


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

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        run_id, number = record.entry.run_id, record.entry.number
        await self.head(run_id)
        if number != self._latest[run_id] + 1:
            raise CommitConflict(f"run {run_id!r} is not there")
        await self._shared.put(record, effects)
        self._latest[run_id] = number
