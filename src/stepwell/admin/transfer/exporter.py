"""A run as one self-contained file: for another store, for another machine, for a bug report."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec.structs import replace

from stepwell.admin.transfer.container import (
    LetterLine,
    Line,
    MemoryLine,
    RecordLine,
    RunLine,
    Writer,
    header,
    one_line,
)
from stepwell.admin.transfer.redaction import LOCK, REMOVED, Redaction
from stepwell.admin.transfer.snapshots import Snapshot, gathered, records
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import DefinitionError, RunError
from stepwell.kernel.lifecycle import apply
from stepwell.model.superstep import Checkpoint
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.permissions import creating, mode_of
from stepwell.storage.port import Record
from stepwell.storage.record import build_record
from stepwell.storage.wire.format import header_of, read_commit

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written to a file."""

    run_id: str
    runs: tuple[str, ...]  # all that are in it: the runs inside and those it was forked from first, the run itself last
    records: int
    missing: tuple[str, ...]  # runs that are referred to, and were not stored


async def export_run(
    storage: BuiltInStorage, run_id: str, *, without: Iterable[str] = (), unsealed: bool = False
) -> bytes:
    """A run as the bytes of one file, with everything that is needed to go on with it elsewhere.

    That is its commits as far as they are kept, what was finished or noted in the superstep under way, mail that is
    not taken in, the runs inside that its checkpoints refer to or that are under way, and the runs it was forked from.
    The run is not changed, and may be moved on meanwhile: it is exported as it was at one commit.

    `without` removes private values: `"state.token"`, `"executors.clerk.password"`, `"messages"`; also `questions`,
    `outputs`, `failures`, `steps`, `metadata` and `tags`, and `*` for any one name; `"*"` alone removes them all. The
    file says so, and the run in it can be looked at, and not resumed. A path that removes nothing is refused with
    ValueError: it may be a slip.

    What a sealed storage keeps is in the file for everybody to read, so `unsealed=True` must be asked for.

    Raises CheckpointMissing, RunError for a run that works for another, CheckpointCorrupt if a record is damaged.
    """
    file = io.BytesIO()
    await _export(storage, run_id, file, without, unsealed)
    return file.getvalue()


async def export_to(
    path: str | os.PathLike[str],
    storage: BuiltInStorage,
    run_id: str,
    *,
    without: Iterable[str] = (),
    unsealed: bool = False,
) -> Exported:
    """As `export_run`, into a file, a few records at a time. The file is there when it is whole, and not before.

    A new file can be read by its owner only; one that is there keeps its permissions.
    """
    whole = Path(path)
    part = whole.with_name(whole.name + ".part")
    try:
        with _new_file(part, mode_of(whole)) as file:
            done = await _export(storage, run_id, file, without, unsealed)
            file.flush()
            os.fsync(file.fileno())
        part.replace(whole)
    except BaseException:
        with suppress(FileNotFoundError):
            part.unlink()
        raise
    return done


def _new_file(path: Path, mode: int) -> BinaryIO:
    path.unlink(missing_ok=True)  # what a killed export left may have another mode
    return open(path, "xb", opener=creating(mode))


async def _export(
    storage: BuiltInStorage, run_id: str, file: BinaryIO, without: Iterable[str], unsealed: bool
) -> Exported:
    if isinstance(without, str):
        raise TypeError(f"without is a list of paths: without=[{without!r}]")
    redaction = Redaction(without)
    _check_open(storage, unsealed)
    found = await gathered(storage.store, run_id)
    main = found.runs[-1]
    if main.at.header.caller is not None:
        raise RunError(
            f"run {run_id!r} works for run {main.at.header.caller!r}: export that one, it takes this one along",
            run_id=run_id,
        )
    count = 0
    with Writer(file, header(run_id, main.at.header.workflow, redaction.paths, found.missing)) as writer:
        for one in found.runs:
            written = _Lines(one, redaction)
            writer.write(RunLine(one.run_id, one.at.number, one.role, one.at.place))
            async for page in records(storage.store, one):
                await asyncio.to_thread(_write, writer, map(written.record, page))
                count += len(page)
            await asyncio.to_thread(_write, writer, written.beside())
        if redaction.unused:
            raise ValueError(
                f"nothing in run {run_id!r} is called {redaction.unused[0]!r}, so nothing was removed: look whether "
                f"it is written otherwise there"
            )
        await asyncio.to_thread(writer.finish)
    return Exported(run_id, tuple(one.run_id for one in found.runs), count, found.missing)


def _write(writer: Writer, lines: Iterable[Line]) -> None:
    for line in lines:
        writer.write(line)


def _check_open(storage: BuiltInStorage, unsealed: bool) -> None:
    if not isinstance(storage, BuiltInStorage):
        raise DefinitionError(
            f"a run is exported from one of the built-in storages, not from a {type(storage).__name__}"
        )
    if getattr(storage.store, "is_sealed", False) and not unsealed:
        raise DefinitionError(
            "this storage is sealed, and an exported run can be read by everybody who has the file: ask for that with "
            "unsealed=True; what is imported into a sealed storage is sealed again"
        )


class _Lines:
    """The lines of one run, with what is private removed."""

    def __init__(self, one: Snapshot, redaction: Redaction) -> None:
        self._one, self._redaction = one, redaction
        self._before: Checkpoint | None = None

    def beside(self) -> list[Line]:
        """What lies beside the records."""
        redact, kept = self._redaction, self._one.memory
        found: list[Line] = []
        for key, body in kept.items():
            found.append(MemoryLine(key, self._text(body, redact.note if "/" in key else redact.outcome)))
        return found + [LetterLine(key, self._text(body, redact.letter)) for key, body in self._one.mail]

    def record(self, one: Record) -> RecordLine:
        if not self._redaction.paths:
            read_commit(one, DEFAULT_CODEC)  # what cannot be read is not handed on
            return RecordLine(one.entry, one_line(one.body))
        standing = self._standing(one)
        tree = self._redaction.commit(_decode(standing.body))
        tree["executors"] = {**tree.get("executors", {}), LOCK: REMOVED}
        return RecordLine(standing.entry, one_line(_encode(tree)))

    def _text(self, body: bytes, redact: Any) -> msgspec.Raw:
        return one_line(_encode(redact(_decode(body))) if self._redaction.paths else body)

    def _standing(self, one: Record) -> Record:
        """A record that stands alone: a change to a text could give away what it changed."""
        commit, shape = read_commit(one, DEFAULT_CODEC)
        if shape.run is not None:
            self._before = apply(header_of(shape), None, commit, previous_id=shape.previous_id)
        elif self._before is not None and self._before.number == commit.number - 1:
            self._before = apply(self._before.header, self._before, commit)
        else:  # only its outputs are still of use: what it changed is not stored any more
            self._before = None
            bare = replace(shape, state=None, executors={}, executor_splices={})
            return Record(one.entry, _encode(bare))
        return build_record(commit, self._before, snapshot=True)
