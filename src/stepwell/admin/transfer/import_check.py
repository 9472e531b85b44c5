"""Checks an exported run completely before anything of it is stored.

A file may come from anywhere. What passes these checks can be written to every store and read back,
and checking it stays within a memory limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

import msgspec

from stepwell.admin.transfer.container import (
    PER_VALUE,
    Header,
    Line,
    LogLine,
    Reader,
    RecordLine,
    RunLine,
    SignalLine,
    too_large_error,
)
from stepwell.admin.transfer.run_copy import PARTLY_HERE, check_log_entry, check_record
from stepwell.errors import CheckpointCorrupt
from stepwell.model.checkpoint import Checkpoint, Retention, RunHeader
from stepwell.model.commit import Commit
from stepwell.model.state_writes import Appended
from stepwell.storage.checked_reads import damage_error, decode_stored
from stepwell.storage.json_text import json_of
from stepwell.storage.limits import LONGEST, entry_flaws, flaw_in_count, flaw_in_name
from stepwell.storage.signals import read_signal
from stepwell.storage.stored_values import Record, SignalRow

_LONGEST_KEY = LONGEST + 1000  # characters: the key of a signal contains an id
_check_json = msgspec.json.Decoder(msgspec.Raw).decode

Opener = Callable[[], BinaryIO]


@dataclass(slots=True)
class RunContents:
    """What a file contains of one run, without its payloads."""

    line: RunLine
    number: int = -1  # of the last record read
    workflow: str = ""
    keys: set[str] = field(default_factory=set)  # of log entries and signals
    busy: bool = False  # a superstep is in progress, or the run sleeps
    retention: Retention = Retention.FullHistory


def check_file(open_file: Opener, name: str, max_memory: int | None) -> tuple[Header, dict[str, RunContents]]:
    """Read a file to its end and return what it contains: its header, and its runs by id.

    Raises CheckpointCorrupt, naming the file, if anything in it is wrong, and ImportRefused if
    reading it takes more memory than `max_memory`.
    """
    with open_file() as file, Reader(file, name, max_memory) as reader:
        file_check = _FileCheck(name, max_memory, reader.header.run_id)
        for line in reader.lines():
            file_check.check_line(line)
        file_check.end_run()
    main = file_check.runs.get(reader.header.run_id)
    if main is None or main.line.role != "run":
        raise CheckpointCorrupt(f"{name} is damaged: its header names run {reader.header.run_id!r}, which is not in it")
    return reader.header, file_check.runs


class _FileCheck:
    def __init__(self, name: str, max_memory: int | None, main: str) -> None:
        self._name, self._max_memory, self._main = name, max_memory, main
        self.runs: dict[str, RunContents] = {}
        self._run: RunContents | None = None
        self._checkpoint: Checkpoint | None = None
        self._memory = 0  # estimated size of the current checkpoint, in bytes

    def check_line(self, line: Line) -> None:
        if isinstance(line, RunLine):
            self.end_run()
            self._begin_run(line)
            return
        contents = self._run
        if contents is None:
            raise self._make_error("it does not start with a run")
        match line:
            case RecordLine():
                self._check_record(contents, line.record)
            case LogLine(key=key):
                self._check_key(contents, f"memory/{key}", key)
                check_log_entry(contents.line.run_id, key, line.text)
                contents.busy = True
            case SignalLine(key=key):
                self._check_key(contents, f"mail/{key}", key)
                # Our own mark: a file that contained it could make a complete run look unfinished.
                if key == PARTLY_HERE:
                    raise self._make_error(f"run {contents.line.run_id!r} in it is incomplete")
                read_signal(contents.line.run_id, SignalRow(key, line.text))

    def _begin_run(self, line: RunLine) -> None:
        self._refuse_flaw(f"the id of run {line.run_id[:40]!r}", flaw_in_name(line.run_id))
        if line.run_id in self.runs:
            raise self._make_error(f"it contains run {line.run_id!r} twice")
        for what, number in (("head", line.head), ("place", line.place)):
            self._refuse_flaw(f"the {what} of run {line.run_id!r}", flaw_in_count(number))
        self._run = self.runs[line.run_id] = RunContents(line)
        self._checkpoint, self._memory = None, 0

    def end_run(self) -> None:
        """Check that a run that was read to its end has a head with a valid state."""
        contents, head = self._run, self._checkpoint
        if contents is None:
            return
        run_id = contents.line.run_id
        if head is None or head.number != contents.line.head:
            raise self._make_error(f"run {run_id!r} in it has no head")
        if head.place != contents.line.place:
            raise self._make_error(
                f"run {run_id!r} in it has place {contents.line.place}, but its head has place {head.place}"
            )
        # Deltas splice text into values, so a value is known to be JSON only once it is put
        # together.
        for what, payloads in (("state", head.state), ("executors", head.executors)):
            for key, payload in payloads.items():
                decode_stored(_check_json, json_of(payload), f"{what}[{key!r}] of run {run_id!r} in {self._name}")
        contents.busy = contents.busy or bool(head.messages) or head.wake is not None
        contents.retention = head.header.retention
        self._run = self._checkpoint = None

    def _check_record(self, contents: RunContents, record: Record) -> None:
        entry, run_id = record.entry, contents.line.run_id
        for part, why in entry_flaws(entry):
            raise self._make_error(
                f"the {part} of commit {entry.number if part != 'number' else '?'} of {run_id!r} {why}"
            )
        if entry.run_id != run_id or entry.number <= contents.number:
            raise self._make_error(f"commit {entry.number} of run {run_id!r} is out of place")
        if entry.workflow != contents.workflow and contents.number >= 0:
            raise self._make_error(f"run {run_id!r} in it belongs to two workflows")
        self._checkpoint, commit, _ = check_record(self._checkpoint, record)
        contents.number, contents.workflow = entry.number, entry.workflow
        if self._checkpoint is not None and self._checkpoint.header.workflow != entry.workflow:
            raise self._make_error(f"run {run_id!r} in it belongs to two workflows")
        header = self._checkpoint.header if self._checkpoint is not None and entry.is_snapshot else None
        for what, name in _names(commit, header):
            self._refuse_flaw(f"{what} in commit {entry.number} of run {run_id!r}", flaw_in_name(name))
        self._count_memory(record, commit)

    def _count_memory(self, record: Record, commit: Commit) -> None:
        """Add a record to the estimated size of the checkpoint.

        A checkpoint holds what all its deltas hold.
        """
        writes = sum(len(write.items) if isinstance(write, Appended) else 1 for write in commit.state.values())
        held = sum(len(payloads) for sources in (commit.held or {}).values() for payloads in sources.values())
        # Each payload is an object in memory.
        payloads = writes + held + len(commit.messages or ()) + len(commit.executors) + len(commit.asked)
        size = 2 * len(record.body) + PER_VALUE * payloads
        self._memory = size if record.entry.is_snapshot else self._memory + size
        if self._max_memory is not None and self._memory > self._max_memory:
            what = f"run {record.entry.run_id!r} in {self._name}, read up to commit {commit.number},"
            raise too_large_error(what, self._max_memory, self._main)

    def _check_key(self, contents: RunContents, unique: str, key: str) -> None:
        flaw = flaw_in_name(key) if len(key) <= LONGEST else None
        if len(key) > _LONGEST_KEY:
            flaw = f"has {len(key):,} characters, and the limit is {_LONGEST_KEY:,}"
        self._refuse_flaw(f"the key {key[:40]!r} of run {contents.line.run_id!r}", flaw)
        if unique in contents.keys:
            raise self._make_error(f"it contains {key!r} of run {contents.line.run_id!r} twice")
        contents.keys.add(unique)

    def _refuse_flaw(self, what: str, flaw: str | None) -> None:
        if flaw is not None:
            raise self._make_error(f"{what} {flaw}")

    def _make_error(self, why: str) -> CheckpointCorrupt:
        return damage_error(self._name, why)


def _names(commit: Commit, header: RunHeader | None) -> Iterator[tuple[str, str]]:
    """Yield the names in a commit that stores use as keys, besides those of its entry."""
    yield from (("the id of a request", request.id) for request in commit.asked)
    yield from (
        ("the id of a sub-workflow run", child.run_id) for child in commit.children.values() if child is not None
    )
    yield from _tags(commit.tags)
    if header is None:
        return
    above = {"its caller": header.caller, "its parent": header.parent_run, "its parent checkpoint": header.parent_id}
    yield from ((what, name) for what, name in above.items() if name is not None)
    yield from _tags(header.tags)


def _tags(tags: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    for name, value in tags.items():
        yield "a tag", name
        # The value of a tag may be empty, unlike a name.
        yield f"the tag {name[:40]!r}", value or "-"
