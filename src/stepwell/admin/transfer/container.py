"""The file that holds an exported run: gzip'd lines of JSON, a header first and a sum of everything last.

`docs/format.md` says in words what the lines mean. They are for ever: a change is a new version, and this one stays
readable.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice
from types import TracebackType
from typing import BinaryIO, Literal, Self

import msgspec

from stepwell.admin.transfer.import_errors import too_large
from stepwell.errors import CheckpointCorrupt, NewerFormat
from stepwell.storage.damage import damage_error, decode_stored
from stepwell.storage.port import Entry, Record

VERSION = 1
_NAME = "stepwell run"
_LONGEST = 1 << 30  # bytes of one line, if nothing else limits it: no store holds more
PER_BYTE, PER_VALUE = 7, 200  # bytes of memory that it takes to read a byte of a line, and a value in it, at most
_STRING_OR_COMMA = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|,', re.DOTALL)

Role = Literal["run", "inside", "lineage"]


class _TaggedLine(msgspec.Struct, tag_field="line", forbid_unknown_fields=True, omit_defaults=True):
    pass


class Header(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What the first line says of the whole file."""

    format: str
    version: int
    run_id: str
    workflow: str
    redacted: tuple[str, ...] = ()  # what was removed; such a run can be looked at, and not resumed
    missing: tuple[str, ...] = ()  # runs that are referred to, and were not stored where this was exported


class RunLine(_TaggedLine, tag="run"):
    """What follows, up to the next such line, is of this run: its records, then its memory and its mail."""

    run_id: str
    head: int  # the number of its newest record
    role: Role
    place: int  # what its memory is filed under


class LogLine(_TaggedLine, tag="memory"):
    key: str
    body: msgspec.Raw

    @property
    def text(self) -> bytes:
        return compact(self.body)


class SignalLine(_TaggedLine, tag="letter"):
    key: str
    body: msgspec.Raw

    @property
    def text(self) -> bytes:
        return compact(self.body)


class RecordLine(_TaggedLine, tag="record"):
    entry: Entry
    body: msgspec.Raw

    @property
    def record(self) -> Record:
        return Record(self.entry, compact(self.body))


class EndLine(_TaggedLine, tag="end"):
    lines: int  # how many there are before this one
    sum: str  # SHA-256 of them, in hexadecimal


Line = RunLine | LogLine | SignalLine | RecordLine
_encode = msgspec.json.Encoder().encode
_decode_header = msgspec.json.Decoder(Header).decode
_decode = msgspec.json.Decoder(RunLine | LogLine | SignalLine | RecordLine | EndLine).decode


class _Version(msgspec.Struct):
    format: str = ""
    version: int = 0


_decode_version = msgspec.json.Decoder(_Version).decode


def compact(text: bytes | msgspec.Raw) -> bytes:
    """A JSON text without white space, as stores write it; sums are made of that."""
    return msgspec.json.format(bytes(text), indent=-1)


def one_line(text: bytes) -> msgspec.Raw:
    """A JSON text without line breaks and of the same length: they can only be space between its parts."""
    return msgspec.Raw(text.replace(b"\n", b" ").replace(b"\r", b" "))


def make_header(run_id: str, workflow: str, redacted: tuple[str, ...], missing: tuple[str, ...]) -> Header:
    return Header(_NAME, VERSION, run_id, workflow, redacted, missing)


class Writer:
    """Writes such a file. The same lines make the same bytes. `finish` writes the sum: without it nobody reads it.

    A `with` ends it: what was not finished is dropped, and nothing more is written to the file.
    """

    def __init__(self, file: BinaryIO, first: Header) -> None:
        self._zip = gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0)
        self._sum, self._lines = sha256(), 0
        self._write_line(_encode(first))

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._zip.closed:
            self._zip.fileobj = io.BytesIO()  # it writes what it holds when it is collected, if not before
            self._zip.close()

    def write(self, line: Line) -> None:
        self._write_line(_encode(line))

    def finish(self) -> None:
        self._zip.write(_encode(EndLine(self._lines, self._sum.hexdigest())) + b"\n")
        self._zip.close()

    def _write_line(self, text: bytes) -> None:
        self._lines += 1
        self._sum.update(text + b"\n")
        self._zip.write(text + b"\n")


def _fits(text: bytes, memory: int) -> bool:
    """Whether a line can be read in so much memory. Each value in it may become an object of its own."""
    most = (memory - PER_BYTE * len(text)) // PER_VALUE
    if text.count(b",") <= most:
        return True
    commas = (1 for match in _STRING_OR_COMMA.finditer(text) if match.end() - match.start() == 1)
    return next(islice(commas, max(most, 0), None), None) is None


def _check_utf8(text: bytes) -> None:
    if not text.isascii():
        text.decode()


class Reader:
    """Reads such a file, line by line. Raises CheckpointCorrupt, naming the file, unless it is whole; NewerFormat if it
    is newer.

    What is read before the end may be part of a damaged file: read all of it once before believing any of it.
    """

    def __init__(self, file: BinaryIO, name: str, max_memory: int | None) -> None:
        self._zip, self._name, self._max_memory = gzip.GzipFile(fileobj=file, mode="rb"), name, max_memory
        self._longest = _LONGEST if max_memory is None else min(_LONGEST, max_memory // PER_BYTE)
        self._run_id, self._sum, self._count = "", sha256(), 0
        self.header = self._read_header()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        if first.format != _NAME:
            raise CheckpointCorrupt(f"{self._name} is no exported run: its first line does not say so")
        if first.version < 1:
            raise damage_error(self._name, f"there is no version {first.version}")
        if first.version > VERSION:
            raise NewerFormat(
                f"{self._name} is of version {first.version}, and this Stepwell reads {VERSION}; use a newer one"
            )
        self._count_line(text)
        header = decode_stored(_decode_header, text, f"the first line of {self._name}")
        self._run_id = header.run_id
        return header

    def _check_end(self, end: EndLine) -> None:
        if (end.lines, end.sum) != (self._count, self._sum.hexdigest()):
            raise CheckpointCorrupt(f"{self._name} is damaged: its sum does not fit; export the run again")
        if self._read_safely(lambda: self._zip.read(1)):
            raise CheckpointCorrupt(f"{self._name} is damaged: something follows its end; export the run again")

    def _count_line(self, text: bytes) -> None:
        self._sum.update(text)
        self._count += 1

    def _read_line(self) -> bytes:
        text = self._read_safely(lambda: self._zip.readline(self._longest))
        what = f"line {self._count + 1} of {self._name}"
        if not text.endswith(b"\n"):
            if len(text) < self._longest:
                raise CheckpointCorrupt(f"{self._name} is damaged: it is cut short; export the run again")
            raise too_large(what, self._max_memory or PER_BYTE * _LONGEST, self._run_id)
        if self._max_memory is not None and not _fits(text, self._max_memory):
            raise too_large(what, self._max_memory, self._run_id)
        decode_stored(_check_utf8, text, what)
        return text

    def _read_safely(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except gzip.BadGzipFile as error:
            raise damage_error(self._name, f"it is not what export_run wrote ({error})") from error
        except EOFError:
            raise CheckpointCorrupt(f"{self._name} is damaged: it is cut short; export the run again") from None
        except zlib.error as error:
            raise damage_error(self._name, error) from error
