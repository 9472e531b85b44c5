"""The records of one run in memory, and what is known of the run besides them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stepwell.storage.conflicts import check_chain
from stepwell.storage.lease import Lease
from stepwell.storage.stored_values import Entry, LogRow, Record, RequestEntry, RunEntry, RunMetadata

_NO_METADATA = RunMetadata()


@dataclass(slots=True)
class MemoryRun:
    """A run. It may have a lease, a log or signals before its first record is stored."""

    run_id: str
    workflow: str = ""
    began: str = ""
    metadata: RunMetadata = _NO_METADATA
    records: dict[int, Record] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)  # of the records, lowest first
    log: dict[tuple[int, str], bytes] = field(default_factory=dict)  # by place and key
    signals: dict[str, bytes] = field(default_factory=dict)  # pending, by key, oldest first
    used_keys: set[str] = field(default_factory=set)  # every key ever used; consumed ones are tombstones
    requests: dict[str, RequestEntry] = field(default_factory=dict)  # open ones, in the order of asking
    wake: str | None = None
    lease: Lease | None = None
    fence: int = 0  # of the last lease; it outlives the lease, because fences must keep rising

    @property
    def latest(self) -> int:
        """The highest number, -1 if there is none."""
        return self.numbers[-1] if self.numbers else -1

    @property
    def newest(self) -> Entry:
        return self.records[self.numbers[-1]].entry

    @property
    def entry(self) -> RunEntry:
        newest = self.newest
        return RunEntry(
            run_id=self.run_id,
            workflow=self.workflow,
            status=newest.status,
            number=newest.number,
            checkpoint_id=newest.checkpoint_id,
            iteration=newest.iteration,
            at=newest.at,
            began=self.began,
            metadata=self.metadata,
        )

    def store(self, record: Record) -> None:
        """Store a record, replacing one of the same number."""
        number = record.entry.number
        if number not in self.records:
            self.numbers.insert(bisect_left(self.numbers, number), number)
        self.records[number] = record

    def remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            del self.records[number], self.numbers[bisect_left(self.numbers, number)]

    def read(self, number: int) -> list[Record]:
        """Return the last snapshot at or before `number` and every record up to it."""
        if number not in self.records:
            return []
        end = bisect_right(self.numbers, number)
        start = end - 1
        while start > 0 and not self.records[self.numbers[start]].entry.is_snapshot:
            start -= 1
        records = [self.records[n] for n in self.numbers[start:end]]
        check_chain(self.run_id, number, records)
        return records

    def between(self, after: int, upto: int | None) -> list[Record]:
        end = len(self.numbers) if upto is None else bisect_right(self.numbers, upto)
        return [self.records[number] for number in self.numbers[bisect_right(self.numbers, after) : end]]

    def log_rows(self) -> Sequence[LogRow]:
        return [LogRow(place, key, body) for (place, key), body in self.log.items()]

    def drop_log(self, *, through: int | None = None, above: int | None = None) -> None:
        """Drop the superstep log of the places up to `through`, or of those above `above`."""
        for place, key in list(self.log):
            if (through is not None and place <= through) or (above is not None and place > above):
                del self.log[place, key]
