"""The chain of a run: its last snapshot and the deltas since.

It decides when the next snapshot is due.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.model.checkpoint import Checkpoint
from stepwell.storage.json_text import size_of
from stepwell.storage.kept_outputs import outputs_alone
from stepwell.storage.stored_values import Record

# Records between two checks: measuring the state means visiting every value in it.
SNAPSHOT_EVERY = 64
# Bytes. Fetching one more record takes about as long as reading this much more of one.
_RECORD = 512
# How many times the size of the state may be read as superseded bytes. Less would mean more
# snapshots and larger stores, more would mean slower reads.
_WASTE = 1


class Chain:
    """The chain of one run, as far as its driver has read or written it."""

    def __init__(self) -> None:
        self._bytes = self._records = 0
        self._first_snapshot: int | None = None
        self._last_snapshot = 0
        # By number: what to keep of records that hold more than outputs.
        self._outputs: dict[int, Record] = {}

    def add_all(self, records: Sequence[Record]) -> None:
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        if record.entry.is_snapshot:
            self._bytes = self._records = 0
            if self._first_snapshot is None:
                self._first_snapshot = record.entry.number
            self._last_snapshot = record.entry.number
        if record.entry.latest_only and record.entry.outputs:
            self._outputs[record.entry.number] = outputs_alone(record)
        self._bytes += len(record.body)
        self._records += 1

    def wants_snapshot(self, after: Checkpoint) -> bool:
        """Return whether so much of the chain is superseded that a snapshot is worth it.

        Bytes of the chain that are still part of the state are not wasted. So a large value that
        never changes is written once, a list that only grows a few times, and a small state
        regularly.
        """
        # This driver has seen no record, so there is nothing to be a delta to.
        if self._records == 0:
            return True
        if self._records % SNAPSHOT_EVERY:
            return False
        payloads = (*after.state.values(), *after.executors.values())
        state = sum(size_of(payload) for payload in payloads)
        return self._bytes - state + self._records * _RECORD >= state * _WASTE

    def unneeded_below(self, snapshot: int, needed: int | None) -> int | None:
        """Return before which number no record is needed once `snapshot` is written.

        For a run that keeps only its latest checkpoint. `needed` is an older commit that its caller
        still refers to; then everything since the snapshot under that commit stays.
        """
        if needed is None:
            return snapshot
        first = self._first_snapshot
        return first if first is not None and first <= needed else None

    def outputs_below(self, number: int | None) -> tuple[Record, ...]:
        """Return the reduced forms of the records before a number: their outputs alone."""
        return () if number is None else tuple(record for n, record in self._outputs.items() if n < number)

    def drop_below(self, number: int | None) -> None:
        """Forget the records before a number: only their outputs are stored now."""
        for record in self.outputs_below(number):
            del self._outputs[record.entry.number]

    def note_outputs(self, records: Sequence[Record]) -> None:
        """Note records that should have been reduced when a later snapshot was written.

        A killed process left them whole; the next snapshot of this driver reduces them.
        """
        for record in records:
            if record.entry.latest_only and record.entry.number < self._last_snapshot:
                outputs = outputs_alone(record)
                if outputs != record:
                    self._outputs[record.entry.number] = outputs
