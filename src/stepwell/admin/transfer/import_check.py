"""Everything in an exported run is looked at before any of it is stored.

A file may come from anywhere. What passes here can be written to every store and read from it again, and reading it
took no more memory than it may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

import msgspec

from stepwell.admin.transfer.container import (
    PER_VALUE,
    Header,
    LetterLine,
    Line,
    MemoryLine,
    Reader,
    RecordLine,
    RunLine,
)
from stepwell.admin.transfer.import_errors import too_large
from stepwell.admin.transfer.snapshots import PARTLY_HERE, is_listed_right
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CheckpointCorrupt
from stepwell.kernel.lifecycle import apply
from stepwell.model.superstep import Appended, Checkpoint, Commit, Retention, RunHeader
from stepwell.storage.damage import damage_error, decode_stored
from stepwell.storage.json_text import json_of
from stepwell.storage.limits import LONGEST, entry_flaws, flaw_in_count, flaw_in_name
from stepwell.storage.port import Record
from stepwell.storage.signals import read_signal
from stepwell.storage.wire.format import header_of, read_commit, read_note, read_outcome

_KEY = LONGEST + 1000  # characters: the key of a letter has an id in it
_valid = msgspec.json.Decoder(msgspec.Raw).decode

Open = Callable[[], BinaryIO]


@dataclass(slots=True)
class Seen:
    """What a file says of one run. What the run holds is forgotten when all of it was seen."""

    line: RunLine
    number: int = -1  # of the record that was read last
    workflow: str = ""
    keys: set[str] = field(default_factory=set)  # of what lies beside the records
    busy: bool = False  # something is under way
    retention: Retention = Retention.FullHistory


@dataclass(frozen=True, slots=True)
class Checked:
    """A file that is whole, and everything in it readable."""

    header: Header
    runs: Mapping[str, Seen]


def check(opened: Open, name: str, max_memory: int | None) -> Checked:
    """Read a file to its end. Raises CheckpointCorrupt, naming it, if anything in it is not as it must be, and
    ImportRefused if reading it takes more memory than it may."""
    with opened() as file, Reader(file, name, max_memory) as reader:
        checking = _Check(name, max_memory, reader.header.run_id)
        for line in reader.lines():
            checking.look_at(line)
        checking.end_run()
    main = checking.runs.get(reader.header.run_id)
    if main is None or main.line.role != "run":
        raise CheckpointCorrupt(f"{name} is damaged: the run {reader.header.run_id!r} it is about is not in it")
    return Checked(reader.header, checking.runs)


class _Check:
    def __init__(self, name: str, max_memory: int | None, main: str) -> None:
        self._name, self._max_memory, self._main = name, max_memory, main
        self.runs: dict[str, Seen] = {}
        self._run: Seen | None = None
        self._at: Checkpoint | None = None
        self._held = 0  # bytes of memory that the checkpoint of the run takes, about

    def look_at(self, line: Line) -> None:
        if isinstance(line, RunLine):
            self.end_run()
            self._begin(line)
            return
        run = self._run
        if run is None:
            raise self._damaged("it does not begin with a run")
        match line:
            case RecordLine():
                self._record(run, line.record)
            case MemoryLine(key=key):
                self._key(run, f"memory/{key}", key)
                read = read_note if "/" in key else read_outcome
                read(run.line.run_id, key, line.text, DEFAULT_CODEC)
                run.busy = True
            case LetterLine(key=key):
                self._key(run, f"mail/{key}", key)
                if key == PARTLY_HERE:
                    raise self._damaged(f"run {run.line.run_id!r} in it is only partly there")
                read_signal(run.line.run_id, key, line.text)

    def _begin(self, line: RunLine) -> None:
        self._require(f"the id of run {line.run_id[:40]!r}", flaw_in_name(line.run_id))
        if line.run_id in self.runs:
            raise self._damaged(f"run {line.run_id!r} is in it twice")
        for what, number in (("head", line.head), ("place", line.place)):
            self._require(f"the {what} of run {line.run_id!r}", flaw_in_count(number))
        self._run = self.runs[line.run_id] = Seen(line)
        self._at, self._held = None, 0

    def end_run(self) -> None:
        """All of a run was seen: is its head there, and can it be put together?"""
        run, at = self._run, self._at
        if run is None:
            return
        run_id = run.line.run_id
        if at is None or at.number != run.line.head:
            raise self._damaged(f"run {run_id!r} in it has no head")
        if at.place != run.line.place:
            raise self._damaged(f"run {run_id!r} in it says place {run.line.place}, and its head place {at.place}")
        for what, parcels in (("state", at.state), ("executors", at.executors)):
            for key, parcel in parcels.items():
                decode_stored(_valid, json_of(parcel), f"{what}[{key!r}] of run {run_id!r} in {self._name}")
        run.busy = run.busy or bool(at.messages) or at.wake is not None
        run.retention = at.header.retention
        self._run = self._at = None

    def _record(self, run: Seen, record: Record) -> None:
        entry, run_id = record.entry, run.line.run_id
        for part, why in entry_flaws(entry):
            raise self._damaged(f"the {part} of commit {entry.number if part != 'number' else '?'} of {run_id!r} {why}")
        if entry.run_id != run_id or entry.number <= run.number:
            raise self._damaged(f"commit {entry.number} of run {run_id!r} is out of place")
        if entry.workflow != run.workflow and run.number >= 0:
            raise self._damaged(f"run {run_id!r} in it is of two workflows")
        self._at, commit = after(self._at, record)
        run.number, run.workflow = entry.number, entry.workflow
        if self._at is not None and self._at.header.workflow != entry.workflow:
            raise self._damaged(f"run {run_id!r} in it is of two workflows")
        for what, name in _names(commit, self._at.header if self._at is not None and entry.frame else None):
            self._require(f"{what} in commit {entry.number} of run {run_id!r}", flaw_in_name(name))
        self._hold(record, commit)

    def _hold(self, record: Record, commit: Commit) -> None:
        """A checkpoint that is put together from many records holds what is in all of them."""
        taken = 2 * len(record.body) + PER_VALUE * _parcels(commit)
        self._held = taken if record.entry.frame else self._held + taken
        if self._max_memory is not None and self._held > self._max_memory:
            what = f"run {record.entry.run_id!r} in {self._name}, put together up to commit {commit.number},"
            raise too_large(what, self._max_memory, self._main)

    def _key(self, run: Seen, unique: str, key: str) -> None:
        why = flaw_in_name(key) if len(key) <= LONGEST else None
        if len(key) > _KEY:
            why = f"has {len(key):,} characters, and the limit is {_KEY:,}"
        self._require(f"the key {key[:40]!r} of run {run.line.run_id!r}", why)
        if unique in run.keys:
            raise self._damaged(f"{key!r} of run {run.line.run_id!r} is in it twice")
        run.keys.add(unique)

    def _require(self, what: str, flaw: str | None) -> None:
        if flaw is not None:
            raise self._damaged(f"{what} {flaw}")

    def _damaged(self, why: str) -> CheckpointCorrupt:
        return damage_error(self._name, why)


def after(before: Checkpoint | None, record: Record) -> tuple[Checkpoint | None, Commit]:
    """The checkpoint a record leads to; None for one that is kept only for its outputs: it is based on what is gone."""
    commit, shape = read_commit(record, DEFAULT_CODEC)
    what = f"checkpoint {record.entry.checkpoint_id} of run {record.entry.run_id!r}"
    if not is_listed_right(record.entry, commit, framed=shape.run is not None):
        raise CheckpointCorrupt(f"{what} is listed as something else than it is")
    if shape.run is not None:
        return apply(header_of(shape), None, commit, previous_id=shape.previous_id), commit
    if before is not None and before.number == commit.number - 1:
        return apply(before.header, before, commit), commit
    if record.entry.fleeting and record.entry.outputs:
        return None, commit
    raise CheckpointCorrupt(f"{what} tells only what changed, and what it changed from is missing")


def _names(commit: Commit, header: RunHeader | None) -> Iterator[tuple[str, str]]:
    """What stores find things by, besides entries."""
    yield from (("the id of a question", request.id) for request in commit.asked)
    yield from (("the id of a run inside", child.run_id) for child in commit.children.values() if child is not None)
    if header is None:
        return
    above = {"its caller": header.caller, "its parent": header.parent_run, "its parent checkpoint": header.parent_id}
    yield from ((what, name) for what, name in above.items() if name is not None)
    for name, value in header.tags.items():
        yield "a tag", name
        yield f"the tag {name[:40]!r}", value or "-"  # a value may be empty


def _parcels(commit: Commit) -> int:
    """How many values a commit holds, each an object of its own."""
    writes = sum(len(one.items) if isinstance(one, Appended) else 1 for one in commit.state.values())
    held = sum(len(parcels) for sources in (commit.held or {}).values() for parcels in sources.values())
    return writes + held + len(commit.messages or ()) + len(commit.executors) + len(commit.asked)
