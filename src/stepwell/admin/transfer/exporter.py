"""Exports a run as one self-contained file: for another store, another machine or a bug report."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec.structs import replace

from stepwell.admin.transfer.container import (
    FORMAT,
    VERSION,
    Header,
    Line,
    LogLine,
    Reader,
    RecordLine,
    RunLine,
    SignalLine,
    Writer,
    join_lines,
)
from stepwell.admin.transfer.redaction import LOCK, REMOVED, Redaction
from stepwell.admin.transfer.run_copy import RunCopy, apply_record, collect_runs, read_records
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import DefinitionError, RunError
from stepwell.model.checkpoint import Checkpoint
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.permissions import creating, mode_of
from stepwell.storage.record import build_record
from stepwell.storage.stored_values import Record
from stepwell.storage.wire.format import read_commit

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export contains."""

    run_id: str
    runs: tuple[str, ...]  # sub-workflow runs and parents first, the run itself last
    records: int
    missing: tuple[str, ...]  # runs that are referred to, but were not in the store


async def export_run(
    storage: BuiltInStorage, run_id: str, *, without: Iterable[str] = (), unsealed: bool = False
) -> bytes:
    """Return a run as the bytes of one file, with everything needed to continue it elsewhere.

    The file contains its stored commits, its superstep log, the signals that are not applied yet,
    the sub-workflow runs that its checkpoints refer to or that are in progress, and the runs it was
    forked from. The run is not changed and may be driven meanwhile: it is exported as of one
    commit.

    `without` removes private values: `"state.token"`, `"executors.clerk.password"`, `"messages"`;
    also `requests`, `outputs`, `failures`, `steps`, `metadata` and `tags`. `*` stands for any one
    key, and `"*"` alone removes all values. The file records that, and the run in it can be
    inspected but not resumed. A path that removes nothing raises ValueError, because it is probably
    misspelled.

    The file is not encrypted, so exporting from a sealed storage requires `unsealed=True`.

    Raises CheckpointMissing if there is no such run, RunError for the run of a sub-workflow, and
    CheckpointCorrupt if a record is damaged.
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
    """Export a run to a file, as `export_run` does, with a few records in memory at a time.

    The file appears only when it is complete. A new file is readable by its owner only; an existing
    one keeps its permissions.
    """
    with writing(Path(path)) as file:
        return await _export(storage, run_id, file, without, unsealed)


@contextmanager
def writing(target: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name only when the block has written all of it."""
    # Written beside the target, so that the final rename stays within one file system and is
    # atomic.
    unfinished = target.with_name(target.name + ".part")
    try:
        with _new_file(unfinished, mode_of(target)) as file:
            yield file
            file.flush()
            # Before the rename: after a power failure the new name must not point to an empty file.
            os.fsync(file.fileno())
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def describe_export(data: bytes) -> Exported:
    """Return what an exported file contains. Raises ImportRefused if it is damaged."""
    with Reader(io.BytesIO(data), "the export", None) as reader:
        runs, records = list[str](), 0
        for line in reader.lines():
            if isinstance(line, RunLine):
                runs.append(line.run_id)
            records += isinstance(line, RecordLine)
        return Exported(reader.header.run_id, tuple(runs), records, tuple(reader.header.missing))


def _new_file(path: Path, mode: int) -> BinaryIO:
    # What a killed export left behind may have other permissions.
    path.unlink(missing_ok=True)
    return open(path, "xb", opener=creating(mode))


async def _export(
    storage: BuiltInStorage, run_id: str, file: BinaryIO, without: Iterable[str], unsealed: bool
) -> Exported:
    # A string is an iterable of strings, and would be read as a path per character.
    if isinstance(without, str):
        raise TypeError(f"without must be a list of paths: without=[{without!r}]")
    redaction = Redaction(without)
    if not isinstance(storage, BuiltInStorage):
        raise DefinitionError(f"only the built-in storages can export runs, not {type(storage).__name__}")
    if getattr(storage._store, "is_sealed", False) and not unsealed:
        raise DefinitionError(
            "this storage is sealed, and everybody who has an exported file can read it; pass unsealed=True to export "
            "the run all the same (importing it into a sealed storage seals it again)"
        )
    runs, missing = await collect_runs(storage._store, run_id)
    main = runs[-1]
    if main.at.header.caller is not None:
        raise RunError(
            f"run {run_id!r} is a sub-workflow run of {main.at.header.caller!r}: export that run, which includes it",
            run_id=run_id,
        )
    count = 0
    first = Header(FORMAT, VERSION, run_id, main.at.header.workflow, redaction.paths, missing)
    with Writer(file, first) as writer:
        for run_copy in runs:
            lines = _RunLines(run_copy, redaction)
            writer.write(RunLine(run_copy.run_id, run_copy.at.number, run_copy.role, run_copy.at.place))
            async for page in read_records(storage._store, run_copy):
                await asyncio.to_thread(_write, writer, map(lines.make_record_line, page))
                count += len(page)
            await asyncio.to_thread(_write, writer, lines.make_other_lines())
        # Known only after everything was read; the unfinished file is discarded.
        if redaction.unused:
            raise ValueError(
                f"{redaction.unused[0]!r} matches nothing in run {run_id!r}, so nothing was removed; check its spelling"
            )
        await asyncio.to_thread(writer.finish)
    return Exported(run_id, tuple(run_copy.run_id for run_copy in runs), count, missing)


def _write(writer: Writer, lines: Iterable[Line]) -> None:
    for line in lines:
        writer.write(line)


class _RunLines:
    """The lines of one run, with private values removed."""

    def __init__(self, run_copy: RunCopy, redaction: Redaction) -> None:
        self._run_copy, self._redaction = run_copy, redaction
        self._checkpoint: Checkpoint | None = None

    def make_other_lines(self) -> list[Line]:
        """Return the lines of the superstep log and of the signals."""
        note, outcome = self._redaction.redact_note, self._redaction.redact_outcome
        return [
            # Outcomes are stored under the id of their delivery, which has no slash.
            *(
                LogLine(key, self._encode_body(body, note if "/" in key else outcome))
                for key, body in self._run_copy.superstep_log.items()
            ),
            *(
                SignalLine(row.key, self._encode_body(row.body, self._redaction.redact_signal))
                for row in self._run_copy.signals
            ),
        ]

    def make_record_line(self, record: Record) -> RecordLine:
        if not self._redaction.paths:
            # Read for its checks: a damaged record must fail the export, not the import somewhere
            # else.
            read_commit(record, DEFAULT_CODEC)
            return RecordLine(record.entry, join_lines(record.body))
        standalone = self._make_standalone(record)
        tree = self._redaction.redact_commit(_decode(standalone.body))
        # An executor that no graph has: it keeps every version of the program from resuming the
        # run.
        tree["executors"] = {**tree.get("executors", {}), LOCK: REMOVED}
        return RecordLine(standalone.entry, join_lines(_encode(tree)))

    def _encode_body(self, body: bytes, redact: Any) -> msgspec.Raw:
        return join_lines(_encode(redact(_decode(body))) if self._redaction.paths else body)

    def _make_standalone(self, record: Record) -> Record:
        """Return a record as a snapshot: a delta may contain parts of removed values."""
        self._checkpoint, commit, shape = apply_record(self._checkpoint, record)
        if self._checkpoint is not None:
            return build_record(commit, self._checkpoint, snapshot=True)
        # Kept only for its outputs: the record it is based on is not stored any more.
        return Record(record.entry, _encode(replace(shape, state=None, executors={}, executor_splices={})))
