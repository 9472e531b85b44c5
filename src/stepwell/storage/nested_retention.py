"""Retention for the children of a run that keeps only its latest checkpoint.

While a response drives a child (the run of a sub-workflow), its caller may still refer to where the
child was before: a crash repeats the call, and a fork copies the child from there. So a child that
got a response drops nothing itself. Once the caller has committed, it refers to where the child is
now, and everything before that is superseded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stepwell.codec.codec import Codec
from stepwell.kernel.commit import apply
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.child import Child
from stepwell.model.commit import Commit
from stepwell.storage.filters import CheckpointFilter
from stepwell.storage.ids import forked_child_id
from stepwell.storage.kept_outputs import outputs_alone
from stepwell.storage.port import Store
from stepwell.storage.record import build_record
from stepwell.storage.stored_values import Entry, Record, RunEntry
from stepwell.storage.wire.format import header_of, read_commit


class Superseded(NamedTuple):
    """The records of a child that its caller no longer refers to."""

    run_id: str
    first: int
    upto: int | None  # the record that stays; None: the newest


def superseded_inside(before: Checkpoint, after: Checkpoint) -> Iterator[Superseded]:
    """Find what a run referred to at one checkpoint and no longer does at the next."""
    for key, was in before.children.items():
        now = after.children.get(key)
        if now == was:  # the caller still refers to the same checkpoint
            continue
        driven = _driven_run_id(before.header, was)
        upto = now.number if now is not None and now.run_id == driven else None
        if now is None or upto is not None:
            yield Superseded(driven, was.number if driven == was.run_id else 0, upto)


def _driven_run_id(header: RunHeader, child: Child) -> str:
    """Return the run that a response drives: the child or, in a fork of its caller, its copy."""
    if child.caller == Child.caller_of(header.run_id, header.epoch):
        return child.run_id
    return forked_child_id(header.run_id, header.epoch, child.run_id)


class _Transition(NamedTuple):
    record: Record
    commit: Commit
    before: Checkpoint | None
    after: Checkpoint | None  # None: the record it is a delta to is gone


async def drop_superseded(store: Store, codec: Codec, superseded: Superseded) -> None:
    """Remove the records, except the outputs in them, and do the same in the children of that run.

    It may be repeated after a crash, and continues where it stopped.
    """
    newest = await store.checkpoints(CheckpointFilter(run_id=superseded.run_id), limit=1)
    # A child that keeps its full history drops nothing, whatever its caller keeps.
    if not newest or not newest[0].latest_only:
        return
    upto = newest[0].number if superseded.upto is None else superseded.upto
    start = await _first_readable(store, superseded.run_id, min(superseded.first, upto))
    records = await store.history(superseded.run_id, after=start - 1, upto=upto)
    if not records or records[-1].entry.number != upto:
        return
    transitions = _transitions(records, codec)
    if not transitions[-1].record.entry.is_snapshot and transitions[-1].after is None:
        return  # it can only be read together with the records that would be removed
    # Grandchildren first: the records about to go are the only ones that name them.
    for transition in transitions:
        if transition.before is not None and transition.after is not None:
            for inner in superseded_inside(transition.before, transition.after):
                await drop_superseded(store, codec, inner)
    going = [record.entry.number for record in records[:-1] if not record.entry.outputs]
    reduced = [outputs_alone(record) for record in records[:-1] if record.entry.outputs]
    if going or reduced:
        await store.rewrite(superseded.run_id, replace=[*reduced, *_as_snapshot(transitions[-1])], remove=going)


async def _first_readable(store: Store, run_id: str, first: int) -> int:
    """Return where to start reading to decode a record: at the snapshot it is based on.

    An earlier call that crashed may have removed that snapshot. Then the record holds outputs alone
    and can be read by itself.
    """
    entries = {entry.number: entry for entry in await store.checkpoints(CheckpointFilter(run_id=run_id))}
    start = max((number for number, entry in entries.items() if entry.is_snapshot and number <= first), default=first)
    return start if all(number in entries for number in range(start, first)) else first


def _as_snapshot(last: _Transition) -> list[Record]:
    """Return the record that stays as a snapshot, unless it is one already."""
    if last.record.entry.is_snapshot or last.after is None:
        return []
    return [build_record(last.commit, last.after, snapshot=True)]


def _transitions(records: Sequence[Record], codec: Codec) -> list[_Transition]:
    transitions: list[_Transition] = []
    at: Checkpoint | None = None
    for record in records:
        commit, shape = read_commit(record, codec)
        before = at if at is not None and at.number == commit.number - 1 else None
        if shape.run is not None:
            at = apply(header_of(shape), None, commit, previous_id=shape.previous_id)
        else:
            at = None if before is None else apply(before.header, before, commit)
        transitions.append(_Transition(record, commit, before, at))
    return transitions


async def drop_left_over(store: Store, codec: Codec, at: Checkpoint, commit: Commit) -> None:
    """Remove what a crash left of the children of a checkpoint, current and finished.

    `commit` is the one that led to the checkpoint.
    """
    mine = Child.caller_of(at.run_id, at.header.epoch)
    kept = [(child.run_id, child.number) for child in at.children.values() if child.caller == mine]
    for key, child in commit.children.items():
        if child is None:
            kept += [(run.run_id, run.number) for run in await _find_inner_runs(store, at.header, key)]
    for run_id, number in kept:
        old = [
            entry.number for entry in await store.checkpoints(CheckpointFilter(run_id=run_id)) if _is_old(entry, number)
        ]
        if old:
            await drop_superseded(store, codec, Superseded(run_id, min(old), number))


async def _find_inner_runs(store: Store, header: RunHeader, key: str) -> list[RunEntry]:
    """Return the children of this run under a key: the original and its forks."""
    # A copy made together with a fork of the caller has epoch 0; one made when a response drove
    # the child has the caller's epoch.
    ids = {key, *(forked_child_id(header.run_id, epoch, key) for epoch in (0, header.epoch))}
    runs = [await store.run(id) for id in sorted(ids)]
    return [run for run in runs if run is not None and run.metadata.caller == header.run_id]


def _is_old(entry: Entry, number: int) -> bool:
    return entry.latest_only and not entry.outputs and entry.number < number
