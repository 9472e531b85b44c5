"""The records of a store in memory, indexed by run, workflow, id and order of commits."""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from stepwell.errors import CommitConflict
from stepwell.storage.port import Entry, Record, RunEntry, RunMetadata

_NO_METADATA = RunMetadata()


class CommitOrder:
    """Entries in the order in which they were committed: a later one has a higher turn.

    Turns only rise, so the list of them stays sorted by appending, and a page is a slice.
    """

    __slots__ = ("_entries", "_turns")

    def __init__(self) -> None:
        self._turns: list[int] = []
        self._entries: dict[int, Entry] = {}

    def put(self, turn: int, entry: Entry) -> None:
        """Replace the entry of that turn, or append it as the last."""
        if turn not in self._entries:
            self._turns.append(turn)
        self._entries[turn] = entry

    def remove(self, turn: int) -> None:
        del self._entries[turn], self._turns[bisect_left(self._turns, turn)]

    def page(self, before: int | None, limit: int | None) -> list[Entry]:
        """Return the last `limit` entries before that turn."""
        end = len(self._turns) if before is None else bisect_left(self._turns, before)
        start = 0 if limit is None else max(0, end - limit)
        return [self._entries[turn] for turn in self._turns[start:end]]


@dataclass(slots=True)
class MemoryRun:
    """The records of a run, and what is known of the run besides them."""

    run_id: str
    workflow: str
    began: str
    metadata: RunMetadata = _NO_METADATA
    records: dict[int, Record] = field(default_factory=dict)
    turns: dict[int, int] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)  # of the records, lowest first
    order: CommitOrder = field(default_factory=CommitOrder)

    @property
    def latest(self) -> int:
        """The highest number, -1 if there is none."""
        return self.numbers[-1] if self.numbers else -1

    @property
    def newest(self) -> Entry:
        return self.records[self.numbers[-1]].entry

    def run_entry(self) -> RunEntry:
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


class MemoryRecords:
    """All records of a store. The caller holds the lock of the store."""

    def __init__(self) -> None:
        self.runs: dict[str, MemoryRun] = {}
        self._turns = itertools.count()
        self._order = CommitOrder()  # of all runs
        self._by_workflow: dict[str, CommitOrder] = {}
        self._by_id: dict[str, dict[int, Entry]] = {}
        self._by_age: list[tuple[str, str]] = []  # when each run began, and its id; sorted

    def add(self, record: Record) -> MemoryRun:
        """Store a record as the last one committed, replacing one of the same number."""
        entry = record.entry
        run = self.runs.get(entry.run_id)
        if run is None:
            run = self.runs[entry.run_id] = MemoryRun(entry.run_id, entry.workflow, entry.at)
            insort(self._by_age, (entry.at, entry.run_id))
        refuse_another_workflow(run, entry)
        if entry.number in run.records:
            self._take_out(run, entry.number)
        insort(run.numbers, entry.number)
        self._set(run, record, next(self._turns))
        return run

    def replace(self, record: Record) -> None:
        """Replace the record of the same number without moving it in the order of commits."""
        run, number = self.runs[record.entry.run_id], record.entry.number
        refuse_another_workflow(run, record.entry)
        turn = run.turns[number]
        self._forget_id(run.records[number].entry, turn)
        self._set(run, record, turn)

    def remove(self, run: MemoryRun, number: int) -> None:
        """Remove a record, and with the last one the run."""
        self._take_out(run, number)
        if not run.records:
            del self.runs[run.run_id], self._by_age[bisect_left(self._by_age, (run.began, run.run_id))]

    def drop(self, run: MemoryRun) -> None:
        for number in list(run.numbers):
            self.remove(run, number)

    def drop_below(self, run: MemoryRun, number: int) -> None:
        """Remove the records before that number, except those with outputs."""
        older = run.numbers[: bisect_left(run.numbers, number)]
        for each in [n for n in older if not run.records[n].entry.outputs]:
            self._take_out(run, each)

    def find_checkpoint(self, checkpoint_id: str) -> tuple[int, Entry] | None:
        """Return the checkpoint with that id, the last committed one, and its turn."""
        return max(self._by_id.get(checkpoint_id, {}).items(), key=lambda each: each[0], default=None)

    def find_by_prefix(self, prefix: str) -> list[Entry]:
        """Return the entries whose checkpoint id starts with `prefix`, in the order of the ids."""
        ids = sorted(id for id in self._by_id if id.startswith(prefix))
        return [entry for id in ids for _, entry in sorted(self._by_id[id].items())]

    def order_of(self, workflow: str | None, run_id: str | None) -> CommitOrder:
        """Return the entries that match, in the order of their commits."""
        if run_id is None:
            return self._order if workflow is None else self._by_workflow.get(workflow, CommitOrder())
        run = self.runs.get(run_id)
        return run.order if run is not None and workflow in (None, run.workflow) else CommitOrder()

    def from_the_youngest(self, past: RunEntry | None) -> Iterator[MemoryRun]:
        """Yield the runs that began before `past`, latest start first."""
        end = len(self._by_age) if past is None else bisect_left(self._by_age, (past.began, past.run_id))
        for n in reversed(range(end)):
            yield self.runs[self._by_age[n][1]]

    def _set(self, run: MemoryRun, record: Record, turn: int) -> None:
        entry = record.entry
        run.records[entry.number], run.turns[entry.number] = record, turn
        run.order.put(turn, entry)
        self._order.put(turn, entry)
        self._by_workflow.setdefault(entry.workflow, CommitOrder()).put(turn, entry)
        self._by_id.setdefault(entry.checkpoint_id, {})[turn] = entry

    def _take_out(self, run: MemoryRun, number: int) -> None:
        entry, turn = run.records.pop(number).entry, run.turns.pop(number)
        for order in (run.order, self._order, self._by_workflow[entry.workflow]):
            order.remove(turn)
        self._forget_id(entry, turn)
        del run.numbers[bisect_left(run.numbers, number)]

    def _forget_id(self, entry: Entry, turn: int) -> None:
        del self._by_id[entry.checkpoint_id][turn]
        if not self._by_id[entry.checkpoint_id]:
            del self._by_id[entry.checkpoint_id]


def refuse_another_workflow(run: MemoryRun, entry: Entry) -> None:
    if run.workflow != entry.workflow:
        raise CommitConflict(
            f"run {entry.run_id!r} belongs to workflow {run.workflow!r} and cannot continue as a run of "
            f"{entry.workflow!r}; give the new run another id"
        )
