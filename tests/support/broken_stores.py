"""Stores that break one promise each."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

from msgspec.structs import replace as changed

from stepwell.errors import CheckpointCorrupt, CommitConflict, RunBusy
from stepwell.storage.filters import ANY_CHECKPOINT, ANY_REQUEST, TOP_RUNS, CheckpointFilter, RequestFilter, RunFilter
from stepwell.storage.lease import Owner
from stepwell.storage.outbox import OutboxRow
from stepwell.storage.stored_values import (
    NO_EFFECTS,
    CommitEffects,
    Entry,
    LogEffects,
    OpenedRun,
    Record,
    RequestEntry,
    RunEntry,
    SignalRow,
)
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing.faults.wrapped_store import WrappedStore


class AppendsWithoutCheck(MemoryStore):
    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await self.rewrite(record.entry.run_id, insert=record, effects=effects)


class ConsumesBeforeItAppends(MemoryStore):
    """A refused append has consumed its signals and dropped its superstep log."""

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        early = CommitEffects(consumed=effects.consumed, drop_log_through=effects.drop_log_through)
        await self.rewrite(record.entry.run_id, effects=early)
        await asyncio.sleep(0)  # and meanwhile somebody may look
        await super().append(record, changed(effects, consumed=(), drop_log_through=None))


class ConsumesAfterItAppends(MemoryStore):
    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await super().append(record, changed(effects, consumed=()))
        await asyncio.sleep(0)  # and meanwhile somebody may look
        await super().rewrite(record.entry.run_id, effects=CommitEffects(consumed=effects.consumed))


class ForgetsEffects(MemoryStore):
    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await super().append(record)


class ReducesNothing(MemoryStore):
    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await super().append(record, changed(effects, reduced=()))


class ReducesFirst(MemoryStore):
    """A refused append has reduced what was there."""

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await self.rewrite(record.entry.run_id, replace=effects.reduced)
        await super().append(record, effects)


class KeepsTheLeaseItShouldEnd(MemoryStore):
    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        await super().append(record, changed(effects, release=False))


class EndsAnyLease(MemoryStore):
    """Ends the lease without a look at the fence, and even if the append is refused."""

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        run = self._runs.get(record.entry.run_id)
        if run is not None and effects.release:
            run.state.owner = None
        await super().append(record, effects)


class LetsASecondAnswerWin(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self._late: dict[tuple[str, str], bytes] = {}

    async def send(self, run_id: str, key: str, body: bytes, *, fence: int | None = None) -> bool:
        if not await super().send(run_id, key, body, fence=fence):
            self._late[run_id, key] = body
        return True

    async def pending_signals(self, run_id: str) -> list[SignalRow]:
        pending = await super().pending_signals(run_id)
        return [SignalRow(signal.key, self._late.get((run_id, signal.key), signal.body)) for signal in pending]


class SendsForDriversOfThePast(MemoryStore):
    async def send(self, run_id: str, key: str, body: bytes, *, fence: int | None = None) -> bool:
        return await super().send(run_id, key, body)


class LosesOrder(MemoryStore):
    async def pending_signals(self, run_id: str) -> list[SignalRow]:
        return sorted(await super().pending_signals(run_id), key=lambda signal: signal.key)

    async def checkpoints(
        self,
        checkpoint_filter: CheckpointFilter = ANY_CHECKPOINT,
        *,
        before: Entry | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        page = await super().checkpoints(checkpoint_filter, before=before, limit=limit)
        return sorted(page, key=lambda entry: (entry.run_id, entry.number))


class MixesSignalsOfRuns(MemoryStore):
    async def send(self, run_id: str, key: str, body: bytes, *, fence: int | None = None) -> bool:
        return await super().send("any", key, body)

    async def pending_signals(self, run_id: str) -> list[SignalRow]:
        return await super().pending_signals("any")


class MixesRunsOfLikeNames(MemoryStore):
    async def write_log(self, run_id: str, place: int, key: str, body: bytes, **options: Any) -> bool:
        return await super().write_log(run_id.lower(), place, key, body)

    async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
        opened = await super().open(run_id, owner=owner, seconds=seconds)
        return changed(opened, log=(await super().open(run_id.lower())).log)


class TidiesBodies(MemoryStore):
    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        tidy = json.dumps(json.loads(record.body), sort_keys=True).encode()
        await super().append(Record(record.entry, tidy), effects)


class ReadsOverGaps(MemoryStore):
    async def read(self, run_id: str, number: int | None = None) -> list[Record]:
        try:
            return await super().read(run_id, number)
        except CheckpointCorrupt:
            return await self.history(run_id, upto=number)


class OpensInSteps(MemoryStore):
    """Reads the records first and the rest a moment later."""

    async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
        records = await self.read(run_id)
        await asyncio.sleep(0)  # and meanwhile somebody may write
        await asyncio.sleep(0)
        return changed(await super().open(run_id, owner=owner, seconds=seconds), records=records)


class OpensForEverybody(MemoryStore):
    async def open(self, run_id: str, *, owner: Owner | None = None, seconds: float = 0.0) -> OpenedRun:
        try:
            return await super().open(run_id, owner=owner, seconds=seconds)
        except RunBusy:
            return await super().open(run_id)


class TakesWhatOthersAreBasedOn(MemoryStore):
    async def rewrite(
        self,
        run_id: str,
        *,
        insert: Record | None = None,
        replace: Sequence[Record] = (),
        remove: Sequence[int] = (),
        effects: CommitEffects | None = None,
    ) -> int:
        records = self._runs[run_id].records if run_id in self._runs else {}
        going = [number for number in remove if records.pop(number, None) is not None]
        return await super().rewrite(run_id, insert=insert, replace=replace, effects=effects) + len(going)


class RenewsWhenAskedToLook(MemoryStore):
    def renew(self, fences: Any, *, seconds: float | None) -> Any:
        return super().renew(fences, seconds=60 if seconds is None else seconds)


class LosesThePlaceOfAPage(MemoryStore):
    """The next page begins with the next run, though others of the last one are left."""

    async def requests(
        self,
        request_filter: RequestFilter = ANY_REQUEST,
        *,
        past: RequestEntry | None = None,
        limit: int | None = None,
    ) -> list[RequestEntry]:
        every = await super().requests(request_filter)
        later = [each for each in every if past is None or (each.at, each.run_id) > (past.at, past.run_id)]
        return later[:limit]


class LooksForPatterns(MemoryStore):
    """As a database does that is asked with LIKE."""

    async def runs(
        self, run_filter: RunFilter = TOP_RUNS, *, past: RunEntry | None = None, limit: int | None = None
    ) -> list[RunEntry]:
        every = await super().runs(changed(run_filter, prefix=None, text=None), past=past)
        start, part = run_filter.prefix or "", run_filter.text or ""
        texts = [(run, (run.run_id, run.workflow, *chain.from_iterable(run.metadata.tags.items()))) for run in every]
        kept = [run for run, searched in texts if any(like(f"%{part}%", text) for text in searched)]
        return [run for run in kept if like(f"{start}%", run.run_id)][:limit]


def like(pattern: str, text: str) -> bool:
    """Whether a text is of a pattern of SQL, in which `%` is anything and `_` any character."""
    parts = [{"%": ".*", "_": "."}.get(c, re.escape(c)) for c in pattern]
    return re.fullmatch("".join(parts), text, re.IGNORECASE | re.DOTALL) is not None


class LetsEverybodyDrive(MemoryStore):
    async def acquire(self, run_id: str, owner: Owner, *, seconds: float) -> int:
        return 1


class TrustsItsCache(WrappedStore):
    """One opening of a store: it looks up where a run is once, and counts by itself from then on."""

    def __init__(self, shared: MemoryStore) -> None:
        super().__init__(shared)
        self._latest: dict[str, int] = {}

    async def read(self, run_id: str, number: int | None = None) -> list[Record]:
        records = await super().read(run_id, number)
        self._latest.setdefault(run_id, records[-1].entry.number if records else -1)
        return records

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        run_id, number = record.entry.run_id, record.entry.number
        await self.read(run_id)
        if number != self._latest[run_id] + 1:
            raise CommitConflict(f"run {run_id!r} is not there")
        await self.rewrite(run_id, insert=record, effects=effects)
        self._latest[run_id] = number


class WritesMessagesBeforeItAppends(MemoryStore):
    """A refused append has announced its requests."""

    async def append(self, record: Record, effects: CommitEffects = NO_EFFECTS) -> None:
        if effects.asked and record.entry.number <= await self._next_number(record.entry.run_id):
            early = LogEffects(asked=effects.asked)
            await self.write_log(record.entry.run_id, record.entry.number, "early", b"{}", effects=early)
        await super().append(record, effects)

    async def _next_number(self, run_id: str) -> int:
        run = await self.run(run_id)
        return -1 if run is None else run.number + 1


class ForgetsMessagesThatWereRead(MemoryStore):
    async def outbox(self, webhook_id: str, *, due_by: str | None = None, limit: int | None = None) -> list[OutboxRow]:
        rows = await super().outbox(webhook_id, due_by=due_by, limit=limit)
        for row in rows:
            await self.settle(row)
        return rows


class SendsAllAtOnce(MemoryStore):
    """Every message is due, also those whose run has an earlier one."""

    async def outbox(self, webhook_id: str, *, due_by: str | None = None, limit: int | None = None) -> list[OutboxRow]:
        rows = await super().outbox(webhook_id)
        due = [row for row in rows if due_by is None or (row.due is not None and row.due <= due_by)]
        return due[:limit]


class LooksAtOldMessages(MemoryStore):
    """A message is seen later than its commit."""

    _before: Sequence[OutboxRow] = ()

    async def outbox(self, webhook_id: str, *, due_by: str | None = None, limit: int | None = None) -> list[OutboxRow]:
        before, self._before = self._before, await super().outbox(webhook_id, due_by=due_by, limit=limit)
        return list(before)
