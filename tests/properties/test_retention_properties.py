"""Runs that keep only their latest checkpoint: whatever is done, they come to what those come to that keep all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, event, example, given, settings
from hypothesis import strategies as st

from stepwell import FullHistory, LatestOnly, Retention, WorkflowRunResult
from stepwell.storage import record as chain
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import ALL_RUNS, CheckpointFilter
from stepwell.storage.stored_values import Record
from stepwell.stores.memory.store import MemoryStore
from tests.properties.errands import Answer, Question, Work, office, works

quick = settings(
    max_examples=35,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
    phases=set(Phase) - {Phase.explain},  # it would take minutes
)
FLOORS = 2


@dataclass(frozen=True)
class Act:
    """Something done to one of the runs; which, and which of its questions, is counted round."""

    kind: Literal["answer", "fork", "resume", "thin", "drop"]
    run: int = 0
    which: int = 0


numbers = st.integers(0, 5)
acts = st.builds(
    Act,
    st.sampled_from(["answer", "answer", "answer", "answer", "fork", "fork", "resume", "thin", "drop"]),
    numbers,
    numbers,
)


class Place:
    """One storage, and what is done to the runs in it."""

    def __init__(self, retention: Retention) -> None:
        self.storage = BuiltInStorage(MemoryStore(), retention=retention)
        self.seen: dict[str, tuple[int, dict[str, Any]]] = {}  # checkpoints that must be there, by id
        self.growth = 0  # of a run inside, in one act

    async def run(self, run_id: str, **how: Any) -> Told:
        """As another process would: nothing is left of the one before but what is stored."""
        return Told.of(await office(FLOORS, self.storage).run(run_id=run_id, **how))

    async def fork(self, run_id: str, into: str) -> Told:
        latest = await self.storage.get_latest(run_id=run_id)
        assert latest is not None
        return await self.run(into, checkpoint_id=latest.checkpoint_id)

    async def drop(self, run_id: str) -> None:
        for id in await self.storage.list_checkpoint_ids(run_id=run_id):
            assert await self.storage.delete(id)
            self.seen.pop(id, None)

    async def state(self, run_id: str) -> dict[str, Any]:
        latest = await self.storage.get_latest(run_id=run_id)
        assert latest is not None
        return dict((await self.storage.load(latest.checkpoint_id)).state)

    async def records(self) -> dict[str, list[Record]]:
        """Everything that is stored, by run; of runs inside, too."""
        runs = await self.storage._store.runs(ALL_RUNS)
        return {run.run_id: await self.storage._store.history(run.run_id) for run in runs}

    async def callers(self) -> dict[str, str | None]:
        return {run.run_id: run.metadata.caller for run in await self.storage._store.runs(ALL_RUNS)}

    async def thin(self, run_id: str, which: int) -> None:
        """Delete one of the checkpoints that are not the newest. Outputs go with theirs, so these stay."""
        every = await self.storage._store.checkpoints(CheckpointFilter(run_id=run_id))
        older = [one for one in every[:-1] if not one.outputs]
        if older:
            id = older[which * 7 % len(older)].checkpoint_id
            assert await self.storage.delete(id)
            del self.seen[id]


@dataclass(frozen=True)
class Told:
    """What a run says of itself."""

    outputs: tuple[str, ...]
    status: str
    asks: tuple[Question, ...]
    ids: tuple[str, ...] = field(compare=False)  # of the questions: those of a fork of a fork may differ

    @classmethod
    def of(cls, result: WorkflowRunResult) -> Told:
        asked = result.get_request_info_events()
        told = tuple(result.get_outputs()), result.get_final_state().value, tuple(one.data for one in asked)
        return cls(*told, tuple(one.request_id for one in asked))


class Twins:
    """The same done in two places: one keeps all, the other only what is newest."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.full, self.latest = Place(FullHistory), Place(LatestOnly)
        self.runs: dict[str, list[Told]] = {}  # what each says of itself, in both places
        self.forks = 0

    async def begin(self, work: Work) -> None:
        await self.drive("r", message=work)

    @property
    def places(self) -> tuple[Place, Place]:
        return self.full, self.latest

    async def drive(self, run_id: str, **how: Any) -> None:
        self._heard(run_id, [await place.run(run_id, **how) for place in self.places], f"after {how}")

    def _heard(self, run_id: str, told: list[Told], what: str) -> None:
        assert told[0] == told[1], f"run {run_id!r} {what}"
        self.runs[run_id] = told

    async def answer(self, run_id: str, which: int) -> None:
        answers = [{one.ids[which % len(one.ids)]: Answer(which % 2 == 0)} for one in self.runs[run_id]]
        told = [await place.run(run_id, responses=one) for place, one in zip(self.places, answers, strict=True)]
        self._heard(run_id, told, f"after {answers}")

    async def act(self, act: Act) -> None:
        run_id = sorted(self.runs)[act.run % len(self.runs)]
        match act.kind:
            case "answer" if self.runs[run_id][0].ids:
                await self.answer(run_id, act.which)
            case "answer" | "resume":
                await self.drive(run_id)
            case "fork":
                self.forks += 1
                name = f"fork {self.forks}"
                self._heard(name, [await place.fork(run_id, name) for place in self.places], f"begun from {run_id!r}")
            case "thin":
                await self.full.thin(run_id, act.which)
            case "drop" if len(self.runs) > 1:
                del self.runs[run_id]
                for place in self.places:
                    await place.drop(run_id)

    async def check(self) -> None:
        for run_id in list(self.runs):
            assert await self.latest.state(run_id) == await self.full.state(run_id), f"state of {run_id!r}"
            assert len(await self.latest.storage.list_checkpoint_ids(run_id=run_id)) == 1
            await self.drive(run_id)
        await check_all_readable(self.full)
        await check_few_records(self.latest, self.every)


async def check_all_readable(place: Place) -> None:
    """Every checkpoint that was ever there, and was not deleted, is there as it was."""
    listed = await place.storage.list_checkpoints()
    now = {one.checkpoint_id: (one.number, dict(one.state)) for one in listed}
    assert place.seen.items() <= now.items()
    for id, expected in now.items():
        loaded = await place.storage.load(id)
        assert (loaded.number, dict(loaded.state)) == expected
    place.seen = now


async def check_few_records(place: Place, every: int) -> None:
    """Of a run there are no more records than one chain has, and those with outputs."""
    callers = await place.callers()
    for run_id, records in (await place.records()).items():
        quiet = [one.entry.number for one in records if not one.entry.outputs]
        most = every if callers[run_id] is None else 2 * (every + place.growth)
        assert len(quiet) <= most, f"run {run_id!r} has kept {quiet} and outputs"


async def check_others_untouched(place: Place, before: dict[str, list[Record]], involved: set[str]) -> None:
    """Nothing was written to runs that had nothing to do with what was done."""
    callers, after = await place.callers(), await place.records()
    for run_id, records in before.items():
        top: str | None = run_id
        while top is not None and callers.get(top) is not None:
            top = callers[top]
        if top not in involved and top in callers:
            assert after.get(run_id) == records, f"run {run_id!r} was changed, though only {involved} was driven"


INSIDE = Work((Work((Work(("ask", "ask")),)),))
FORKED = [Act("fork"), *[Act("answer", 1)] * 3, Act("answer", 0), Act("fork", 0), *[Act("answer", 2)] * 2]


@quick
@example(INSIDE, FORKED, 1)  # the run inside has moved on with the original when the fork is answered
@given(works(FLOORS, 4), st.lists(acts, min_size=3, max_size=10), st.sampled_from([1, 2, 3, 7]))
def test_what_keeps_only_the_latest_comes_to_the_same_as_what_keeps_all(
    work: Work, acts: list[Act], every: int
) -> None:
    with patch.object(chain, "SNAPSHOT_EVERY", every), patch.object(chain, "_WASTE", 0.0):
        asyncio.run(lived(work, acts, every))


async def lived(work: Work, acts: list[Act], every: int) -> None:
    twins = Twins(every)
    await twins.begin(work)
    await twins.check()
    for act in acts:
        before = {place: await place.records() for place in twins.places}
        known = set(twins.runs)
        target = sorted(known)[act.run % len(known)]
        await twins.act(act)
        involved = {*set(twins.runs) - known, *(() if act.kind == "fork" else (target,))}
        for place, records in before.items():
            await check_others_untouched(place, records, involved)
            await _note_growth(place, records)
        await twins.check()
    event(f"{twins.forks} forks")
    inside = [run for run, caller in (await twins.full.callers()).items() if caller is not None]
    event(f"{len(inside)} runs inside")


async def _note_growth(place: Place, before: dict[str, list[Record]]) -> None:
    for run_id, records in (await place.records()).items():
        was = before[run_id][-1].entry.number if run_id in before else -1
        place.growth = max(place.growth, records[-1].entry.number - was)
