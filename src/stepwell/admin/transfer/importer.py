"""Imports an exported run into a store, where it can be resumed exactly where it was."""

from __future__ import annotations

import asyncio
import io
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import msgspec
from msgspec.structs import replace

from stepwell.admin.retention.inventory import BATCH, gather_in_batches
from stepwell.admin.transfer.container import ImportRefused as ImportRefused
from stepwell.admin.transfer.container import Line, LogLine, Reader, RecordLine, RunLine, SignalLine, compact
from stepwell.admin.transfer.import_check import Opener, RunContents, check_file
from stepwell.admin.transfer.run_copy import PARTLY_HERE, check_record
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import DefinitionError, StoreUnavailable
from stepwell.kernel.requests import open_requests
from stepwell.model.checkpoint import Checkpoint, Retention
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import checkpoint_id
from stepwell.storage.lease import this_process
from stepwell.storage.port import Store
from stepwell.storage.record import metadata_of, pending_of, wake_of
from stepwell.storage.store_archive import read_log
from stepwell.storage.stored_values import CommitEffects, Record
from stepwell.storage.wire.shapes import WireCommit

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WireCommit).decode
_LEASE = 600.0  # seconds without a renewal after which another process may take the run
_RENEW_EVERY = 100  # records

MAX_MEMORY = 2**30  # bytes: a hostile file could unpack to fill the memory; the caller can allow more


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did."""

    run_id: str
    runs: tuple[str, ...]  # those that were written; the others existed already
    records: int
    redacted: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # runs that are referred to, but are not in the file


async def import_run(
    storage: BuiltInStorage,
    data: bytes,
    *,
    run_id: str | None = None,
    inspect_only: bool = False,
    max_memory: int | None = MAX_MEMORY,
) -> Imported:
    """Import an exported run into a storage, where it can be resumed exactly where it was.

    The superstep log, the signals that were not applied yet and the sub-workflow runs are imported,
    too. The whole file is checked before anything is written: a damaged or truncated one raises
    CheckpointCorrupt, one of a newer version NewerFormat. An interrupted import leaves a run that
    cannot be resumed; importing it again completes it.

    A run that exists already is left alone if it is identical; otherwise ImportRefused is raised.
    With `run_id` the run is imported under another id. Its idempotency keys are derived from its
    id, so that is refused while a superstep is in progress: import the run under its own id, and
    fork it. A redacted run is imported only with `inspect_only`: it can be inspected, but not resumed
    or forked.

    A file that needs more than about `max_memory` bytes to read raises ImportRefused; None disables
    the limit.
    """
    source = _Source(lambda: io.BytesIO(data), "the exported run", max_memory)
    return await _import(storage, source, run_id, inspect_only)


async def import_from(
    path: str | os.PathLike[str],
    storage: BuiltInStorage,
    *,
    run_id: str | None = None,
    inspect_only: bool = False,
    max_memory: int | None = MAX_MEMORY,
) -> Imported:
    """Import a run from a file, as `import_run` does.

    The file is read twice, one record at a time.
    """
    source = _Source(partial(io.FileIO, path), f"the file {os.fspath(path)!r}", max_memory)
    return await _import(storage, source, run_id, inspect_only)


@dataclass(frozen=True, slots=True)
class _Source:
    """An exported run that can be read any number of times."""

    open_file: Opener
    name: str
    max_memory: int | None

    def lines(self) -> Iterator[Line]:
        with self.open_file() as file, Reader(file, self.name, self.max_memory) as reader:
            yield from reader.lines()


async def _import(storage: BuiltInStorage, source: _Source, run_id: str | None, inspect_only: bool) -> Imported:
    if not isinstance(storage, BuiltInStorage):
        raise DefinitionError(f"only the built-in storages can import runs, not {type(storage).__name__}")
    # In a thread: unpacking and decoding a large file would block the event loop.
    header, runs = await asyncio.to_thread(check_file, source.open_file, source.name, source.max_memory)
    if header.redacted and not inspect_only:
        raise ImportRefused(
            f"run {header.run_id!r} was exported without {', '.join(header.redacted)}, so it cannot be resumed",
            "; to import it for inspection only, into a storage of its own, pass inspect_only=True",
            run_id=header.run_id,
            reason="redacted",
        )
    new_name = None if run_id in (None, header.run_id) else run_id
    if new_name is not None:
        _check_renamable(runs, header.run_id, new_name)
    existing = await _find_existing(storage._store, runs, source, new_name)
    importing = _Import(storage._store, existing, header.run_id, new_name)
    try:
        for line in source.lines():
            await importing.add(line)
        await importing.finish()
    except StoreUnavailable:
        # For example, the disk is full: leave nothing behind. A crash leaves a marked run instead.
        await importing.remove_partial_run()
        raise
    finally:
        await importing.release()
    return Imported(
        new_name or header.run_id,
        tuple(importing.written),
        records=importing.records,
        redacted=header.redacted,
        missing=header.missing,
    )


def _check_renamable(runs: Mapping[str, RunContents], name: str, run_id: str) -> None:
    if runs[name].busy:
        raise ImportRefused(
            f"run {name!r} has a superstep in progress, and its idempotency keys are derived from its id",
            "; import it under its own id, and fork it to get another",
            run_id=name,
            reason="busy",
        )
    inside = [contents for contents in runs.values() if contents.line.role == "inside"]
    if any(contents.retention is Retention.LatestOnly for contents in inside):
        raise ImportRefused(
            f"run {name!r} has sub-workflow runs that keep only their latest checkpoint, so they cannot be used by a "
            f"run with the id {run_id!r}",
            "; import it under its own id, and fork it",
            run_id=name,
            reason="busy",
        )


async def _find_existing(
    store: Store, runs: Mapping[str, RunContents], source: _Source, new_name: str | None
) -> set[str]:
    """Return the runs that exist already.

    Raises ImportRefused if a different run has the id of one of them.
    """
    existing: set[str] = set()
    for id, contents in runs.items():
        stored_as = new_name if new_name is not None and contents.line.role == "run" else id
        if await store.run(stored_as) is None:
            continue
        if await _is_partly_here(store, stored_as) and await _remove_partial_run(store, stored_as):
            continue
        # Parents of a fork, and the sub-workflow runs of a renamed run, are only read from, so they
        # may have moved on.
        exact = contents.line.role == "run" or (contents.line.role == "inside" and new_name is None)
        if new_name == stored_as or not await _is_same(store, source, contents, exact=exact):
            raise ImportRefused(
                f"run {stored_as!r} already exists in this store, with other content than in {source.name}",
                "; import it under another id with run_id, or into another store",
                run_id=stored_as,
                reason="there",
            )
        existing.add(id)
    return existing


async def _is_partly_here(store: Store, run_id: str) -> bool:
    return any(signal.key == PARTLY_HERE for signal in await store.pending_signals(run_id))


async def _remove_partial_run(store: Store, run_id: str) -> bool:
    """Remove what an interrupted import left; return False if the run is complete by now.

    Raises RunBusy if that import is still running.
    """
    owner = this_process(f"import {uuid.uuid4()}")
    await store.acquire(run_id, owner, seconds=_LEASE)
    try:
        if not await _is_partly_here(store, run_id):
            return False
        await store.drop(run_id)
        return True
    finally:
        await store.release(run_id, owner)


async def _is_same(store: Store, source: _Source, contents: RunContents, *, exact: bool) -> bool:
    """Return whether a stored run is the one in the file, ignoring white space.

    Unless `exact`, the stored run may have moved on since.
    """
    run_id = contents.line.run_id
    stored = await store.open(run_id)
    if exact and (not stored.records or stored.records[-1].entry.number != contents.line.head):
        return False
    log = {row.key: row.body for row in stored.log if row.place == contents.line.place}
    signals = {signal.key: signal.body for signal in stored.signals}
    is_wanted = False
    for line in source.lines():
        match line:
            case RunLine():
                is_wanted = line.run_id == run_id
            case _ if not is_wanted:
                continue
            case RecordLine(entry=entry):
                records = await store.history(run_id, after=entry.number - 1, upto=entry.number)
                if [Record(record.entry, compact(record.body)) for record in records] != [line.record]:
                    return False
            case LogLine(key=key) | SignalLine(key=key) if exact:
                rows = log if isinstance(line, LogLine) else signals
                if key not in rows or compact(rows[key]) != line.text:
                    return False
    return True


class _Import:
    """Writes the runs of a file, each under a lease and marked as incomplete until it is done."""

    def __init__(self, store: Store, existing: set[str], main: str, new_name: str | None) -> None:
        self._store, self._existing, self._main, self._new_name = store, existing, main, new_name
        self._owner = this_process(f"import {uuid.uuid4()}")
        self._run: _RunWriting | None = None
        # Records may be written concurrently only if the store keeps the order of calls.
        self._at_once = BATCH if store.keeps_order else 1
        self._waiting: list[tuple[Record, CommitEffects]] = []
        self.written: list[str] = []
        self.records = 0

    async def add(self, line: Line) -> None:
        if isinstance(line, RunLine):
            await self.finish()
            if line.run_id not in self._existing:
                await self._begin_run(line)
        elif self._run is not None:
            await self._write_line(self._run, line)

    async def _begin_run(self, line: RunLine) -> None:
        name = self._new_name if self._new_name and line.run_id == self._main else line.run_id
        self._run = _RunWriting(line, name, await self._store.acquire(name, self._owner, seconds=_LEASE))
        # Checked again under the lease: a run may have been created since _find_existing() looked.
        if await self._store.run(name) is not None:
            raise ImportRefused(
                f"run {name!r} was created in this store during the import",
                "; import it again",
                run_id=name,
                reason="there",
            )
        # A signal that no drive can read: until it is consumed, the run can be neither resumed nor
        # exported.
        await self._store.send(name, PARTLY_HERE, b'{"format":1,"kind":"import"}')
        self.written.append(name)

    async def _write_line(self, run: _RunWriting, line: Line) -> None:
        match line:
            case LogLine(key=key):
                # A log belongs to a place, which must exist.
                await self._store_records()
                await self._store.write_log(run.name, run.line.place, key, line.text, fence=run.fence)
                run.log[key] = line.text
            case SignalLine(key=key):
                await self._store.send(run.name, key, line.text)
            case RecordLine():
                run.last = run.rename_record(line.record)
                run.at, _, _ = check_record(run.at, run.last)
                # Requests and wake-up times are left out until the run is complete, so that lists
                # do not offer it.
                metadata = None if run.at is None else metadata_of(run.at.header)
                self._waiting.append((run.last, CommitEffects(metadata=metadata, fence=run.fence)))
                if len(self._waiting) >= self._at_once:
                    await self._store_records()
                self.records += 1
                if self.records % _RENEW_EVERY == 0:
                    await asyncio.to_thread(self._store.renew, {run.name: run.fence}, seconds=_LEASE)

    async def _store_records(self) -> None:
        """Store the records collected so far, in their order."""
        waiting, self._waiting = self._waiting, []
        await gather_in_batches(
            self._store.rewrite(record.entry.run_id, insert=record, effects=effects) for record, effects in waiting
        )

    async def finish(self) -> None:
        """Complete the current run: remove its mark and list its requests and wake-up time."""
        run = self._run
        if run is None or run.last is None or run.at is None:
            return
        await self._store_records()
        head = run.at
        requests = open_requests(head, read_log(run.name, run.log, DEFAULT_CODEC))
        asked = pending_of(head.header, requests.values())
        effects = CommitEffects(
            consumed=(PARTLY_HERE,), asked=asked, wake=wake_of(head), metadata=metadata_of(head.header), fence=run.fence
        )
        await self._store.rewrite(run.name, insert=run.last, effects=effects)
        await self.release()

    async def remove_partial_run(self) -> None:
        """Delete an incomplete run after the store refused the rest of it.

        If the store cannot be reached, the run stays, marked. A complete run stays: a process may
        be driving it.
        """
        self._waiting.clear()
        # Suppressed: the caller gets the error that led here.
        with suppress(StoreUnavailable):
            if self._run is not None and await _is_partly_here(self._store, self._run.name):
                await self._store.drop(self._run.name)

    async def release(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            await self._store.release(run.name, self._owner)


@dataclass(slots=True)
class _RunWriting:
    """A run that is being written, under its own name or another."""

    line: RunLine
    name: str
    fence: int
    at: Checkpoint | None = None
    last: Record | None = None
    epoch: int = 0
    log: dict[str, bytes] = field(default_factory=dict)
    new_ids: dict[str, str] = field(default_factory=dict)  # of checkpoints that are renamed, by the old ones

    def rename_record(self, record: Record) -> Record:
        """Return a record under the name of the run.

        The ids of its checkpoints are derived from its id, so they change, too.
        """
        if self.name == self.line.run_id:
            return record
        shape, entry = _decode(record.body), record.entry
        if shape.run is not None:
            self.epoch = shape.run.epoch
            previous = self.new_ids.get(shape.previous_id or "", shape.previous_id)
            shape = replace(shape, run=replace(shape.run, run_id=self.name), previous_id=previous)
        new_id = self.new_ids[entry.checkpoint_id] = checkpoint_id(self.name, self.epoch, entry.number)
        return Record(replace(entry, run_id=self.name, checkpoint_id=new_id), _encode(shape))
