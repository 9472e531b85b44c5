"""Worlds in which many people answer at once, while programs drive the run, die, or cancel it.

Questions are asked at every depth, by handlers that wait in their middle too, with deadlines and withdrawals. Nothing
in such a plan depends on the order of things, so the model needs to know only which answers the handlers got. What is
listed must be what can be answered; an answer that was accepted must be used, or a warning must be on record.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from stepwell import RequestError, ResponseRejected, RunError
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.kernel import open_requests
from stepwell.storage import clock
from stepwell.storage.filters import ALL_RUNS, RequestFilter, shows_requests
from stepwell.storage.store_archive import StoreArchive
from stepwell.storage.stored_values import RequestEntry, RunEntry
from tests.simulation.actors import WORLD
from tests.simulation.crowd_model import foretold_in_any_order
from tests.simulation.model import first_token
from tests.simulation.plan import Fault
from tests.simulation.verdict import difference
from tests.simulation.witness import Drive, WitnessedStore
from tests.simulation.world import RUN, World

_MOST_DRIVES = 200


class CrowdedWorld(World):
    """A run that people answer and cancel whenever they like."""

    _values = 0

    async def live(self) -> None:
        WORLD.set(self)
        for turn in range(_MOST_DRIVES):
            run = await self.bare.run(RUN)
            if run is not None and run.status == "IDLE" and not run.signalled:
                break
            fault = self.plan.faults[turn] if turn < len(self.plan.faults) else None
            if run is not None:
                await self._meet_people(run)
            await self.drive({"message": first_token(self.plan)} if run is None else {}, fault)
            self.check()
        else:
            self.witness.broken.append(f"the run did not end in {_MOST_DRIVES} drives")
        self.check()
        self.witness.broken += await self._find_wrong()
        self.check()

    async def _meet_people(self, run: RunEntry) -> None:
        """Nobody drives the run: what is listed can be answered, and nothing else."""
        listed = await self.bare.requests(RequestFilter(run_id=RUN))
        await self._check_listed(run, listed)
        dice = self.loop.dice
        if listed and dice.randrange(3):
            for request in dice.sample(listed, dice.randrange(1, len(listed) + 1)):
                await self._check_answered(request)
        closed = sorted(self.witness.questions.keys() - {request.request_id for request in listed})
        if closed and not dice.randrange(4):
            await self._check_refused(dice.choice(closed))
        if run.wake is not None and (not listed or not dice.randrange(3)):
            self.clock.until(datetime.fromisoformat(run.wake))

    async def _check_listed(self, run: RunEntry, listed: list[RequestEntry]) -> None:
        stored = await StoreArchive(self.storage(self.bare)._store, DEFAULT_CODEC).look(RUN)
        assert stored.head is not None
        is_shown = shows_requests(run.status, has_owner=run.lease is not None)
        expected = sorted(open_requests(stored.head, stored.log)) if is_shown else []
        names = sorted(request.request_id for request in listed)
        if names != expected:
            self.witness.broken.append(f"{names} are listed of a run that is {run.status}, but open are {expected}")

    async def _check_answered(self, request: RequestEntry) -> None:
        """Answer a request that is listed: two people, one after the other. The first one wins."""
        id, posted = request.request_id, self.witness.posted
        was_posted = id in posted
        is_late = request.deadline is not None and clock.stamp() >= request.deadline
        values = self._new_values()
        errors = [await self._respond(id, value) for value in values]
        run = await self.bare.run(RUN)
        if run is not None and not shows_requests(run.status, has_owner=run.lease is not None):
            return  # a program that was left has let go of it meanwhile
        if is_late and not was_posted:
            as_it_should = all(isinstance(error, RequestError) for error in errors)
        else:
            as_it_should = (errors[0] is None) is not was_posted and isinstance(errors[1], ResponseRejected)
        if not as_it_should:
            self.witness.broken.append(f"{id} was listed, late: {is_late}, answered: {was_posted}, and gave {errors!r}")

    def _new_values(self) -> tuple[int, int]:
        """Two answers that nobody has given before."""
        self._values += 2
        return self._values - 1, self._values

    async def _check_refused(self, id: str) -> None:
        if await self._respond(id, -5000) is None:
            self.witness.broken.append(f"{id} is not listed, but an answer to it was accepted")

    async def _respond(self, id: str, value: int) -> Exception | None:
        """Answer as a program elsewhere does; return why it was refused."""
        drive = Drive(0, set())
        storage = self.storage(WitnessedStore(self.bare, self.witness, drive, self.loop))
        try:
            await self._workflow.respond(RUN, id, value, by=f"person {value}", checkpoint_storage=storage)
        except (RequestError, RunError) as error:
            self.witness.note(f"  the answer {value} to {id} was refused: {error}")
            return error
        return None

    # what happens while a program drives the run

    async def _beside(self, drive: Drive, task: asyncio.Task[Any], given: dict[str, Any]) -> None:
        fault = drive.fault
        assert fault is not None
        if fault.kind == "cancel":
            drive.has_rival = True  # who cancels may hold the run for a moment
            await self._cancel(fault, task)
        elif fault.kind == "answer":
            await self._answer_beside(fault, task)
        else:
            await super()._beside(drive, task, given)

    async def _cancel(self, fault: Fault, task: asyncio.Task[Any]) -> None:
        for _ in range(fault.at):
            await asyncio.sleep(0)
        if await self.bare.run(RUN) is None:
            return
        canceller = Drive(0, set())
        storage = self.storage(WitnessedStore(self.bare, self.witness, canceller, self.loop))
        self.witness.note("  somebody cancels the run")
        await self._workflow.cancel(RUN, by="somebody", checkpoint_storage=storage)

    async def _answer_beside(self, fault: Fault, task: asyncio.Task[Any]) -> None:
        """Two people answer whatever is listed, at the same time, while the run is driven."""
        for _ in range(fault.at):
            await asyncio.sleep(0)
        while not task.done():
            for request in await self.bare.requests(RequestFilter(run_id=RUN)):
                if request.request_id in self.witness.posted and self.loop.dice.randrange(20):
                    continue
                values = self._new_values()
                answering = [self._respond(request.request_id, value) for value in values]
                errors = await asyncio.gather(*answering)
                if errors == [None, None]:
                    self.witness.broken.append(f"both answers {values} to {request.request_id} were accepted")
            for _ in range(self.loop.dice.randrange(1, 30)):
                await asyncio.sleep(0)
            if not self.loop.dice.randrange(3):
                await asyncio.sleep(1.5)  # the driver looks for signals

    # the end

    async def _find_wrong(self) -> list[str]:
        told = foretold_in_any_order(self.plan, self.answers)
        latest = await self.storage(self.bare).get_latest(run_id=RUN)
        assert latest is not None
        result = await self.drive({})
        outputs = [] if not hasattr(result, "get_outputs") else result.get_outputs()
        warnings = self.witness.warnings
        unused = [id for id in self.witness.posted if not self._is_used(id) and not any(id in w for w in warnings)]
        pairs: list[tuple[str, Any, Any]] = [
            ("the outputs are", sorted(map(str, outputs)), sorted(map(str, told.outputs))),
            ("the list is", sorted(latest.state.get("log", ())), sorted(told.log)),
            ("the sum is", latest.state.get("sum", 0), told.sum),
            ("done to the world was", sorted(self.ledger.effects), sorted(told.effects)),
            ("the steps done were", sorted(self.steps), sorted(set(told.steps))),
            ("questions without an answer are", told.open, []),
            ("answers were lost without a warning", unused, []),
            ("questions are listed", await self.bare.requests(), []),
            ("somebody is to be woken", [run.wake for run in await self.bare.runs() if run.wake is not None], []),
            ("signals were not consumed", await self._read_signals(), []),
        ]
        return [difference(*pair) for pair in pairs if pair[1] != pair[2]]

    def _is_used(self, request_id: str) -> bool:
        return str(self.witness.questions[request_id]["trail"]) in self.answers

    async def _read_signals(self) -> list[Any]:
        runs = await self.bare.runs(ALL_RUNS)
        return [signal.key for run in runs for signal in await self.bare.pending_signals(run.run_id)]
