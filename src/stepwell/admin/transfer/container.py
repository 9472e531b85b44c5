"""Reads and writes exported runs: gzipped lines of JSON, a header first and a checksum last.

`docs/format-exported-runs.md` describes the lines. The format is permanent: a change makes a new
version, and this one stays readable.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice
from typing import BinaryIO, Literal, Self

import msgspec

from stepwell.errors import CheckpointCorrupt, NewerFormat, RunError
from stepwell.storage.checked_reads import damage_error, decode_stored
from stepwell.storage.stored_values import Entry, Record

VERSION = 1
FORMAT = "stepwell run"
_LONGEST = 1 << 30  # bytes of a line, if nothing else limits it: no store holds more
# Upper bounds of the memory needed to read one byte of a line, and one JSON value in it.
PER_BYTE, PER_VALUE = 7, 200
# Possessive quantifiers (*+): a hostile line must not make the expression backtrack.
_STRING_OR_COMMA = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|,', re.DOTALL)

Role = Literal["run", "inside", "lineage"]


# Private values were removed; another run has its id; it is in progress; it needs more memory than
# the limit.
Reason = Literal["redacted", "there", "busy", "large"]


class ImportRefused(RunError):
    """An intact file is not imported, and nothing was written.

    `reason` is the cause in one word; `what` is the message without its advice.
    """

    def __init__(self, what: str, advice: str, *, run_id: str, reason: Reason) -> None:
        self.what, self.reason = what, reason
        super().__init__(f"{what}{advice}", run_id=run_id)


def too_large_error(what: str, max_memory: int, run_id: str) -> ImportRefused:
    """Return the error for a part of a file that needs more memory than the limit."""
    return ImportRefused(
        f"{what} needs more memory than the limit of {max_memory / 2**20:,.0f} MiB",
        "; if you trust its source, raise max_memory",
        run_id=run_id,
        reason="large",
    )


class _TaggedLine(msgspec.Struct, tag_field="line", forbid_unknown_fields=True, omit_defaults=True):
    pass


class Header(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The first line: what the file contains."""

    format: str
    version: int
    run_id: str
    workflow: str
    redacted: tuple[str, ...] = ()  # paths that were removed; such a run can be inspected, but not resumed
    missing: tuple[str, ...] = ()  # runs that are referred to, but were not in the store


class RunLine(_TaggedLine, tag="run"):
    """The start of a run, followed by its records, its superstep log and its signals."""

    run_id: str
    head: int  # number of its newest record
    role: Role
    place: int  # of its superstep log


class _KeyedLine(_TaggedLine):
    key: str
    body: msgspec.Raw

    @property
    def text(self) -> bytes:
        return compact(self.body)


class LogLine(_KeyedLine, tag="log"):
    """An entry of a superstep log."""


class SignalLine(_KeyedLine, tag="signal"):
    """A signal that is not applied yet."""


class RecordLine(_TaggedLine, tag="record"):
    """A record with its list entry."""

    entry: Entry
    body: msgspec.Raw

    @property
    def record(self) -> Record:
        return Record(self.entry, compact(self.body))


class EndLine(_TaggedLine, tag="end"):
    """The last line: it shows that the file is complete."""

    lines: int  # number of lines before this one
    sum: str  # SHA-256 of those lines, in hexadecimal


Line = RunLine | LogLine | SignalLine | RecordLine
_encode = msgspec.json.Encoder().encode
_decode_header = msgspec.json.Decoder(Header).decode
_decode = msgspec.json.Decoder(RunLine | LogLine | SignalLine | RecordLine | EndLine).decode


# Read before the header: a newer version may have fields that the header of this one refuses.
class _Version(msgspec.Struct):
    format: str = ""
    version: int = 0


_decode_version = msgspec.json.Decoder(_Version).decode


def compact(text: bytes | msgspec.Raw) -> bytes:
    """Return a JSON text without white space, as stores write it and compute checksums of it."""
    return msgspec.json.format(bytes(text), indent=-1)


def join_lines(text: bytes) -> msgspec.Raw:
    """Return a JSON text on one line, with the same length."""
    # In JSON a raw line break can only be white space between tokens: inside strings it is escaped.
    return msgspec.Raw(text.replace(b"\n", b" ").replace(b"\r", b" "))


class Writer:
    """Writes the file of an exported run. The same lines give the same bytes.

    `finish` writes the checksum; a file without it is refused. Leaving the `with` block before that
    discards what is still buffered.
    """

    def __init__(self, file: BinaryIO, first: Header) -> None:
        # No file name and no time in the gzip header, so that exporting twice gives identical
        # files.
        self._zip = gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0)
        self._sum, self._lines = sha256(), 0
        self.write(first)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._zip.closed:
            # GzipFile flushes its buffer on close, or at the latest when it is garbage-collected,
            # by which time the file may be closed. Give it a buffer to write to instead.
            self._zip.fileobj = io.BytesIO()
            self._zip.close()

    def write(self, line: Header | Line | EndLine) -> None:
        text = _encode(line) + b"\n"
        self._lines += 1
        self._sum.update(text)
        self._zip.write(text)

    def finish(self) -> None:
        self.write(EndLine(self._lines, self._sum.hexdigest()))
        self._zip.close()


def _fits(text: bytes, memory: int) -> bool:
    """Return whether a line can be decoded in so much memory."""
    # A line of n values has at least n - 1 commas (nesting aside), so commas bound the number of
    # values.
    most = (memory - PER_BYTE * len(text)) // PER_VALUE
    if text.count(b",") <= most:
        return True
    # Counted again without the commas inside strings, which is slower, and stops at the limit.
    commas = (1 for match in _STRING_OR_COMMA.finditer(text) if match.end() - match.start() == 1)
    return next(islice(commas, max(most, 0), None), None) is None


class Reader:
    """Reads the file of an exported run, line by line.

    Raises CheckpointCorrupt, naming the file, if it is damaged or incomplete, and NewerFormat if it
    is newer. The checksum comes last: read the file to its end once before trusting any line.
    """

    def __init__(self, file: BinaryIO, name: str, max_memory: int | None) -> None:
        self._zip, self._name, self._max_memory = gzip.GzipFile(fileobj=file, mode="rb"), name, max_memory
        self._longest = _LONGEST if max_memory is None else min(_LONGEST, max_memory // PER_BYTE)
        self._run_id, self._sum, self._count = "", sha256(), 0
        self.header = self._read_header()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._zip.close()

    def lines(self) -> Iterator[Line]:
        while True:
            text = self._read_line()
            line = decode_stored(_decode, text, f"line {self._count + 1} of {self._name}")
            if isinstance(line, EndLine):
                return self._check_end(line)
            self._count_line(text)
            yield line

    def _read_header(self) -> Header:
        text = self._read_line()
        first = decode_stored(_decode_version, text, self._name)
        if first.format != FORMAT:
            raise CheckpointCorrupt(f"{self._name} is not an exported run: its first line is not the header of one")
        if first.version < 1:
            raise damage_error(self._name, f"there is no version {first.version}")
        if first.version > VERSION:
            raise NewerFormat(
                f"{self._name} has version {first.version}, and this Stepwell reads versions up to {VERSION}; "
                f"use a newer Stepwell"
            )
        self._count_line(text)
        header = decode_stored(_decode_header, text, f"the first line of {self._name}")
        self._run_id = header.run_id
        return header

    def _check_end(self, end: EndLine) -> None:
        if (end.lines, end.sum) != (self._count, self._sum.hexdigest()):
            raise CheckpointCorrupt(f"{self._name} is damaged: its checksum does not match; export the run again")
        if self._read_safely(lambda: self._zip.read(1)):
            raise CheckpointCorrupt(f"{self._name} is damaged: it continues after its end; export the run again")

    def _count_line(self, text: bytes) -> None:
        self._sum.update(text)
        self._count += 1

    def _read_line(self) -> bytes:
        # A limit on the line: a few kilobytes of gzip may unpack to gigabytes.
        text = self._read_safely(lambda: self._zip.readline(self._longest))
        what = f"line {self._count + 1} of {self._name}"
        if not text.endswith(b"\n"):
            if len(text) < self._longest:
                raise CheckpointCorrupt(f"{self._name} is damaged: it is truncated; export the run again")
            raise too_large_error(what, self._max_memory or PER_BYTE * _LONGEST, self._run_id)
        if self._max_memory is not None and not _fits(text, self._max_memory):
            raise too_large_error(what, self._max_memory, self._run_id)
        if not text.isascii():
            decode_stored(bytes.decode, text, what)
        return text

    def _read_safely(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except gzip.BadGzipFile as error:
            raise damage_error(self._name, f"it was not written by export_run ({error})") from error
        except EOFError:
            raise CheckpointCorrupt(f"{self._name} is damaged: it is truncated; export the run again") from None
        except zlib.error as error:
            raise damage_error(self._name, error) from error
