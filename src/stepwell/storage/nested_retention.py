"""Runs inside a run that keeps only its latest: what goes of them when the run around them has moved on.

While a run inside is driven by an answer, the run around it may still refer to where it was before: a crash repeats
the call, and a fork copies the run inside from there. So a run inside that was answered drops nothing. Once the run
around it has committed, it refers to where the run inside is now, and everything before that is superseded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stepwell.codec.codec import Codec
from stepwell.kernel.lifecycle import apply
from stepwell.model.superstep import Checkpoint, Child, Commit, RunHeader
from stepwell.storage.ids import forked_child_id
from stepwell.storage.kept_outputs import outputs_alone
from stepwell.storage.port import Entry, Record, RunEntry, Store
from stepwell.storage.record import build_record
from stepwell.storage.wire.format import header_of, read_commit


class Superseded(NamedTuple):
    """The records of a run inside that nobody refers to any more."""

    run_id: str
    first: int
    upto: int | None  # the record that stays; None: the newest


def superseded_inside(before: Checkpoint, after: Checkpoint) -> Iterator[Superseded]:
    """Find what a run referred to at one checkpoint, and at the next no more."""
    for key, was in before.children.items():
        now = after.children.get(key)
        if now == was:
            continue
        driven = _driven_run_id(before.header, was)
        upto = now.number if now is not None and now.run_id == driven else None
        if now is None or upto is not None:
            yield Superseded(driven, was.number if driven == was.run_id else 0, upto)


def _driven_run_id(header: RunHeader, child: Child) -> str:
    """The run that an answer moves on: a fork of the run around it moves on a fork of the run inside."""
    if child.caller == Child.caller_of(header.run_id, header.epoch):
        return child.run_id
    return forked_child_id(header.run_id, header.epoch, child.run_id)


class _Step(NamedTuple):
    record: Record
    commit: Commit
    before: Checkpoint | None
    after: Checkpoint | None  # None: what it is based on is gone


async def drop_superseded(store: Store, codec: Codec, superseded: Superseded) -> None:
    """Take the records out, except the outputs in them, and do the same in the runs inside that run.

    It may be called again after a crash, and goes on where it was.
    """
    head = await store.head(superseded.run_id)
    if head is None or not head.entry.fleeting:
        return
    upto = head.entry.number if superseded.upto is None else superseded.upto
    start = await _first_readable(store, superseded.run_id, min(superseded.first, upto))
    records = await store.history(superseded.run_id, after=start - 1, upto=upto)
    if not records or records[-1].entry.number != upto:
        return
    steps = _steps(records, codec)
    if not steps[-1].record.entry.is_snapshot and steps[-1].after is None:
        return  # it can only be read together with what would go
    for step in steps:
        if step.before is not None and step.after is not None:
            for inner in superseded_inside(step.before, step.after):
                await drop_superseded(store, codec, inner)
    going = [record.entry.number for record in records[:-1] if not record.entry.outputs]
    whole = [outputs_alone(record) for record in records[:-1] if record.entry.outputs]
    if going or whole:
        await store.thin_out(superseded.run_id, going, whole=[*whole, *_standing(steps[-1])])


async def _first_readable(store: Store, run_id: str, first: int) -> int:
    """Where to begin to read, so that a record can be understood: at the frame it is based on.

    A call before a crash may have taken that out already. Then the record holds outputs alone, and is read by itself.
    """
    entries = {entry.number: entry for entry in await store.entries(run_id=run_id)}
    start = max((number for number, entry in entries.items() if entry.is_snapshot and number <= first), default=first)
    return start if all(number in entries for number in range(start, first)) else first


def _standing(last: _Step) -> list[Record]:
    """The record that stays, if it does not stand alone."""
    if last.record.entry.is_snapshot or last.after is None:
        return []
    return [build_record(last.commit, last.after, snapshot=True)]


def _steps(records: Sequence[Record], codec: Codec) -> list[_Step]:
    steps: list[_Step] = []
    at: Checkpoint | None = None
    for record in records:
        commit, shape = read_commit(record, codec)
        before = at if at is not None and at.number == commit.number - 1 else None
        if shape.run is not None:
            at = apply(header_of(shape), None, commit, previous_id=shape.previous_id)
        else:
            at = None if before is None else apply(before.header, before, commit)
        steps.append(_Step(record, commit, before, at))
    return steps


async def drop_left_over(store: Store, codec: Codec, at: Checkpoint, commit: Commit) -> None:
    """Take out what a crash has left of the runs inside that a checkpoint refers to, and of those it is done with.

    `commit` led to the checkpoint.
    """
    mine = Child.caller_of(at.run_id, at.header.epoch)
    places = [(child.run_id, child.number) for child in at.children.values() if child.caller == mine]
    for key, child in commit.children.items():
        if child is None:
            places += [(run.run_id, run.number) for run in await _find_inner_runs(store, at.header, key)]
    for run_id, number in places:
        old = [entry.number for entry in await store.entries(run_id=run_id) if _is_old(entry, number)]
        if old:
            await drop_superseded(store, codec, Superseded(run_id, min(old), number))


async def _find_inner_runs(store: Store, header: RunHeader, key: str) -> list[RunEntry]:
    """The runs inside that go by a key and work for this run: the one that was called first, or its forks."""
    ids = {key, *(forked_child_id(header.run_id, epoch, key) for epoch in (0, header.epoch))}
    runs = [await store.run(id) for id in sorted(ids)]
    return [run for run in runs if run is not None and run.metadata.caller == header.run_id]


def _is_old(entry: Entry, number: int) -> bool:
    return entry.fleeting and not entry.outputs and entry.number < number
