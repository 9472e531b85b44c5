"""One world: a run of the plan's workflow, moved on by programs that die, and by people who answer."""

from __future__ import annotations

import asyncio
import inspect
import random
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from stepwell import CommitConflict, RequestError, RunBusy, StoreUnavailable, WorkflowContext, WorkflowRunResult
from stepwell.model import checkpoint as core_model
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.stored_values import RunEntry
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import Crash, Ledger
from tests.simulation import verdict
from tests.simulation.actors import WORLD, ScriptedFailure, build, result_of
from tests.simulation.loop import SimulatedLoop, Stuck, WorldClock
from tests.simulation.model import first_token
from tests.simulation.people import People
from tests.simulation.plan import Edge, Fault, Node, Plan, shown
from tests.simulation.script import Question, Seen, Token
from tests.simulation.witness import Drive, Witness, WitnessedStore

RUN = "run"
_MOST_DRIVES = 60
_DRIVE: ContextVar[Drive] = ContextVar("drive")
_KEEPS = "retention" in inspect.signature(BuiltInStorage.__init__).parameters  # whether storages can keep less


class Broken(AssertionError):
    """A promise was not kept. Says which, and how to see it happen again."""

    def __init__(self, plan: Plan, problems: list[str]) -> None:
        self.plan, self.problems = plan, problems
        what = "".join(f"\n  - {one}" for one in problems)
        super().__init__(
            f"seed {plan.seed} breaks a promise:{what}\nto see it: python -m tests.simulation --seed {plan.seed}"
            f"{' --crowded' if plan.crowded else ''}"
        )


class World:
    def __init__(self, loop: SimulatedLoop, clock: WorldClock, plan: Plan, lines: list[str] | None) -> None:
        self.loop, self.clock, self.plan = loop, clock, plan
        self.bare = MemoryStore()
        self.witness = Witness(plan, RUN, lines=lines)
        self.ledger = Ledger()
        self.steps: dict[tuple[str, int], str] = {}  # the keys of the steps that were done
        self.answers: dict[str, int] = {}  # those that handlers have got, by the trails of the questions
        self.calls = self._drives = 0
        self._failed: dict[tuple[object, ...], int] = {}
        self._has_left = False
        self._untold_failures = 0  # that were raised since the run last said that it failed
        self._workflow = build(plan.graph)
        self._people = People(self)

    # what executors meet

    def called(self, node: Node, seen: Seen, ctx: WorkflowContext[Any, Any]) -> None:
        self.calls += 1
        self.witness.done(_DRIVE.get(), f"{node.name}({seen.trail})", ctx.idempotency_key)
        self.ledger.do(ctx, node.name, seen.trail)

    def about_to_return(self, node: Node, seen: Seen) -> None:
        self._fail(node.fails, node.name, seen.trail)

    def step(self, node: Node, seen: Seen, number: int, key: str) -> None:
        what = f"step {number} of {node.name}({seen.trail})"
        self.witness.done(_DRIVE.get(), what, key)
        before, self.steps[seen.trail, number] = self.steps.get((seen.trail, number), key), key
        if before != key and self.plan.durability == "sync":
            self.witness.broken.append(f"{what} was given another key than before")
        self._fail(node.step_fails, "step", seen.trail, number)

    def stepped(self, node: Node, seen: Seen, number: int, result: str) -> None:
        if result != result_of(seen, number):
            self.witness.broken.append(f"step {number} of {node.name}({seen.trail}) got the result of another step")
        if self.plan.durability == "sync" and self.steps[seen.trail, number] not in self.witness.durable:
            self.witness.broken.append(
                f"step {number} of {node.name}({seen.trail}) gave a result before it was durable"
            )

    def asked_for(self, edge: Edge, token: Token) -> None:
        self.witness.done(
            _DRIVE.get(), f"the choice at {edge.kind} from {edge.sources[0]} of {token.trail}", token.trail
        )

    def used(self, question: Question, answer: int) -> None:
        before = self.answers.setdefault(question.trail, answer)
        if before != answer:
            self.witness.broken.append(f"the answer to {question} was {before}, and now it is {answer}")

    def _fail(self, times: int, *what: object) -> None:
        before = self._failed.get(what, 0)
        if before < times:
            self._failed[what] = before + 1
            self._untold_failures += 1
            raise ScriptedFailure(f"scripted failure {before + 1} of {times}")

    # what happens

    async def live(self) -> None:
        """Move the run on until there is nothing more to do for it, whatever goes wrong meanwhile."""
        WORLD.set(self)
        for turn in range(_MOST_DRIVES):
            fault = self.plan.faults[turn] if turn < len(self.plan.faults) else None
            run = await self.bare.run(RUN)
            status = run.status if run else None
            if status == "IDLE":
                break
            given = await self._next(status, fault)
            await self.drive(given, fault)
            self.check()
        else:
            self.witness.broken.append(f"the run did not end in {_MOST_DRIVES} drives; it is {status}")
        self.check()
        self.witness.broken += await verdict.found(self)
        self.check()

    def check(self) -> None:
        problems = [*self.witness.broken, *self.loop.complaints]
        if problems:
            raise Broken(self.plan, problems)

    async def _next(self, status: str | None, fault: Fault | None) -> dict[str, Any]:
        """What whoever moves the run on next gives to it."""
        if status is None:
            return {"message": first_token(self.plan)}
        if status == "IDLE_WITH_PENDING_REQUESTS":
            return await self._people.answers(again=fault is not None and fault.kind == "again")
        if self._sleeps(await self.bare.run(RUN)) and self.loop.dice.randrange(2):
            return await self._people.answers(again=False)
        for run in await self.bare.runs():
            if run.wake is not None and (fault is None or fault.kind != "hasty"):
                self.clock.until(datetime.fromisoformat(run.wake))
        return {}

    def _sleeps(self, run: RunEntry | None) -> bool:
        return run is not None and run.wake is not None and run.wake > clock.stamp()

    async def drive(
        self, given: dict[str, Any], fault: Fault | None = None, expects: type[Exception] | None = None
    ) -> Any:
        """One program moves the run on. What came of it: a result, an error that the plan explains, or its death."""
        drive = self._begin(fault)
        drive.expects = expects
        self.witness.note(f"drive {drive.number}: run({given or ''}), {fault or 'nothing goes wrong'}")
        task = asyncio.create_task(self._driven(drive, given))
        beside = asyncio.create_task(self._beside(drive, task, given)) if fault else None
        try:
            await asyncio.wait([task])
            if beside is not None:
                await beside
        finally:
            task.cancel()
        came_to = self._came_to(drive, task)
        self.witness.note(f"  drive {drive.number} came to {came_to!r:.200}")
        return came_to

    def _begin(self, fault: Fault | None) -> Drive:
        self._drives += 1
        return Drive(self._drives, set(self.witness.durable), fault)

    async def _driven(self, drive: Drive, given: dict[str, Any]) -> WorkflowRunResult:
        _DRIVE.set(drive)
        workflow = build(self.plan.graph) if self.plan.rebuilt else self._workflow
        storage = self.storage(WitnessedStore(self.bare, self.witness, drive, self.loop))
        running: Any = workflow.run(
            stream=self.plan.streaming,
            nested=True,
            run_id=RUN,
            checkpoint_storage=storage,
            durability=self.plan.durability,
            **given,
        )
        if self.plan.streaming:
            drive.stream = running
            async for event in running:
                self.witness.tells(drive, event)
                for _ in range(self.loop.dice.randrange(self.plan.busy + 1)):
                    await asyncio.sleep(0)
        result: WorkflowRunResult = await running
        return result

    def storage(self, store: Any) -> BuiltInStorage:
        if not _KEEPS:
            return BuiltInStorage(store)
        kept = "LatestOnly" if self.plan.latest_only else "FullHistory"
        return BuiltInStorage(store, retention=getattr(core_model, kept))

    async def _beside(self, drive: Drive, task: asyncio.Task[Any], given: dict[str, Any]) -> None:
        """What happens while a program moves the run on."""
        fault = drive.fault
        assert fault is not None
        if fault.kind not in ("leave", "stop", "rival", "stall"):
            return
        for _ in range(fault.at):
            await asyncio.sleep(0)
        if task.done():
            return
        if fault.kind == "stop" and drive.stream is not None:
            with suppress(Exception, Crash):  # what goes wrong is told to whoever reads the stream
                await drive.stream.cancel()
        elif fault.kind in ("leave", "stop"):
            drive.was_left = task.cancel()
        else:
            await self._rival(drive, given, held_up=fault.kind == "stall")

    async def _rival(self, drive: Drive, given: dict[str, Any], *, held_up: bool) -> None:
        """Another program wants the run; if the first one gives no sign of life, it gets it."""
        if held_up:
            drive.held_up = True
            self.clock(seconds=40)
        rival = self._begin(None)
        drive.has_rival = rival.has_rival = True
        self.witness.note(f"  drive {rival.number} is a rival; drive {drive.number} is held up: {held_up}")
        task = asyncio.create_task(self._driven(rival, {} if "responses" in given else given))
        await asyncio.wait([task])
        came_to = self._came_to(rival, task)
        self.witness.note(f"  drive {rival.number} came to {came_to!r:.200}")

    def _came_to(self, drive: Drive, task: asyncio.Task[WorkflowRunResult]) -> Any:
        if task.cancelled():
            self._has_left = True
            if not drive.was_left:
                self.witness.broken.append(f"drive {drive.number} was cancelled, and nobody wanted that")
            return None
        error = task.exception()
        if error is None:
            return task.result()
        if not self._explained(drive, error):
            self.witness.broken.append(f"drive {drive.number} failed: {told(error)}")
        return error

    def _explained(self, drive: Drive, error: BaseException) -> bool:
        """Whether the plan wants that to go wrong."""
        words = told(error)
        if "scripted failure" in words:
            new, self._untold_failures = self._untold_failures > 0, 0
            return new or drive.has_rival  # what was told once is not told again of a run that was resumed
        if isinstance(error, Crash):
            return drive.fault is not None and drive.fault.kind == "die"
        if StoreUnavailable.__name__ in words:
            return drive.was_refused
        if drive.expects is not None and isinstance(error, drive.expects):
            return True
        if isinstance(error, CommitConflict) and drive.was_refused:
            return True  # it was stored although that was refused, and is stored behind once more
        if "answered already" in words and self._has_left:
            return True  # by a program that was left: its last write may have been done after that
        refused = isinstance(error, RequestError) or any(kind.__name__ in words for kind in (RunBusy, CommitConflict))
        return refused and drive.has_rival


def told(error: BaseException) -> str:
    """An error and what led to it, in words."""
    notes = getattr(error, "__notes__", [])
    words = f"{type(error).__name__}: {error} {' '.join(notes)}"
    before = error.__cause__ or error.__context__
    return words if before is None else f"{words} <- {told(before)}"


def run_plan(loop: SimulatedLoop, plan: Plan, lines: list[str] | None = None) -> None:
    """Let a plan happen. Raises Broken if a promise is not kept."""
    loop.dice.seed(plan.seed)
    loop.complaints.clear()
    random.seed(plan.seed)  # the share of a back-off that is left to chance
    if lines is not None:
        lines.append(shown(plan))
    with WorldClock(loop) as clock:
        try:
            loop.run_until_complete(_world_of(plan)(loop, clock, plan, lines).live())
        except Stuck as stuck:
            raise Broken(plan, [str(stuck)]) from stuck
        finally:
            _end_all(loop)


def _world_of(plan: Plan) -> type[World]:
    from tests.simulation.crowd import CrowdedWorld  # it imports this module

    return CrowdedWorld if plan.crowded else World


def _end_all(loop: SimulatedLoop) -> None:
    """What the dead had begun ends with its world."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
