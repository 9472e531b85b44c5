"""The lines of a run's file: what they say, how they are written, and how damage is recognised.

A line is a JSON object. If it has a body, the body is the line after it:

    {"line":"commit","sum":"1f0a33c2","size":512,"crc":3735928559,"entry":{"number":4,...
    {"format":1,"kind":"superstep",...

`sum` is a checksum of the line, of its offset and of the run; `crc` is one of the body. They are
separate because the body of a line that is no longer needed is overwritten with blanks.

Every write is synced before the next one. So after a crash only the last write can be incomplete: it
is cut off, and nobody misses it, because it was never acknowledged. All other damage is an error.
"""

from __future__ import annotations

import mmap
from functools import lru_cache
from typing import Annotated, NamedTuple
from zlib import crc32

import msgspec

from stepwell.storage.ids import says_its_place
from stepwell.storage.lease import Owner
from stepwell.storage.stored_values import Entry, RequestEntry, RunEntry, RunMetadata

FORMAT = 1
NO_METADATA = RunMetadata()
_NO_SUM = "00000000"
_SUM = b'"sum":"'
_STATE = b'\n{"line":"state",'  # no body contains a raw newline

Data = bytes | mmap.mmap
Size = Annotated[int, msgspec.Meta(ge=0)]


class Body(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a body is in the file."""

    offset: Size
    size: Size
    crc: int


class Line(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="line"):
    """What all lines have."""

    sum: str = ""
    # The line before it was not known to be synced when this one was written: it is of the same
    # write, or only gave somebody the lease.
    joined: bool = False
    size: Size = 0  # of the body
    crc: int = 0


class Header(Line, tag="run"):
    """The first line of every file."""

    format: int
    generation: str  # random: a file that was written anew is not taken for the one before
    run_id: str


class Commit(Line, tag="commit"):
    """A record and its effects. The body is that of the record."""

    entry: Entry
    drop_log_through: int | None = None
    consumed: tuple[str, ...] = ()
    clears_requests: bool = False
    closed: tuple[str, ...] = ()
    asked: tuple[RequestEntry, ...] = ()
    wake: str | None = None
    metadata: RunMetadata | None = None
    release: bool = False


class LogEntry(Line, tag="log"):
    """An entry of the superstep log."""

    place: int
    key: str


class Signal(Line, tag="signal"):
    """A signal that was sent."""

    key: str


class Acquire(Line, tag="lease"):
    """A lease that was given. The body is the time when it ends, blank if it was released.

    It is overwritten when the lease is renewed, and has no checksum.
    """

    owner: Owner
    fence: int


class State(Line, tag="state"):
    """What all lines before this one add up to, except the records."""

    workflow: str = ""
    began: str = ""
    metadata: RunMetadata = NO_METADATA
    newest: Entry | None = None
    last_at: str = ""  # the latest time of a record; clocks may go back
    snapshot: Size = 0  # offset of the newest snapshot
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
    dead: list[Body] = []  # bodies that are not needed any more and may not be blank yet

    def apply(self, placed: Placed) -> None:
        """Change the state as a line says."""
        line, body = placed.line, placed.body
        match line:
            case Commit():
                self.add_record(line.entry, placed.offset)
                self.apply_effects(line)
            case LogEntry():
                self.log.setdefault(line.place, {})[line.key] = body
            case Signal():
                self.used_keys.add(line.key)
                self.signals[line.key] = body
            case Acquire():
                self.owner, self.until, self.fence = line.owner, body, line.fence

    def add_record(self, entry: Entry, offset: int) -> None:
        """Note the newest record of the run, which is at that offset."""
        if self.newest is None:
            self.workflow, self.began = entry.workflow, entry.at
        if entry.is_snapshot:
            self.snapshot = offset
        self.newest = entry
        self.last_at = max(self.last_at, entry.at)
        self.outputs += entry.outputs
        self.odd_ids = self.odd_ids or not says_its_place(entry)

    def apply_effects(self, line: Commit) -> None:
        """Apply what a commit does beside its record."""
        if line.drop_log_through is not None:
            self.drop_log(through=line.drop_log_through)
        for key in line.consumed:
            self.used_keys.add(key)
            if key in self.signals:
                self.dead.append(self.signals.pop(key))
        if line.metadata is not None:
            self.metadata = line.metadata
        if line.clears_requests:
            self.requests.clear()
        for request_id in line.closed:
            self.requests.pop(request_id, None)
        for request in line.asked:
            self.requests.pop(request.request_id, None)  # one that is asked again moves to the end
            self.requests[request.request_id] = request
        self.wake = line.wake
        if line.release:
            self.owner = self.until = None

    def drop_log(self, *, through: int | None = None, above: int | None = None) -> None:
        """Drop the superstep log of the places up to `through`, or of those above `above`."""
        for place in list(self.log):
            if (through is not None and place <= through) or (above is not None and place > above):
                self.dead += self.log.pop(place).values()

    @property
    def run(self) -> RunEntry | None:
        """The run as it is listed; None if it has no records."""
        newest = self.newest
        if newest is None:
            return None
        return RunEntry(
            run_id=newest.run_id,
            workflow=self.workflow,
            status=newest.status,
            number=newest.number,
            checkpoint_id=newest.checkpoint_id,
            iteration=newest.iteration,
            at=newest.at,
            began=self.began,
            metadata=self.metadata,
        )


class Placed(NamedTuple):
    """A line and its place in the file."""

    line: Line
    offset: int
    end: int
    body: Body


# Created at import, before there are threads: msgspec inspects a class when it first meets it, and
# two threads that do so at the same time crash the interpreter.
_decode = msgspec.json.Decoder(Header | Commit | LogEntry | Signal | Acquire | State).decode
_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=1024)
def _seed(run_id: str) -> int:
    """Return what the checksums of a run's lines start with, so that no line fits into another run."""
    return crc32(run_id.encode())


def write_line(line: Line, body: bytes, offset: int, run_id: str) -> tuple[bytes, Placed]:
    """Return a line as it is written at that offset, and its place."""
    line.sum, line.size = _NO_SUM, len(body)
    line.crc = 0 if isinstance(line, Acquire) else crc32(body)
    head = _encode(line)
    at = head.index(_SUM) + len(_SUM)
    text = b"%b%08x%b\n" % (head[:at], crc32(head, _seed(run_id) ^ offset), head[at + 8 :])
    start = offset + len(text)
    if body:
        text += body + b"\n"
    return text, Placed(line, offset, offset + len(text), Body(start, len(body), line.crc))


def read_line(data: Data, offset: int, run_id: str) -> Placed | None:
    """Return the line at that offset; None if it is damaged. The body is not looked at."""
    start = data.find(b"\n", offset) + 1
    head = data[offset : start - 1]
    at = head.find(_SUM, 0, 32) + len(_SUM)
    blank = b"%b00000000%b" % (head[:at], head[at + 8 :])
    if start == 0 or head[at : at + 8] != b"%08x" % crc32(blank, _seed(run_id) ^ offset):
        return None
    try:
        line = _decode(head)
    except (msgspec.MsgspecError, RecursionError):  # the checksum is right: somebody made it
        return None
    end = start + line.size + 1 if line.size else start
    if data[end - 1 : end] != b"\n":
        return None
    return Placed(line, offset, end, Body(start, line.size, line.crc))


class Scan(NamedTuple):
    """The lines of a part of a file, and where damage begins in it."""

    lines: list[Placed]
    damages: list[int]


def scan(data: Data, start: int, stop: int, run_id: str) -> Scan:
    """Read the lines between two offsets. Damaged ones are passed over."""
    found = Scan([], [])
    offset, is_damaged = start, False
    while offset < stop:
        placed = read_line(data, offset, run_id)
        if placed is not None:
            found.lines.append(placed)
            offset, is_damaged = placed.end, False
            continue
        if not is_damaged:
            found.damages.append(offset)
        is_damaged = True
        offset = data.find(b"\n", offset, stop) + 1 or stop
    return found


def find_last_state(data: Data, run_id: str) -> Placed | None:
    """Return the last line of the file that holds the whole state, if there is one."""
    at = len(data)
    while (at := data.rfind(_STATE, 0, at)) >= 0:
        placed = read_line(data, at + 1, run_id)
        if placed is not None:
            return placed
    return None


def find_end(data: Data, found: Scan) -> int | None:
    """Return where the complete lines end: at the end of the file, or where a crash cut a write off.

    None if there is other damage.
    """
    last_write = next((n for n in reversed(range(len(found.lines))) if not found.lines[n].line.joined), 0)
    zeroed = [line.offset for line in found.lines[last_write:] if line.line.crc and b"\0" in _bytes(data, line.body)]
    damages = [*found.damages, *zeroed]
    if not damages:
        return len(data)
    offset = min(damages)
    rest = data[offset:]
    # What a crash leaves of a write is a part of it, or zeros in its place. A bad sum alone is not
    # the work of a crash, and a later write proves that this one was complete.
    is_cut_off = not rest.endswith(b"\n") or b"\0" in rest
    is_last = all(line.line.joined for line in found.lines if line.offset > offset)
    return offset if is_cut_off and is_last else None


def _bytes(data: Data, body: Body) -> bytes:
    return data[body.offset : body.offset + body.size]
