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
    Line,
    LogLine,
    RecordLine,
    RunLine,
    SignalLine,
    Writer,
    make_header,
    one_line,
)
from stepwell.admin.transfer.redaction import LOCK, REMOVED, Redaction
from stepwell.admin.transfer.snapshots import Snapshot, collect_runs, read_records
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
    target = Path(path)
    unfinished = target.with_name(target.name + ".part")
    try:
        with _new_file(unfinished, mode_of(target)) as file:
            exported = await _export(storage, run_id, file, without, unsealed)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            unfinished.unlink()
        raise
    return exported


def _new_file(path: Path, mode: int) -> BinaryIO:
    path.unlink(missing_ok=True)  # what a killed export left may have another mode
    return open(path, "xb", opener=creating(mode))


async def _export(
    storage: BuiltInStorage, run_id: str, file: BinaryIO, without: Iterable[str], unsealed: bool
) -> Exported:
    if isinstance(without, str):
        raise TypeError(f"without is a list of paths: without=[{without!r}]")
    redaction = Redaction(without)
    _check_readable(storage, unsealed)
    bundle = await collect_runs(storage._store, run_id)
    main = bundle.runs[-1]
    if main.at.header.caller is not None:
        raise RunError(
            f"run {run_id!r} works for run {main.at.header.caller!r}: export that one, it takes this one along",
            run_id=run_id,
        )
    count = 0
    with Writer(file, make_header(run_id, main.at.header.workflow, redaction.paths, bundle.missing)) as writer:
        for snapshot in bundle.runs:
            lines = _RunLines(snapshot, redaction)
            writer.write(RunLine(snapshot.run_id, snapshot.at.number, snapshot.role, snapshot.at.place))
            async for page in read_records(storage._store, snapshot):
                await asyncio.to_thread(_write, writer, map(lines.make_record_line, page))
                count += len(page)
            await asyncio.to_thread(_write, writer, lines.make_other_lines())
        if redaction.unused:
            raise ValueError(
                f"nothing in run {run_id!r} is called {redaction.unused[0]!r}, so nothing was removed: look whether "
                f"it is written otherwise there"
            )
        await asyncio.to_thread(writer.finish)
    return Exported(run_id, tuple(snapshot.run_id for snapshot in bundle.runs), count, bundle.missing)


def _write(writer: Writer, lines: Iterable[Line]) -> None:
    for line in lines:
        writer.write(line)


def _check_readable(storage: BuiltInStorage, unsealed: bool) -> None:
    if not isinstance(storage, BuiltInStorage):
        raise DefinitionError(
            f"a run is exported from one of the built-in storages, not from a {type(storage).__name__}"
        )
    if getattr(storage._store, "is_sealed", False) and not unsealed:
        raise DefinitionError(
            "this storage is sealed, and an exported run can be read by everybody who has the file: ask for that with "
            "unsealed=True; what is imported into a sealed storage is sealed again"
        )


class _RunLines:
    """The lines of one run, with what is private removed."""

    def __init__(self, snapshot: Snapshot, redaction: Redaction) -> None:
        self._snapshot, self._redaction = snapshot, redaction
        self._checkpoint: Checkpoint | None = None

    def make_other_lines(self) -> list[Line]:
        """What lies beside the records."""
        redaction, lines = self._redaction, list[Line]()
        for key, body in self._snapshot.superstep_log.items():
            redact = redaction.redact_note if "/" in key else redaction.redact_outcome
            lines.append(LogLine(key, self._encode_body(body, redact)))
        for key, body in self._snapshot.signals:
            lines.append(SignalLine(key, self._encode_body(body, redaction.redact_signal)))
        return lines

    def make_record_line(self, record: Record) -> RecordLine:
        if not self._redaction.paths:
            read_commit(record, DEFAULT_CODEC)  # what cannot be read is not handed on
            return RecordLine(record.entry, one_line(record.body))
        standalone = self._make_standalone(record)
        tree = self._redaction.redact_commit(_decode(standalone.body))
        tree["executors"] = {**tree.get("executors", {}), LOCK: REMOVED}
        return RecordLine(standalone.entry, one_line(_encode(tree)))

    def _encode_body(self, body: bytes, redact: Any) -> msgspec.Raw:
        return one_line(_encode(redact(_decode(body))) if self._redaction.paths else body)

    def _make_standalone(self, record: Record) -> Record:
        """A record that stands alone: a change to a text could give away what it changed."""
        commit, shape = read_commit(record, DEFAULT_CODEC)
        if shape.run is not None:
            self._checkpoint = apply(header_of(shape), None, commit, previous_id=shape.previous_id)
        elif self._checkpoint is not None and self._checkpoint.number == commit.number - 1:
            self._checkpoint = apply(self._checkpoint.header, self._checkpoint, commit)
        else:  # only its outputs are still of use: what it changed is not stored any more
            self._checkpoint = None
            bare = replace(shape, state=None, executors={}, executor_splices={})
            return Record(record.entry, _encode(bare))
        return build_record(commit, self._checkpoint, snapshot=True)
