"""One run: what is known of it, and what a store implements to keep it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import Generic, NamedTuple

from stepwell.storage.lease import Lease
from stepwell.storage.stored_values import Entry, Record, RunEntry
from stepwell.stores.runs.state import Acquire, Body, CommitLine, Line, LogWrite, Signal, State

# What a run that is written anew keeps beside its records, log, signals and lease.
_COPIED = ("began", "metadata", "requests", "wake", "used_keys", "fence", "takeovers", "outbox", "outbox_end")


class StoredRecord(NamedTuple, Generic[Body]):
    """A record, and where its body is."""

    entry: Entry
    body: Body


class Run(ABC, Generic[Body]):
    """One run of a store."""

    run_id: str
    state: State[Body]
    records: dict[int, StoredRecord[Body]]  # those that are known; see `index`

    @abstractmethod
    def put(self, line: Line, body: bytes = b"") -> None:
        """Store a line, and change the state as it says."""

    @abstractmethod
    def read(self, body: Body) -> bytes:
        """Return a body as it is."""

    @abstractmethod
    def set_lease_text(self, text: bytes) -> None:
        """Overwrite the body of the lease that is held."""

    @abstractmethod
    def write_anew(self, records: Iterable[Record]) -> None:
        """Store these records and the state in place of everything that was stored before."""

    @abstractmethod
    def remove(self) -> None:
        """Delete everything: the run is gone."""

    # A store that knows all that is stored, and stores at once, need not implement these.

    def index(self, lowest: int = 0) -> None:
        """Make the records from that number on known."""

    def check_complete(self) -> None:
        """Raise CheckpointCorrupt if damage was noticed: what was not found may have been there."""

    def flush(self) -> None:
        """Write what was put."""

    def read_body(self, body: Body, what: str) -> bytes:
        """Return a body. Raises CheckpointCorrupt, naming `what`, if it is damaged."""
        return self.read(body)

    # ---------------------------------------------------------------- for all stores

    def find(self, number: int) -> StoredRecord[Body] | None:
        if number not in self.records:
            self.index(number)
        return self.records.get(number)

    def find_all(self) -> dict[int, StoredRecord[Body]]:
        """Return all records. Raises CheckpointCorrupt if some may be missing."""
        self.index()
        self.check_complete()
        return self.records

    def read_record(self, number: int) -> Record:
        stored = self.records[number]
        return Record(stored.entry, self.read_body(stored.body, f"commit {number}"))

    def read_lease(self) -> Lease | None:
        """Return the lease that is held, if there is one; it may be over."""
        if self.state.owner is not None and self.state.until is not None:
            with suppress(ValueError):  # it is blank, or was lost with the power
                return Lease(self.state.owner, float(self.read(self.state.until)))
        return None

    def listed(self) -> RunEntry | None:
        """Return the run as it is listed; None if it has no records."""
        state, newest = self.state, self.state.newest
        if newest is None:
            return None
        return RunEntry(
            run_id=newest.run_id,
            workflow=state.workflow,
            status=newest.status,
            number=newest.number,
            checkpoint_id=newest.checkpoint_id,
            iteration=newest.iteration,
            at=newest.at,
            began=state.began,
            metadata=state.metadata,
            wake=state.wake,
            signalled=bool(state.signals),
            lease=self.read_lease(),
        )

    def set_lease_end(self, until: float | None) -> None:
        """Renew the lease that is held, or release it."""
        self.set_lease_text(lease_text(until))
        if until is None:
            self.state.owner = self.state.until = None

    def apply(self, line: Line, body: Body, offset: int = 0) -> None:
        """Change what is known of the run as a line says."""
        if isinstance(line, State):
            self.state = line
        elif isinstance(line, CommitLine):
            self.records[line.entry.number] = StoredRecord(line.entry, body)
        self.state.apply(line, body, offset)

    def copy_to(self, fresh: Run[Body], records: Iterable[Record]) -> None:
        """Put these records, and all else that is stored of the run, into an empty one."""
        for record in records:
            fresh.put(CommitLine(entry=record.entry), record.body)
        for place, entries in self.state.log.items():
            for key, body in entries.items():
                fresh.put(LogWrite(place=place, key=key), self.read_body(body, f"log entry {key!r}"))
        for key, body in self.state.signals.items():
            fresh.put(Signal(key=key), self.read_body(body, f"signal {key!r}"))
        if (lease := self.read_lease()) is not None:
            line = Acquire(owner=lease.owner, fence=self.state.fence, takeovers=self.state.takeovers)
            fresh.put(line, lease_text(lease.until))
        for name in _COPIED:
            setattr(fresh.state, name, getattr(self.state, name))


def lease_text(until: float | None) -> bytes:
    """Return the end of a lease as it is stored, always of the same length; blank if it was released."""
    return b" " * 20 if until is None else b"%20.6f" % until
