"""What is stored of a run: whatever changes between two commits, each checkpoint is read again as it was."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stepwell.codec import encoded
from stepwell.codec.codec import Codec
from stepwell.graph.graph import Graph
from stepwell.kernel import apply, begin, merge, restore
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.commit import Commit, Stamp
from stepwell.model.message import Delivery, Outcome, Plan
from stepwell.model.state import StateView
from stepwell.storage import deltas as edits
from stepwell.storage import record as chain
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import CheckpointFilter
from stepwell.storage.json_text import json_of
from stepwell.storage.store_archive import StoreArchive
from stepwell.stores.memory.store import MemoryStore
from tests.properties.edits import EXECUTORS, Edit, Step, first_steps, steps

quick = settings(max_examples=80, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
CODEC = Codec()
GRAPH = Graph("a", {}, ())


@dataclass(frozen=True)
class Terms:
    """When a snapshot is written, and from which size on a value is packed and stored as what changed in it."""

    every: int
    waste: float
    record: int
    worth_it: int

    def hold(self) -> ExitStack:
        stack = ExitStack()
        for place, name, value in (
            (chain, "SNAPSHOT_EVERY", self.every),
            (chain, "_MEASURE_EVERY", self.every),
            (chain, "_WASTE", self.waste),
            (chain, "_RECORD", self.record),
            (edits, "WORTH_IT", self.worth_it),
            (encoded, "LARGE", self.worth_it),
        ):
            stack.enter_context(patch.object(place, name, value))
        return stack


terms = st.builds(
    Terms,
    st.sampled_from([3, 1, 2, 8]),
    st.sampled_from([1 / 3, 0.0, 3.0]),
    st.sampled_from([64, 1, 512]),
    st.sampled_from([1024, 1, 16]),
)


@dataclass(frozen=True)
class Seen:
    """A checkpoint in plain words."""

    state: dict[str, Any]
    saved: dict[str, Any]


class Run:
    """A run on a store, and beside it what every one of its checkpoints must be."""

    def __init__(self) -> None:
        self.storage = BuiltInStorage(MemoryStore())
        self.archive = self.open()
        first = begin("a", CODEC.pack(None, "$"), {id: CODEC.pack("", "$") for id in EXECUTORS}, self.stamp(0))
        self.at = apply(RunHeader("r", "w", {}, ""), None, first)
        self.first, self.epoch = first, 0
        self.model = [Seen({}, dict.fromkeys(EXECUTORS, ""))]
        self.kept = [self.at]

    def open(self) -> StoreArchive:
        return StoreArchive(self.storage._store, CODEC)

    @staticmethod
    def stamp(number: int) -> Stamp:
        return Stamp(f"id-{number}", "2026-01-01T00:00:00+00:00")

    async def begin(self) -> None:
        await self.archive.commit(self.first, self.at)

    async def take(self, step: Step) -> None:
        if step.reopened:
            self.archive = self.open()
            head = await self.archive.head("r")
            assert head is not None
            self.at = head
        if step.back is not None:
            await self._move_back(len(self.model) * step.back // 100)
        else:
            await self._superstep(step)

    async def _move_back(self, number: int) -> None:
        source = (await self.archive.at((await self.storage._store.checkpoints(CheckpointFilter(run_id="r")))[number]))[
            0
        ]
        self.epoch += 1
        header = replace(self.at.header, epoch=self.epoch)
        commit = restore(self.at, source, self.stamp(self.at.number + 1))
        self.model.append(self.model[number])
        await self._commit(commit, apply(header, None, commit, previous_id=source.stamp.checkpoint_id))

    async def _superstep(self, step: Step) -> None:
        before = self.model[-1]
        state, saved = dict(before.state), dict(before.saved)
        view = StateView(self.at.state, CODEC.pack, {})
        for edit in step.edits:
            _change(view, state, edit)
        for edit in step.saves:
            saved[edit.key] = edit.made_to(saved[edit.key])
        done = [Outcome(f"x.{id}", id, saved=CODEC.pack(saved[id], "$")) for id in EXECUTORS]
        done.append(Outcome("x.c", "c", writes=view.writes))
        plan = Plan(tuple(Delivery(one.delivery, one.executor, CODEC.pack(None, "$"), ()) for one in done), {})
        outcomes, routes = {one.delivery: one for one in done}, {one.delivery: () for one in done}
        commit = merge(GRAPH, self.at, plan, outcomes, routes, CODEC.pack, self.stamp(self.at.number + 1)).commit
        self.model.append(Seen(state, saved))
        await self._commit(commit, apply(self.at.header, self.at, commit))

    async def _commit(self, commit: Commit, after: Checkpoint) -> None:
        await self.archive.commit(commit, after, before=self.at)
        self.at = after
        self.kept.append(after)


def _change(view: StateView, state: dict[str, Any], edit: Edit) -> None:
    """Do to the real state what the edit says, and to a plain dict."""
    there = state.get(edit.key)
    if edit.kind == "delete" or (edit.kind == "append" and not isinstance(there, list | None)):
        if edit.key in state:
            view.delete(edit.key)
            del state[edit.key]
    elif edit.kind == "append" and not (there is None and edit.key in state):
        view.append(edit.key, edit.value)
        state[edit.key] = [*(there or []), *edit.value]
    elif edit.kind != "append":
        state[edit.key] = edit.made_to(there)
        view.set(edit.key, state[edit.key])


def letter(became: str) -> Step:
    """One letter in the middle of a text becomes another."""
    return Step((Edit("splice", "text", became, 50, 51),))


@quick
@example(Terms(8, 1 / 3, 512, 1024), Step((Edit("set", "text", "é" * 1000),)), [letter("è"), letter("©"), letter("é")])
@given(terms, first_steps, st.lists(steps, min_size=1, max_size=20))
def test_every_checkpoint_is_read_again_exactly_as_it_was(terms: Terms, first: Step, steps: list[Step]) -> None:
    with terms.hold():
        asyncio.run(checked(terms, [first, *steps]))


async def checked(terms: Terms, steps: list[Step]) -> None:
    run = Run()
    await run.begin()
    for step in steps:
        await run.take(step)
    entries = await run.storage._store.checkpoints(CheckpointFilter(run_id="r"))
    assert [entry.number for entry in entries] == list(range(len(steps) + 1))
    event(
        f"{sum(b'splice' in one.body for one in await run.storage._store.history('r')) // 3 * 3}+ records with splices"
    )
    event(f"{sum(entry.is_snapshot for entry in entries) * 10 // len(entries)} of 10 records are frames")
    listed = await run.storage.list_checkpoints(run_id="r")
    for entry, expected, kept, shown in zip(entries, run.model, run.kept, listed, strict=True):
        read, commit = await run.open().at(entry)
        assert commit.number == read.number == entry.number
        assert opened(read.state) == spelled(expected.state), f"state at commit {entry.number}"
        assert opened(read.executors) == spelled(expected.saved), f"executors at commit {entry.number}"
        assert (shown.number, dict(shown.state)) == (entry.number, expected.state)
        assert said(read) == said(kept), f"commit {entry.number}, as it was when it was made"
    for number in range(len(entries)):
        await check_length(run, terms, number)


def opened(parcels: Any) -> dict[str, Any]:
    return spelled({key: parcel.open() for key, parcel in parcels.items()})


def spelled(values: dict[str, Any]) -> dict[str, Any]:
    """With the types of values: 1 and True and 1.0 are not the same."""
    return {key: repr(value) for key, value in values.items()}


def said(at: Checkpoint) -> tuple[Any, ...]:
    """Everything of a checkpoint but the values, and of these the very text."""
    texts = {key: json_of(parcel) for key, parcel in at.state.items()}
    plain = (at.number, at.stamp, at.previous_id, at.status, at.iteration, at.place, at.header.epoch)
    return *plain, texts, {id: json_of(parcel) for id, parcel in at.executors.items()}


async def check_length(run: Run, terms: Terms, number: int) -> None:
    """A chain is never longer than it pays: it was asked every so often, and each time too little was read in vain."""
    links = await run.storage._store.read("r", number)
    first = links[0].entry.number
    assert [link.entry.number for link in links] == list(range(first, number + 1))
    assert [link.entry.is_snapshot for link in links] == [True] + [False] * (len(links) - 1)
    most = 0
    for length in range(terms.every, len(links), terms.every):
        at = run.kept[first + length]
        parcels = [*at.state.values(), *at.executors.values()]
        size = sum(len(json_of(parcel)) for parcel in parcels)
        read = sum(len(link.body) for link in links[:length]) + length * terms.record
        assert read - size < size * terms.waste + len(parcels), f"a chain of {length} records reads {read} for {size}"
        most = max(most, size)
    assert len(links) <= terms.every + (1 + terms.waste) * most / terms.record + 1
