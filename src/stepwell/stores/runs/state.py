"""The lines that change a run, and what they add up to.

`Body` stands for where a store has put a body: its place in a file, or the bytes themselves.
"""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

import msgspec

from stepwell.storage.ids import says_its_location
from stepwell.storage.lease import Owner
from stepwell.storage.outbox import Attempt, OutboxRow
from stepwell.storage.stored_values import Entry, RequestEntry, RunMetadata, ready_from

Body = TypeVar("Body")
Size = Annotated[int, msgspec.Meta(ge=0)]


class Line(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="line"):
    """What all lines have: how they are written in a file."""

    joined: bool = False  # written at once with the line before it
    size: Size = 0  # of the body
    crc: int = 0


class CommitLine(Line, kw_only=True, tag="commit"):
    """A record and its effects. The body is that of the record."""

    entry: Entry
    drop_log_through: int | None = None
    drop_log_above: int | None = None
    consumed: tuple[str, ...] = ()
    clears_requests: bool = False
    closed: tuple[str, ...] = ()
    asked: tuple[RequestEntry, ...] = ()
    wake: str | None = None
    metadata: RunMetadata | None = None
    release: bool = False
    outbox: tuple[OutboxRow, ...] = ()


class LogWrite(Line, kw_only=True, tag="log"):
    """An entry of the superstep log."""

    place: int
    key: str
    asked: tuple[RequestEntry, ...] = ()
    closed: tuple[str, ...] = ()
    consumed: tuple[str, ...] = ()
    outbox: tuple[OutboxRow, ...] = ()


class Signal(Line, kw_only=True, tag="signal"):
    """A signal that was sent."""

    key: str


class Acquire(Line, kw_only=True, tag="lease"):
    """A lease that was given. The body is the time when it ends; blank if it was released.

    It is overwritten when the lease is renewed, and has no checksum.
    """

    owner: Owner
    fence: int
    takeovers: int = 0


class Settle(Line, kw_only=True, tag="settle"):
    """What became of a message: it was delivered, or the attempt failed."""

    webhook: str
    position: int
    attempt: Attempt | None = None


class State(Line, Generic[Body], kw_only=True, tag="state"):
    """What the lines before this one add up to, except for the records."""

    workflow: str = ""
    began: str = ""
    metadata: RunMetadata = RunMetadata()
    newest: Entry | None = None
    last_at: str = ""  # the latest time of a record; clocks may go back
    snapshot: Size = 0  # offset of the newest snapshot in the file
    outputs: int = 0  # how many records have outputs
    odd_ids: bool = False  # there are checkpoint ids that do not say their place
    requests: dict[str, RequestEntry] = {}  # open ones, in the order of asking
    wake: str | None = None
    log: dict[int, dict[str, Body]] = {}  # by place and key
    signals: dict[str, Body] = {}  # pending, by key, oldest first
    used_keys: set[str] = set()  # every key ever used; consumed ones are tombstones
    owner: Owner | None = None  # who holds the lease
    until: Body | None = None  # when the lease ends
    fence: int = 0  # of the last lease; it outlives the lease, because fences must keep rising
    takeovers: int = 0  # of leases that were not released, since the newest record
    outbox: list[OutboxRow] = []  # messages that are not delivered yet
    outbox_end: int = 0  # the position of the next one
    dead: list[Body] = []  # bodies that are not needed any more and may not be blank yet

    def apply(self, line: Line, body: Body, offset: int = 0) -> None:
        """Change the state as a line at that offset says."""
        match line:
            case CommitLine():
                self._add_record(line.entry, offset)
                self.apply_effects(line)
            case LogWrite():
                self.log.setdefault(line.place, {})[line.key] = body
                self._change_requests(line)
            case Signal():
                self.used_keys.add(line.key)
                self.signals[line.key] = body
            case Acquire():
                self.owner, self.until, self.fence = line.owner, body, line.fence
                self.takeovers = line.takeovers
            case Settle():
                self._settle(line)

    def _settle(self, line: Settle) -> None:
        kept: list[OutboxRow] = []
        for row in self.outbox:
            if (row.webhook, row.position) != (line.webhook, line.position):
                kept.append(row)
            elif line.attempt is not None:
                kept.append(msgspec.structs.replace(row, **msgspec.structs.asdict(line.attempt)))
        self.outbox = kept

    def _add_record(self, entry: Entry, offset: int) -> None:
        if self.newest is None:
            self.workflow, self.began = entry.workflow, entry.at
        if entry.is_snapshot:
            self.snapshot = offset
        self.newest, self.takeovers = entry, 0
        self.last_at = max(self.last_at, entry.at)
        self.outputs += entry.outputs
        self.odd_ids = self.odd_ids or not says_its_location(entry)

    def apply_effects(self, line: CommitLine) -> None:
        """Apply what a commit does beside its record."""
        through, above = line.drop_log_through, line.drop_log_above
        for place in list(self.log):
            if (through is not None and place <= through) or (above is not None and place > above):
                self.dead += self.log.pop(place).values()
        if line.metadata is not None:
            self.metadata = line.metadata
        if line.clears_requests:
            self.requests.clear()
        self._change_requests(line)
        self.wake = line.wake if line.clears_requests else ready_from(self.wake, line.wake, line.entry.at)
        if line.release:
            self.owner = self.until = None

    def _change_requests(self, line: CommitLine | LogWrite) -> None:
        """Consume signals, close requests and open others, and add messages to the outbox."""
        if line.outbox:
            self.outbox = [*self.outbox, *line.outbox]
            self.outbox_end = line.outbox[-1].position + 1
        if line.consumed:
            self.used_keys.update(line.consumed)
            self.dead += [self.signals.pop(key) for key in line.consumed if key in self.signals]
        if line.closed or line.asked:
            for request_id in (*line.closed, *(request.request_id for request in line.asked)):
                self.requests.pop(request_id, None)  # one that is asked again moves to the end
            self.requests |= {request.request_id: request for request in line.asked}

    @property
    def latest(self) -> int:
        """The number of the newest record, -1 if there is none."""
        return -1 if self.newest is None else self.newest.number

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that the fence of a lease could protect."""
        return self.newest is None and not (self.log or self.used_keys)
