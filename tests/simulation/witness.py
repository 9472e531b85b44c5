"""What a world notices: what became durable, what was done again, and the store through which programs die."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stepwell import StoreUnavailable, WorkflowEvent
from stepwell.storage.ids import idempotency_key
from stepwell.testing import Crash, CrashingStore
from tests.simulation.loop import SimulatedLoop
from tests.simulation.model import Intake, Timers
from tests.simulation.plan import Fault, Plan


@dataclass(eq=False)
class Drive:
    """One program that moves the run on, until it ends or dies."""

    number: int
    known: set[str]  # what was durable when it began, and what it has made durable since
    fault: Fault | None = None
    held_up: bool = False  # it gives no sign of life
    was_left: bool = False  # somebody stopped waiting for it
    was_refused: bool = False  # its store refused a write
    has_rival: bool = False
    expects: type[Exception] | None = None
    stream: Any = None


@dataclass
class Witness:
    """Everything worth noticing in one world. `broken` are promises that were not kept, in words."""

    plan: Plan
    run_id: str
    durable: set[str] = field(default_factory=set)  # keys of deliveries and steps, trails of messages that were sent
    heads: dict[str, int] = field(default_factory=dict)  # the number of each run's newest commit
    intakes: list[Intake] = field(default_factory=list)
    fired: dict[str, list[Timers]] = field(default_factory=dict)  # by run: the timers of each of its intakes
    inside: dict[tuple[str, str], str] = field(default_factory=dict)  # by run and key: a run inside it
    taken_in: Counter[str] = field(default_factory=Counter)  # how often each question's answer was
    posted: dict[str, int] = field(default_factory=dict)  # the answer that is durable, by request
    questions: dict[str, dict[str, Any]] = field(default_factory=dict)  # what was asked, by request
    told: dict[int, list[object]] = field(default_factory=dict)  # durable events of the run, by commit
    told_early: set[str] = field(default_factory=set)  # requests that a reader saw before their commit
    warnings: list[str] = field(default_factory=list)  # on record, of every run
    broken: list[str] = field(default_factory=list)
    lines: list[str] | None = None  # what happened, if somebody wants to read it

    def note(self, *words: object) -> None:
        if self.lines is not None:
            self.lines.append(" ".join(map(str, words)))

    def done(self, drive: Drive, what: str, key: str) -> None:
        """Something is being done that must not be done once it is durable."""
        self.note(f"    drive {drive.number}: {what}")
        if key in drive.known:
            self.broken.append(f"{what} was done again in drive {drive.number}, although it was durable")

    def tells(self, drive: Drive, event: WorkflowEvent) -> None:
        """A reader is told something."""
        if event.type == "request_info" and event.commit is None and not event.path:
            self.told_early.add(repr(event.data))
        if event.commit is None or event.replayed or self.plan.durability != "sync":
            return
        if event.commit > self.heads.get(event.run_id or "", -1):
            self.broken.append(f"{event!r} was told before commit {event.commit} was stored")
        if not event.path:
            self.told.setdefault(event.commit, []).append(gist(event))

    def wrote(self, drive: Drive, name: str, args: tuple[Any, ...], result: Any) -> None:
        if name == "append":
            self._appended(drive, args[0])
        elif name == "write_log":
            run_id, place, key = args[:3]
            self.note(f"    drive {drive.number}: remembered {key} at {place} of {self._name(run_id)}")
            if (
                self.heads.get(run_id, -1) >= place
            ):  # otherwise it is found only if the commit is made that it is kept at
                self._keep(drive, {idempotency_key(run_id, 0, key)})
            if run_id == self.run_id:
                body = msgspec.json.decode(args[3])
                asked = [*body.get("requests", ()), *([body["request"]] if body.get("request") else ())]
                self.questions |= {one["id"]: one["payload"]["v"] for one in asked}
        elif name == "send" and result:
            self.note(f"    drive {drive.number}: posted {args[1]} to {self._name(args[0])}")
            letter = msgspec.json.decode(args[2])
            if args[0] == self.run_id and letter["kind"] == "answer":
                self.posted[letter["request_id"]] = letter["value"]

    def _appended(self, drive: Drive, record: Any) -> None:
        entry, body = record.entry, msgspec.json.decode(record.body)
        done = [one["delivery"] for one in body.get("done", ())]
        kind, name = body["kind"], self._name(entry.run_id)
        self.note(f"    drive {drive.number}: commit {entry.number} of {name}: {kind} {done}, {entry.status}")
        self.heads[entry.run_id] = entry.number
        self.warnings += body.get("warnings") or ()
        sent = {_trail(one["payload"]) for one in body.get("messages") or () if one["source"] is not None}
        self._keep(drive, {idempotency_key(entry.run_id, 0, one) for one in done} | sent)
        inside = (body.get("children") or {}).items()
        self.inside |= {(entry.run_id, key): one["run_id"] for key, one in inside if one is not None}
        if kind == "intake" and (timers := _fired(entry.number, body)):
            self.fired.setdefault(entry.run_id, []).append(timers)
        if entry.run_id == self.run_id:
            self.questions |= {one["id"]: one["payload"]["v"] for one in body.get("asked", ())}
            if kind == "intake":
                self._took_in(entry.number, body)
            else:
                for one in body.get("answers", ()):
                    self._took(one["request_id"], one["value"])

    def _took_in(self, number: int, body: dict[str, Any]) -> None:
        new = [one for one in body["messages"] if one["id"].startswith(f"{number}.")]
        replies = [one for one in new if one.get("reply")]
        answers = [(_trail(one["reply"]["question"]), one["payload"]) for one in replies]
        is_late = body["place"] != number
        self.intakes.append((body["iteration"], tuple(answers), _fired(number, body), is_late))
        for one in replies:
            self._took(one["reply"]["request_id"], one["payload"])

    def timed_intakes(self) -> list[Intake]:
        """The intakes, with the timers of runs inside that those of the run stand for."""
        later = {run_id: list(each) for run_id, each in self.fired.items()}

        def resolve(run_id: str, timers: Timers) -> Timers:
            return tuple((node, resolve_one(run_id, name) or name) for node, name in timers)

        def resolve_one(run_id: str, key: str) -> Timers:
            inside = self.inside.get((run_id, key))
            return () if inside is None or not later.get(inside) else resolve(inside, later[inside].pop(0))

        return [(n, answers, resolve(self.run_id, timers), is_late) for n, answers, timers, is_late in self.intakes]

    def _took(self, request_id: str, value: Any) -> None:
        self.taken_in[request_id] += 1
        if value != (posted := self.posted.get(request_id)):
            self.broken.append(f"the answer {value} was taken in, but {posted} was given first")

    def _keep(self, drive: Drive, keys: set[str]) -> None:
        self.durable |= keys
        drive.known |= keys

    def _name(self, run_id: str) -> str:
        return "the run" if run_id == self.run_id else f"run {run_id[:8]} inside"


def gist(event: WorkflowEvent) -> object:
    """An event, as far as it is the same whenever it is told."""
    return event.type, event.executor_id, event.iteration, event.attempt, event.state, repr(event.data)


def _fired(number: int, body: dict[str, Any]) -> Timers:
    new = [one for one in body["messages"] if one["id"].startswith(f"{number}.")]
    return tuple((one["takers"][0], one["payload"]) for one in new if one.get("timer"))


def _trail(payload: Any) -> str:
    return str(payload["v"]["trail"])


class WitnessedStore(CrashingStore):
    """The store as one drive sees it: others have their turn around each of its acts, and it may be its end."""

    def __init__(self, inner: Any, witness: Witness, drive: Drive, loop: SimulatedLoop) -> None:
        fault = drive.fault or Fault("hasty")
        super().__init__(inner, fault.at if fault.kind == "die" else None, after=fault.after)
        self._refused = fault.at if fault.kind == "refuse" else None
        self._fault, self._witness, self._drive, self._loop = fault, witness, drive, loop
        self._busy = witness.plan.busy

    @property
    def is_gone(self) -> bool:
        """Whether its claims are renewed no more."""
        return self._drive.held_up or self.is_dead

    async def use(self, name: str, call: Any) -> Any:
        await self._others()
        if self.is_dead:
            raise Crash  # also of what need not be durable: the dead let go of nothing
        return await call()

    async def write(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
        refused = self.writes == self._refused

        async def witnessed() -> Any:
            result = await call()
            self._witness.wrote(self._drive, name, args, result)
            return result

        await self._others()
        if refused:
            await self._refuse(witnessed)
        result = await super().write(name, args, witnessed)
        await self._others()
        return result

    async def _refuse(self, write: Any) -> None:
        """Say that it failed; perhaps it was done all the same."""
        self._drive.was_refused = True
        if self._fault.after:
            await write()
        raise StoreUnavailable("the simulated store does not answer")

    async def _others(self) -> None:
        ticks = self._loop.dice.randrange(self._busy + 1)
        for _ in range(ticks + (20 if self._drive.held_up else 0)):
            await asyncio.sleep(0)
