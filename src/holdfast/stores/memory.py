"""A store that lives and dies with its process: for tests, for trying things out, for runs worth nothing later."""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from dataclasses import dataclass, field

from ..core.errors import CheckpointCorrupt, CommitConflict
from ..durable import clock
from ..durable.ownership import Lease, Owner
from ..durable.ports import NOTHING_ALONG, Along, Entry, Pending, Record, Wake, needs_follower
from ..durable.seal import Seal
from ..durable.storage import BuiltInStorage

Entries = dict[tuple[str, int], Entry]  # by run and number, in the order they were committed


@dataclass(slots=True)
class _Run:
    workflow: str
    records: dict[int, Record] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)  # of the records, lowest first

    @property
    def latest(self) -> int:
        """The highest number, -1 for none."""
        return self.numbers[-1] if self.numbers else -1


@dataclass(slots=True)
class _Mail:
    waiting: dict[str, bytes] = field(default_factory=dict)  # by key, oldest first
    used: set[str] = field(default_factory=set)  # every key there ever was


class MemoryStore:
    """Keeps everything in dictionaries. Keeps every promise of `Store` except that of outliving the process."""

    unbroken = True  # a write that was begun is finished, also if whoever waits for it is cancelled

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        self._entries: Entries = {}
        self._by_workflow: dict[str, Entries] = {}
        self._by_run: dict[str, Entries] = {}
        self._by_id: dict[str, Entries] = {}
        self._memory: dict[str, dict[int, dict[str, bytes]]] = {}
        self._mail: dict[str, _Mail] = {}
        self._questions: dict[str, dict[str, Pending]] = {}
        self._wakes: dict[str, Wake] = {}
        self._leases: dict[str, Lease] = {}

    async def append(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        entry = record.entry
        with self._lock:
            run = self._runs.get(entry.run_id)
            latest = run.latest if run else -1
            if entry.number != latest + 1:
                raise CommitConflict(
                    f"run {entry.run_id!r} is at commit {latest}, so commit {entry.number} cannot be added: "
                    f"another process has moved the run; stop driving it here"
                )
            self._add(record)
            self._settle(entry.run_id, along)
            for request_id in along.closed:
                self._questions.get(entry.run_id, {}).pop(request_id, None)
            self._open(entry, along)

    async def put(self, record: Record, along: Along = NOTHING_ALONG) -> None:
        entry = record.entry
        with self._lock:
            self._add(record)
            self._settle(entry.run_id, along)
            if entry.number == self._runs[entry.run_id].latest:
                self._questions.pop(entry.run_id, None)
                self._open(entry, along)

    async def remove(
        self, run_id: str, number: int, *, follower: Record | None = None, asked: tuple[Pending, ...] = ()
    ) -> bool:
        with self._lock:
            if (run_id, number) not in self._entries:
                return False
            removed, was_newest = self._entries[run_id, number], number == self._runs[run_id].latest
            after = self._entries.get((run_id, number + 1))
            if after is not None and follower is None and not after.frame:
                raise needs_follower(run_id, number)
            if after is not None and follower is not None:
                self._replace(follower)
            self._take_out(run_id, number)
            if not self._runs[run_id].records:
                del self._runs[run_id], self._by_run[run_id]
                for beside in (self._memory, self._mail, self._questions, self._wakes):
                    beside.pop(run_id, None)
                return True
            self._forget_after(run_id, self._runs[run_id].latest)
            if was_newest:
                self._questions.pop(run_id, None)
                self._open(removed, Along(asked=asked))
            return True

    async def head(self, run_id: str) -> Record | None:
        with self._lock:
            run = self._runs.get(run_id)
            return run.records[run.latest] if run else None

    async def chain(self, run_id: str, number: int) -> list[Record]:
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or number not in run.records:
                return []
            links = [run.records[number]]
            while not links[-1].entry.frame:
                before = run.records.get(links[-1].entry.number - 1)
                if before is None:
                    raise CheckpointCorrupt(
                        f"commit {links[-1].entry.number} of run {run_id!r} cannot be read: it tells only what "
                        f"changed since commit {links[-1].entry.number - 1}, which is not stored"
                    )
                links.append(before)
            return links[::-1]

    async def history(
        self, run_id: str, *, after: int = -1, upto: int | None = None, outputs_only: bool = False
    ) -> list[Record]:
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return []
            end = len(run.numbers) if upto is None else bisect_right(run.numbers, upto)
            found = [run.records[number] for number in run.numbers[bisect_right(run.numbers, after) : end]]
            return [record for record in found if record.entry.outputs or not outputs_only]

    async def locate(self, checkpoint_id: str) -> Entry | None:
        with self._lock:
            return next(reversed(self._by_id.get(checkpoint_id, {}).values()), None)

    async def entries(self, *, workflow: str | None = None, run_id: str | None = None) -> list[Entry]:
        with self._lock:
            return list(self._matching(workflow, run_id).values())

    async def newest(self, *, workflow: str | None = None, run_id: str | None = None) -> Entry | None:
        with self._lock:
            return next(reversed(self._matching(workflow, run_id).values()), None)

    async def remember(self, run_id: str, place: int, key: str, body: bytes) -> bool:
        with self._lock:
            kept = self._memory.setdefault(run_id, {}).setdefault(place, {})
            if key in kept:
                return False
            kept[key] = body
            return True

    async def recall(self, run_id: str, place: int) -> dict[str, bytes]:
        with self._lock:
            return dict(self._memory.get(run_id, {}).get(place, {}))

    async def post(self, run_id: str, key: str, body: bytes) -> bool:
        with self._lock:
            mail = self._mail.setdefault(run_id, _Mail())
            if key in mail.used:
                return False
            mail.used.add(key)
            mail.waiting[key] = body
            return True

    async def mail(self, run_id: str) -> list[tuple[str, bytes]]:
        with self._lock:
            return list(self._mail[run_id].waiting.items()) if run_id in self._mail else []

    def mailed(self, run_ids: list[str]) -> list[str]:
        with self._lock:
            return [run_id for run_id in run_ids if run_id in self._mail and self._mail[run_id].waiting]

    async def pending(self, *, workflow: str | None = None, run_id: str | None = None) -> list[Pending]:
        with self._lock:
            found = [question for questions in self._questions.values() for question in questions.values()]
        matching = [p for p in found if workflow in (None, p.workflow) and run_id in (None, p.run_id)]
        return sorted(matching, key=lambda p: (p.at, p.run_id))

    async def wakes(self, *, before: str | None = None, workflow: str | None = None) -> list[Wake]:
        with self._lock:
            found = list(self._wakes.values())
        due = [wake for wake in found if workflow in (None, wake.workflow) and (before is None or wake.at <= before)]
        return sorted(due, key=lambda wake: (wake.at, wake.run_id))

    async def claim(self, run_id: str, owner: Owner, *, seconds: float) -> None:
        with self._lock:
            lease = self._leases.get(run_id)
            if lease is not None and lease.owner != owner and not lease.is_over():
                raise lease.refuse(run_id)
            self._leases[run_id] = Lease(owner, clock.seconds() + seconds)

    def renew(self, run_ids: list[str], owner: Owner, *, seconds: float) -> None:
        with self._lock:
            for run_id in run_ids:
                lease = self._leases.get(run_id)
                if lease is not None and lease.owner == owner:
                    self._leases[run_id] = Lease(owner, clock.seconds() + seconds)

    async def release(self, run_id: str, owner: Owner) -> None:
        with self._lock:
            lease = self._leases.get(run_id)
            if lease is not None and lease.owner == owner:
                del self._leases[run_id]

    async def close(self) -> None:
        """Nothing to give back; what is stored stays as long as this object."""

    def _add(self, record: Record) -> None:
        """Store a record as the last one committed, in place of one of the same number."""
        entry = record.entry
        run = self._runs.get(entry.run_id)
        if run is not None and run.workflow != entry.workflow:
            raise CommitConflict(
                f"run {entry.run_id!r} belongs to workflow {run.workflow!r} and cannot go on as one of "
                f"{entry.workflow!r}; give the new run another id"
            )
        if run is None:
            run = self._runs[entry.run_id] = _Run(entry.workflow)
        elif entry.number in run.records:
            self._take_out(entry.run_id, entry.number)
        run.records[entry.number] = record
        insort(run.numbers, entry.number)
        for entries in self._indexes(entry):
            entries[entry.run_id, entry.number] = entry

    def _settle(self, run_id: str, along: Along) -> None:
        """Forget the memory and consume the mail that led to a record."""
        if along.settled is not None:
            places = self._memory.get(run_id, {})
            for place in [p for p in places if p <= along.settled]:
                del places[place]
        for key in along.consumed:
            mail = self._mail.setdefault(run_id, _Mail())
            mail.used.add(key)
            mail.waiting.pop(key, None)

    def _open(self, entry: Entry, along: Along) -> None:
        """Open the questions that came with a record, and set the alarm or take it away."""
        questions = self._questions.setdefault(entry.run_id, {})
        for question in along.asked:
            questions.pop(question.request_id, None)  # asked again, it is the last one asked
            questions[question.request_id] = question
        self._wakes.pop(entry.run_id, None)
        if along.wake is not None:
            self._wakes[entry.run_id] = Wake(entry.run_id, entry.workflow, along.wake)

    def _replace(self, record: Record) -> None:
        """Store a record where the one of its number stands, without moving it in the order of commits."""
        entry = record.entry
        place = (entry.run_id, entry.number)
        old = self._entries.get(place)
        if old is None or old.workflow != entry.workflow:
            self._add(record)
            return
        self._by_id[old.checkpoint_id].pop(place)
        self._runs[entry.run_id].records[entry.number] = record
        for entries in self._indexes(entry):
            entries[place] = entry

    def _take_out(self, run_id: str, number: int) -> None:
        run = self._runs[run_id]
        entry = run.records.pop(number).entry
        for entries in self._indexes(entry):
            del entries[run_id, number]
        if not self._by_id[entry.checkpoint_id]:
            del self._by_id[entry.checkpoint_id]
        run.numbers.remove(number)

    def _indexes(self, entry: Entry) -> tuple[Entries, ...]:
        """Every dictionary in which the entry is to be found."""
        return (
            self._entries,
            self._by_workflow.setdefault(entry.workflow, {}),
            self._by_run.setdefault(entry.run_id, {}),
            self._by_id.setdefault(entry.checkpoint_id, {}),
        )

    def _forget_after(self, run_id: str, place: int) -> None:
        places = self._memory.get(run_id, {})
        for stale in [one for one in places if one > place]:
            del places[stale]

    def _matching(self, workflow: str | None, run_id: str | None) -> Entries:
        if run_id is None:
            return self._entries if workflow is None else self._by_workflow.get(workflow, {})
        run = self._runs.get(run_id)
        return self._by_run[run_id] if run is not None and workflow in (None, run.workflow) else {}


class InMemoryCheckpointStorage(BuiltInStorage):
    """Runs kept in this process, for tests and short-lived programs; gone with it."""

    def __init__(self, *, seal: Seal | None = None) -> None:
        super().__init__(MemoryStore(), seal=seal)
