"""The lines of a run's file: how they are written, and found again.

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
from typing import NamedTuple
from zlib import crc32

import msgspec

from stepwell.stores.runs.state import Acquire, CommitLine, Line, LogWrite, Settle, Signal, Size, State

_SUM_SIZE = 19  # bytes, up to the end of the line
_START = b'{"line":"'
_STATE = b'\n{"line":"state",'  # no body contains a raw newline

Data = bytes | mmap.mmap


class FileBody(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a body is in the file."""

    offset: Size
    size: Size
    crc: int


class HeaderLine(Line, kw_only=True, tag="run"):
    """The first line of every file."""

    generation: str  # random: a file that was written anew is not taken for the one before
    run_id: str


class Placed(NamedTuple):
    """A line and its place in the file."""

    line: Line
    offset: int
    end: int
    body: FileBody


# Created at import, before there are threads: msgspec inspects a class when it first meets it, and
# two threads that do so at the same time crash the interpreter.
_decode = msgspec.json.Decoder(HeaderLine | CommitLine | LogWrite | Signal | Acquire | Settle | State[FileBody]).decode
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
    return Placed(line, offset, end, FileBody(start, line.size, line.crc))


def _sum(head: bytes, offset: int, run_id: str) -> bytes:
    return b',"sum":"%08x"}\n' % crc32(head, _seed(run_id) ^ offset)


@lru_cache(maxsize=1024)
def _seed(run_id: str) -> int:
    """Return what the checksums of a run's lines start with, so that no line fits into another run."""
    return crc32(run_id.encode())


def scan(data: Data, start: int, stop: int, run_id: str) -> tuple[list[Placed], list[int]]:
    """Return the complete lines between two offsets, and where damage is."""
    complete: list[Placed] = []
    damages: list[int] = []
    offset = start
    while offset < stop:
        placed = read_line(data, offset, run_id)
        if placed is not None and placed.end <= stop:
            complete.append(placed)
            offset = placed.end
        else:
            damages.append(offset)
            offset = data.find(b"\n", offset, stop) + 1 or stop
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
