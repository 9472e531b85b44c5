"""The last frame of a run and what was written since: what has to be read to know where the run is."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.model.superstep import Checkpoint
from stepwell.storage.json_text import size_of
from stepwell.storage.kept_outputs import outputs_alone
from stepwell.storage.port import Record

FRAME_EVERY = 64  # records: so often it is asked whether a frame is worth it
_RECORD = 512  # to read a record takes as long as to read so many bytes more
_WASTE = 1  # times a state: so much may be read in vain to know it; less costs more room for frames


class Chain:
    """The chain of one run, as far as its driver has read or written it."""

    def __init__(self) -> None:
        self._bytes = self._records = 0
        self._first_frame: int | None = None
        self._last_frame = 0
        self._outputs: dict[int, Record] = {}  # by number: what is to be kept of records that say more

    def read(self, records: Sequence[Record]) -> None:
        for one in records:
            self.add(one)

    def add(self, record: Record) -> None:
        if record.entry.frame:
            self._bytes = self._records = 0
            if self._first_frame is None:
                self._first_frame = record.entry.number
            self._last_frame = record.entry.number
        if record.entry.fleeting and record.entry.outputs:
            self._outputs[record.entry.number] = outputs_alone(record)
        self._bytes += len(record.body)
        self._records += 1

    def wants_frame(self, after: Checkpoint) -> bool:
        """Whether so much would be read in vain that it is better to say everything again.

        What was written since the last frame and still holds is not in vain: a large value that never changes is
        written once, a list that only grows a few times, a small state every so often.
        """
        if self._records == 0:
            return True
        if self._records % FRAME_EVERY:
            return False
        parcels = (*after.state.values(), *after.executors.values())
        state = sum(size_of(parcel) for parcel in parcels)
        return self._bytes - state + self._records * _RECORD >= state * _WASTE

    def unneeded_below(self, frame: int, needed: int | None) -> int | None:
        """Before which number nothing is needed once `frame` is written, if only the latest is, and `needed`."""
        if needed is None:
            return frame
        first = self._first_frame
        return first if first is not None and first <= needed else None

    def kept_below(self, number: int | None) -> tuple[Record, ...]:
        """Return what is to be kept of the records before a number: their outputs alone."""
        return () if number is None else tuple(one for n, one in self._outputs.items() if n < number)

    def dropped_below(self, number: int | None) -> None:
        """Note that of the records before a number only outputs are stored."""
        for one in self.kept_below(number):
            del self._outputs[one.entry.number]

    def found(self, records: Sequence[Record]) -> None:
        """Note records with outputs that say more than these although a frame came after them: a process that was
        killed left them so."""
        for one in records:
            if one.entry.fleeting and one.entry.number < self._last_frame:
                kept = outputs_alone(one)
                if kept != one:
                    self._outputs[one.entry.number] = kept
