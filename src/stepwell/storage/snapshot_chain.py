"""The last frame of a run and what was written since: what has to be read to know where the run is."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.model.superstep import Checkpoint
from stepwell.storage.json_text import size_of
from stepwell.storage.kept_outputs import outputs_alone
from stepwell.storage.port import Record

SNAPSHOT_EVERY = 64  # records: so often it is asked whether a frame is worth it
_RECORD = 512  # to read a record takes as long as to read so many bytes more
_WASTE = 1  # times a state: so much may be read in vain to know it; less costs more room for frames


class Chain:
    """The chain of one run, as far as its driver has read or written it."""

    def __init__(self) -> None:
        self._bytes = self._records = 0
        self._first_snapshot: int | None = None
        self._last_snapshot = 0
        self._outputs: dict[int, Record] = {}  # by number: what is to be kept of records that say more

    def add_all(self, records: Sequence[Record]) -> None:
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        if record.entry.is_snapshot:
            self._bytes = self._records = 0
            if self._first_snapshot is None:
                self._first_snapshot = record.entry.number
            self._last_snapshot = record.entry.number
        if record.entry.fleeting and record.entry.outputs:
            self._outputs[record.entry.number] = outputs_alone(record)
        self._bytes += len(record.body)
        self._records += 1

    def wants_snapshot(self, after: Checkpoint) -> bool:
        """Whether so much would be read in vain that it is better to say everything again.

        What was written since the last frame and still holds is not in vain: a large value that never changes is
        written once, a list that only grows a few times, a small state every so often.
        """
        if self._records == 0:
            return True
        if self._records % SNAPSHOT_EVERY:
            return False
        payloads = (*after.state.values(), *after.executors.values())
        state = sum(size_of(payload) for payload in payloads)
        return self._bytes - state + self._records * _RECORD >= state * _WASTE

    def unneeded_below(self, snapshot: int, needed: int | None) -> int | None:
        """Before which number nothing is needed once `snapshot` is written, if only the latest is, and `needed`."""
        if needed is None:
            return snapshot
        first = self._first_snapshot
        return first if first is not None and first <= needed else None

    def outputs_below(self, number: int | None) -> tuple[Record, ...]:
        """Return what is to be kept of the records before a number: their outputs alone."""
        return () if number is None else tuple(record for n, record in self._outputs.items() if n < number)

    def drop_below(self, number: int | None) -> None:
        """Note that of the records before a number only outputs are stored."""
        for record in self.outputs_below(number):
            del self._outputs[record.entry.number]

    def note_outputs(self, records: Sequence[Record]) -> None:
        """Note records with outputs that say more than these although a frame came after them: a process that was
        killed left them so."""
        for record in records:
            if record.entry.fleeting and record.entry.number < self._last_snapshot:
                outputs = outputs_alone(record)
                if outputs != record:
                    self._outputs[record.entry.number] = outputs
