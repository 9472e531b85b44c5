"""The lines of a run's file: what they say, how they are written, and what they add up to.

A line is a JSON object. If it has a body, the body is the line after it:

    {"line":"commit","size":512,"crc":3735928559,"entry":{"number":4,...},"sum":"1f0a33c2"}
    {"format":1,"kind":"superstep",...}

`sum` is a checksum of the line, of its offset and of the run; `crc` is one of the body. They are
separate because a body that is no longer needed is overwritten with blanks.

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

_SUM_SIZE = 19  # bytes, up to the end of the line
_START = b'{"line":"'
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

    joined: bool = False  # written at once with the line before it
    size: Size = 0  # of the body
    crc: int = 0


class HeaderLine(Line, kw_only=True, tag="run"):
    """The first line of every file."""

    generation: str  # random: a file that was written anew is not taken for the one before
    run_id: str


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


class LogWrite(Line, kw_only=True, tag="log"):
    """An entry of the superstep log."""

    place: int
    key: str


class Signal(Line, kw_only=True, tag="signal"):
    """A signal that was sent."""

    key: str


class Acquire(Line, kw_only=True, tag="lease"):
    """A lease that was given. The body is the time when it ends; blank if it was released.

    It is overwritten when the lease is renewed, and has no checksum.
    """

    owner: Owner
    fence: int


class Placed(NamedTuple):
    """A line and its place in the file."""

    line: Line
    offset: int
    end: int
    body: Body


class State(Line, kw_only=True, tag="state"):
    """What the lines before this one add up to, except for the records."""

    workflow: str = ""
    began: str = ""
    metadata: RunMetadata = RunMetadata()
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
            case CommitLine():
                self._add_record(line.entry, placed.offset)
                self.apply_effects(line)
            case LogWrite():
                self.log.setdefault(line.place, {})[line.key] = body
            case Signal():
                self.used_keys.add(line.key)
                self.signals[line.key] = body
            case Acquire():
                self.owner, self.until, self.fence = line.owner, body, line.fence

    def _add_record(self, entry: Entry, offset: int) -> None:
        if self.newest is None:
            self.workflow, self.began = entry.workflow, entry.at
        if entry.is_snapshot:
            self.snapshot = offset
        self.newest = entry
        self.last_at = max(self.last_at, entry.at)
        self.outputs += entry.outputs
        self.odd_ids = self.odd_ids or not says_its_place(entry)

    def apply_effects(self, line: CommitLine) -> None:
        """Apply what a commit does beside its record."""
        through, above = line.drop_log_through, line.drop_log_above
        for place in list(self.log):
            if (through is not None and place <= through) or (above is not None and place > above):
                self.dead += self.log.pop(place).values()
        self.used_keys.update(line.consumed)
        self.dead += [self.signals.pop(key) for key in line.consumed if key in self.signals]
        if line.metadata is not None:
            self.metadata = line.metadata
        if line.clears_requests:
            self.requests.clear()
        for request_id in (*line.closed, *(request.request_id for request in line.asked)):
            self.requests.pop(request_id, None)  # one that is asked again moves to the end
        self.requests |= {request.request_id: request for request in line.asked}
        self.wake = line.wake
        if line.release:
            self.owner = self.until = None

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


# Created at import, before there are threads: msgspec inspects a class when it first meets it, and
# two threads that do so at the same time crash the interpreter.
_decode = msgspec.json.Decoder(HeaderLine | CommitLine | LogWrite | Signal | Acquire | State).decode
_encode = msgspec.json.Encoder().encode


def write_line(line: Line, body: bytes, offset: int, run_id: str) -> tuple[bytes, Placed]:
    """Return a line as it is written at that offset, without its body, and its place."""
    line.size, line.crc = len(body), 0 if isinstance(line, Acquire) else crc32(body)
    head = _encode(line)[:-1]
    text = head + _sum(head, offset, run_id)
    return text, _placed(line, offset, offset + len(text))


def read_line(data: Data, offset: int, run_id: str) -> Placed | None:
    """Return the line at that offset; None if it is damaged.

    The body is not looked at; its end may be missing.
    """
    start = data.find(b"\n", offset) + 1
    head = data[offset : start - _SUM_SIZE]
    if data[start - _SUM_SIZE : start] != _sum(head, offset, run_id):
        return None
    try:
        line = _decode(head + b"}")
    except (msgspec.MsgspecError, RecursionError):  # the checksum is right: somebody made it
        return None
    placed = _placed(line, offset, start)
    return placed if data[placed.end - 1 : placed.end] in (b"\n", b"") else None


def _placed(line: Line, offset: int, start: int) -> Placed:
    end = start + line.size + 1 if line.size else start
    return Placed(line, offset, end, Body(start, line.size, line.crc))


def _sum(head: bytes, offset: int, run_id: str) -> bytes:
    return b',"sum":"%08x"}\n' % crc32(head, _seed(run_id) ^ offset)


@lru_cache(maxsize=1024)
def _seed(run_id: str) -> int:
    """Return what the checksums of a run's lines start with, so that no line fits into another run."""
    return crc32(run_id.encode())


def scan(data: Data, start: int, stop: int, run_id: str) -> tuple[list[Placed], list[int]]:
    """Return the complete lines between two offsets, and where damage begins."""
    complete: list[Placed] = []
    damages: list[int] = []
    offset, was_damaged = start, False
    while offset < stop:
        placed = read_line(data, offset, run_id)
        if placed is not None and placed.end <= stop:
            complete.append(placed)
            offset, was_damaged = placed.end, False
        else:
            damages += [] if was_damaged else [offset]
            offset, was_damaged = data.find(b"\n", offset, stop) + 1 or stop, True
    return complete, damages


def find_last_state(data: Data, run_id: str) -> Placed | None:
    """Return the last line of the file that holds the whole state, if there is one."""
    offset, placed = len(data), None
    while placed is None and (offset := data.rfind(_STATE, 0, offset)) >= 0:
        placed = read_line(data, offset + 1, run_id)
    return placed


def find_end(data: Data, complete: list[Placed], damages: list[int], run_id: str) -> int | None:
    """Return where the complete lines end: at the end of the file, or where a crash cut a write off.

    None if there is other damage.
    """
    last_write = max((n for n, placed in enumerate(complete) if not placed.line.joined), default=0)
    bodies = [(offset, body) for line, offset, _, body in complete[last_write:] if line.crc]
    zeroed = [offset for offset, body in bodies if b"\0" in data[body.offset : body.offset + body.size]]
    first = min([*damages, *zeroed], default=len(data))
    # What a crash leaves of a write is a part of it, or zeros in its place. A wrong sum alone is not
    # the work of a crash, and a later write proves that this one was complete.
    rest, placed = data[first:], read_line(data, first, run_id)
    is_ours = _START.startswith(rest.partition(b"\0")[0][: len(_START)])
    lacks_body = placed is not None and b"\n" not in data[placed.body.offset :]
    is_cut_off = is_ours and (lacks_body or not rest.endswith(b"\n") or b"\0" in rest)
    is_last = all(placed.line.joined for placed in complete if placed.offset > first)
    return first if is_cut_off and is_last else None
