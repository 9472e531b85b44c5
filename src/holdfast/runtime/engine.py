"""One drive of a run: open it where it is, move it on superstep by superstep, commit, tell.

Wires the parts and decides nothing itself: what a superstep means is in `kernel`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from .. import kernel
from ..core.errors import DurabilityError, HoldfastError, SuperstepLimit
from ..core.events import WorkflowEvent, WorkflowEventSource, WorkflowRunState
from ..core.model import Checkpoint, Commit, Plan
from ..core.parcel import Pack, Parcel, copied
from ..durable.archive import Archive
from ..durable.checkpoint import WorkflowCheckpoint, view
from ..durable.ids import new_run_id
from ..durable.ownership import this_process
from ..graph.executor import Executor
from . import claims
from .answering import checked, expired, overdue, post_answers
from .cast import Cast
from .context import Private, Scope
from .mailbox import Mailbox
from .opening import Definition, Entered, Position, Suspended, enter, find, stamp
from .routing import ask_routes
from .runner import Superstep, failure
from .storing import store


@dataclass(frozen=True, slots=True)
class Options:
    """What one call of `run` asks for."""

    position: Position
    archive: Archive | None
    streaming: bool
    private: Mapping[str, Any]
    responses: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Troupe:
    """Where a drive gets its executors, and gives them back to."""

    take: Callable[[], Mapping[str, Executor]]
    give_back: Callable[[Mapping[str, Executor], Checkpoint | None, Sequence[Commit]], None]


@dataclass(frozen=True, slots=True)
class _Decided:
    commit: Commit
    next: Plan | None  # None: the run stops here
    error: HoldfastError | None = None


@dataclass(frozen=True, slots=True)
class _Taken:
    """Where a run is once what came from outside is taken in."""

    at: Checkpoint
    next: Plan
    told: list[WorkflowEvent]
    error: HoldfastError | None = None


class Drive:
    """Moves one run on until it is idle, failed, cancelled or left. `events` is the whole of it."""

    def __init__(self, definition: Definition, options: Options, troupe: Troupe) -> None:
        self._definition, self._options, self._troupe = definition, options, troupe
        self._archive = options.archive
        self._pack: Pack = definition.codec.pack if options.archive is not None else copied
        self._claim: claims.Claim | None = None
        self._executors: Mapping[str, Executor] = {}
        self._mailbox = Mailbox(options.archive, definition.codec)
        self._at: Checkpoint | None = None
        position = options.position
        self._yielded = list(position.told) if isinstance(position, Suspended) else []  # of a run kept nowhere
        self._live: asyncio.Queue[WorkflowEvent | None] = asyncio.Queue()
        self._acting: asyncio.Task[None] | None = None
        self._cancelled = self._stopped = False
        self._leaving: claims.Leaving | None = None
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.run_id: str | None = None

    def cancel(self) -> None:
        """Stop on purpose: handlers are cancelled, and the run ends CANCELLED at its last commit."""
        self._cancelled = True
        self._interrupt()

    def stop(self) -> None:
        """Stop at the last commit, without a word in the history: `events` ends."""
        self._stopped = True
        self._interrupt()

    def leave(self) -> None:
        """Say that nobody reads any more: whoever wants the run next need only wait for `events` to be closed."""
        if self._claim is not None and self._leaving is None:
            self._leaving = claims.leave(self._claim.run_id, self._loop)

    async def events(self) -> AsyncGenerator[WorkflowEvent, None]:
        """Everything told of this drive, as it becomes true. Closing it stops the run at its last commit."""
        try:
            cast, entered = await self._open()
            at, recalled = entered.at, entered.recalled
            first = kernel.plan(self._definition.graph, at.place, at.messages, at.held)
            for event in await self._opening(entered, first):
                yield event
            scope = self._scope(at)
            plan: Plan | None = first
            begun = bool(first.deliveries)  # what may have been tried before keeps its place, and so its keys
            while plan is not None:
                if not plan.deliveries or (at.requests and not begun):
                    taken = await self._take_in(at, plan)
                    at, plan = taken.at, taken.next
                    for event in taken.told:
                        yield event
                    if taken.error is not None:
                        raise taken.error
                if not plan.deliveries:
                    break
                step = Superstep(scope, cast, self._archive, at, plan, recalled)
                try:
                    async with aclosing(self._act(step, at)) as live:
                        async for event in live:
                            yield event
                    if self._stopped:
                        await self._halt(step)
                        return
                    decided = await self._decide(step, at, plan)
                    at = await self._commit(step, at, decided.commit)
                except DurabilityError as error:
                    for event in self._not_stored(at, error):
                        yield event
                    raise
                except BaseException:  # left or cancelled here
                    await self._halt(step)
                    raise
                for event in self._told(decided.commit, at):
                    yield event
                if decided.error is not None:
                    raise decided.error
                plan, recalled, begun = decided.next, {}, False
        finally:
            await self._end()

    async def _open(self) -> tuple[Cast, Entered]:
        found = await find(self._definition, self._options.position, self._archive, self._claim_run)
        self._executors = self._troupe.take()
        self.run_id = found.run_id
        cast = Cast(found.run_id, self._executors, self._pack)
        self._at = found.stands_at
        answers: Mapping[str, Parcel] = {}
        if self._options.responses and found.stands_at is not None:  # looked at before a fork is begun for them
            answers = checked(self._definition.graph, found.stands_at, self._options.responses, self._pack)
        entered = await enter(self._definition, found, self._archive, cast, self._pack)
        self._at = entered.at
        if self._archive is None:
            self._mailbox.give(answers)
        elif answers:
            await post_answers(self._archive, entered.at, answers)
        return cast, entered

    async def _take_in(self, at: Checkpoint, plan: Plan) -> _Taken:
        """Commit what came from outside since the last commit, or that it came to nothing in time."""
        mail = await self._mailbox.read(at)
        here = stamp(at.run_id, at.header.epoch, at.number + 1)
        if mail.keys or mail.arrived:
            merged = kernel.intake(self._definition.graph, at, mail.arrived, here)
            after = await self._store(merged.commit, at, settled=at.place, consumed=mail.keys)
            return _Taken(after, merged.next, self._told(merged.commit, after))
        vain = None if plan.deliveries else expired(at, overdue(at))
        if vain is None or at.status is WorkflowRunState.FAILED:  # stored once, told each time
            return _Taken(at, plan, [], vain)
        commit = kernel.fail(at, (failure(at.run_id, None, vain).details,), here)
        after = await self._store(commit, at)
        return _Taken(after, plan, self._told(commit, after), vain)

    async def _store(
        self, commit: Commit, at: Checkpoint, *, settled: int | None = None, consumed: tuple[str, ...] = ()
    ) -> Checkpoint:
        after = kernel.apply(at.header, at, commit)
        if self._archive is not None:
            await store(self._archive, commit, after, settled=settled, consumed=consumed)
        elif any(done.outputs for done in commit.done):
            self._yielded.append(commit)
        self._at = after
        return after

    async def _claim_run(self, run_id: str) -> None:
        if self._archive is not None:
            await self._let_go()
            await claims.left(run_id)
            self._claim = await claims.claim(self._archive, run_id, this_process(new_run_id()))

    async def _opening(self, entered: Entered, plan: Plan) -> list[WorkflowEvent]:
        """What is told before the first superstep: where the run is, and what was told of it before."""
        at = entered.at
        state = WorkflowRunState.IN_PROGRESS if plan.deliveries else at.status
        told = [self._framework("started", at, state=state)]
        if plan.deliveries:
            told.append(self._framework("status", at, state=state))
        if self._archive is not None and self._archive.shortcomings:
            told.append(self._framework("warning", at, state=state, data=self._archive.shortcomings))
        if entered.first is not None:
            told += self._told(entered.first, at)
        if self._archive is not None and (entered.first is None or at.header.parent_id is not None):
            for run_id, commit in await self._archive.told(at):
                told += kernel.output_events(run_id, commit)
        for commit in self._yielded:
            told += kernel.output_events(at.run_id, commit)
        if at.requests:
            answered = await self._mailbox.answered(at) | set(self._options.responses)
            told += [e for e in kernel.request_events(at.run_id, at) if e.request_id not in answered]
        if not plan.deliveries and not self._options.responses:
            told.append(self._framework("status", at, commit=at.number, replayed=True))
        return told

    def _scope(self, at: Checkpoint) -> Scope:
        private = Private(at.run_id, self._options.private)
        return Scope(
            self._definition.graph,
            at.run_id,
            at.header.epoch,
            self._pack,
            private,
            self._options.streaming,
            self._tell_live,
        )

    def _tell_live(self, event: WorkflowEvent) -> None:
        """Pass on what a handler tells, also from a plain function's thread."""
        if threading.get_ident() == self._thread:
            self._live.put_nowait(event)
        else:
            self._loop.call_soon_threadsafe(self._live.put_nowait, event)

    async def _act(self, step: Superstep, at: Checkpoint) -> AsyncGenerator[WorkflowEvent, None]:
        """Let the handlers run, and pass on what they tell meanwhile."""
        if self._cancelled or at.since_input >= self._definition.max_iterations:
            return
        yield self._framework("superstep_started", at, iteration=at.iteration + 1, state=WorkflowRunState.IN_PROGRESS)
        if not self._options.streaming:
            await step.act()
            while not self._live.empty():
                if (event := self._live.get_nowait()) is not None:
                    yield event
            return
        self._acting = asyncio.create_task(step.act())
        self._acting.add_done_callback(lambda _: self._live.put_nowait(None))
        while (event := await self._live.get()) is not None:
            yield event
        if not (self._cancelled or self._stopped):
            self._acting.result()

    def _interrupt(self) -> None:
        if self._acting is not None:
            self._acting.cancel()

    async def _halt(self, step: Superstep) -> None:
        """Stop what runs; what had finished is kept, so that a resume does not run it again."""
        if self._acting is not None and not self._acting.done():
            self._acting.cancel()
            await asyncio.wait([self._acting])
        await step.keep()

    async def _commit(self, step: Superstep, at: Checkpoint, commit: Commit) -> Checkpoint:
        """Store what the superstep came to: if that fails, the superstep has failed."""
        step.hand_over()
        after = await self._store(commit, at, settled=at.place if commit.place != at.place else None)
        await step.end()
        return after

    async def _decide(self, step: Superstep, at: Checkpoint, plan: Plan) -> _Decided:
        graph, here = self._definition.graph, stamp(at.run_id, at.header.epoch, at.number + 1)
        if self._cancelled:
            await step.keep()
            return _Decided(kernel.cancel(at, here), None)
        errors = [step.failures[d.id] for d in plan.deliveries if d.id in step.failures]
        if at.since_input >= self._definition.max_iterations:
            errors = [failure(at.run_id, None, self._limit(at, plan))]
        if not errors:
            try:
                routes = {id: await ask_routes(graph, at.run_id, outcome) for id, outcome in step.outcomes.items()}
                merged = kernel.merge(graph, at, plan, step.outcomes, routes, self._pack, here)
                return _Decided(merged.commit, merged.next)
            except DurabilityError:
                raise
            except HoldfastError as error:
                errors = [failure(at.run_id, None, error)]
        await step.keep()
        for other in errors[1:]:
            errors[0].error.add_note(f"also: {other.error}")
        return _Decided(kernel.fail(at, tuple(one.details for one in errors), here), None, errors[0].error)

    def _limit(self, at: Checkpoint, plan: Plan) -> SuperstepLimit:
        still = ", ".join(dict.fromkeys(repr(delivery.executor) for delivery in plan.deliveries))
        return SuperstepLimit(
            f"run {at.run_id!r} took {at.since_input} supersteps since the last message from outside and is not "
            f"done: {still} would run next; build the workflow with a larger max_iterations and resume",
            run_id=at.run_id,
        )

    def _told(self, commit: Commit, at: Checkpoint) -> list[WorkflowEvent]:
        stored = self._archive is not None
        seen = _Seen(at, commit) if stored and self._options.streaming else None
        return list(kernel.events(at.run_id, commit, stored=stored, seen=seen))

    def _not_stored(self, at: Checkpoint, error: DurabilityError) -> Iterator[WorkflowEvent]:
        """A failure that could not be made part of the history; it is told live only."""
        details = failure(at.run_id, None, error).details
        for type in ("failed", "status"):
            yield self._framework(type, at, details=details, state=WorkflowRunState.FAILED)

    def _framework(self, type: str, at: Checkpoint, **known: Any) -> WorkflowEvent:
        given = {"run_id": at.run_id, "state": at.status, "origin": WorkflowEventSource.FRAMEWORK, **known}
        return WorkflowEvent(type, **given)

    async def _let_go(self) -> None:
        if self._claim is not None:
            held, self._claim = self._claim, None
            await claims.let_go(held)

    async def _end(self) -> None:
        try:
            await self._let_go()
        finally:
            if self._leaving is not None:
                claims.gone(self._leaving)
            if self._executors:
                self._troupe.give_back(self._executors, self._at, self._yielded)
                self._executors = {}


class _Seen:
    """A checkpoint that is made visible only if somebody looks at it."""

    __slots__ = ("_at", "_commit")

    def __init__(self, at: Checkpoint, commit: Commit) -> None:
        self._at, self._commit = at, commit

    def open(self) -> WorkflowCheckpoint:
        return view(self._at, self._commit)
