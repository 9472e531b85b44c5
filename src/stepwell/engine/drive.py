"""One drive of a run: open it where it is, move it on superstep by superstep, commit, tell.

Wires the parts and decides nothing itself: what a superstep means is in `kernel`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from time import perf_counter
from typing import Any

import msgspec
from msgspec.structs import replace

from stepwell import kernel
from stepwell.engine import durability, lease_renewal, open_run, watchers
from stepwell.engine.broadcast import Broadcast
from stepwell.engine.commit import store_commit
from stepwell.engine.completion import finish
from stepwell.engine.definition import WorkflowDefinition
from stepwell.engine.drive_scope import DriveScope, Private
from stepwell.engine.executors import RunExecutors
from stepwell.engine.failures import details_of
from stepwell.engine.open_run import (
    EMPTY_LOG,
    EnteredRun,
    ForkedRun,
    FoundRun,
    NewRun,
    StoredRun,
    Suspended,
    enter_run,
    find_run,
    stamp,
)
from stepwell.engine.responses import check_no_caller, check_responses, expiry_error, find_overdue, send_responses
from stepwell.engine.run_options import Options, Troupe
from stepwell.engine.signals import SignalReader
from stepwell.engine.superstep import Superstep
from stepwell.engine.superstep_commit import decide
from stepwell.engine.superstep_log import is_far
from stepwell.engine.telemetry import Observer, observer
from stepwell.errors import DurabilityError, StepwellError
from stepwell.graph.executor import Executor
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.model.payload import Pack, Payload, pack_copy
from stepwell.model.superstep import Checkpoint, Commit, CommitKind, Plan, Retention
from stepwell.storage.ids import new_run_id
from stepwell.storage.lease import this_process

_LOG = logging.getLogger("stepwell")


class _IntakeResult(msgspec.Struct, frozen=True):
    """Where a run is once what came from outside is taken in."""

    at: Checkpoint
    next: Plan | None  # None: the run stops here
    events: Sequence[WorkflowEvent] = ()
    error: StepwellError | None = None


class Drive:
    """Moves one run on until it is idle, asleep, failed, cancelled or left. `events` is the whole of it."""

    def __init__(self, definition: WorkflowDefinition, options: Options, troupe: Troupe) -> None:
        self._definition, self._options, self._troupe = definition, options, troupe
        self._archive = durability.archive_at(options.durability, options.archive)
        self._pack: Pack = definition.codec.pack if options.archive is not None else pack_copy
        self._lease: lease_renewal.HeldLease | None = None
        self._signals = SignalReader(options.archive, definition.codec, definition.graph)
        self._broadcast = Broadcast(options.archive, options.streaming)
        self._acting: asyncio.Task[Any] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._cancelled = self._stopped = self._ended = False
        self._observer: Observer | None = None
        self._error: BaseException | None = None  # what ended it early
        self._release: lease_renewal.PendingRelease | None = None
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.reader: Callable[[], Awaitable[None]] | None = None  # moves a drive on to its end that a stream reads
        self.run_id: str | None = None
        self.at: Checkpoint | None = None  # where the run is
        self.executors: Mapping[str, Executor] = {}
        self.own_commits: list[Commit] = []  # by this drive, if it works for another and is kept nowhere
        output_commits = options.position.output_commits if isinstance(options.position, Suspended) else ()
        self.output_commits = list(output_commits)  # the commits with outputs of a run that is kept nowhere

    @property
    def is_stored(self) -> bool:
        """Whether a later drive can go on with this run."""
        return self._options.archive is not None

    def cancel(self) -> None:
        """Stop on purpose: handlers are cancelled, and the run ends CANCELLED at its last commit. From any thread."""
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.cancel)
            return
        self._cancelled = True
        self._interrupt()

    async def read_to_end(self) -> None:
        """Read on in the place of a stream whose reader is not there to do it."""
        if self.reader is not None and self._loop is asyncio.get_running_loop():
            with suppress(Exception):  # what went wrong is told to whoever awaits the stream
                await self.reader()

    def stop(self) -> None:
        """Stop at the last commit, without a word in the history: `events` ends."""
        self._stopped = True
        self._interrupt()

    def leave(self) -> None:
        """Say that nobody reads any more: whoever wants the run next need only wait for `events` to be closed."""
        if self._lease is not None and self._release is None:
            self._release = lease_renewal.announce_release(self._lease.run_id, self._loop)

    async def events(self) -> AsyncGenerator[WorkflowEvent, None]:
        """Everything told of this drive, as it becomes true. Closing it stops the run at its last commit."""
        try:
            executors, entered = await self._open()
            at, log = entered.at, entered.log
            plan: Plan | None = open_run.plan_next(self._definition, at, log)
            for event in await self._emit_opening(entered, plan):
                yield event
            if entered.replay_only:
                return
            if (intake := await self._cancel_first(entered)) is not None:
                at, plan = intake.at, intake.next
                for event in intake.events:
                    yield event
            elif at.wake is not None and is_far(at.wake) and plan is not None and plan.deliveries:
                return  # it sleeps, and need not be woken to find that out
            scope = self._create_scope(at)
            begun = bool(plan and plan.deliveries)  # what may have been tried before keeps its place, and so its keys
            while plan is not None:
                if not plan.deliveries or (at.requests and not begun):
                    intake = await self._apply_signals(at, plan)
                    at, plan = intake.at, intake.next
                    for event in intake.events:
                        yield event
                    if intake.error is not None:
                        raise intake.error
                if plan is None or not plan.deliveries:
                    break
                watched = self._observer.superstep(at.iteration + 1, len(plan.deliveries)) if self._observer else None
                step = Superstep(scope, executors, self._archive, at, plan, log, watched)
                try:
                    if self._options.streaming:
                        async with aclosing(self._stream_superstep(step, at)) as live:
                            async for event in live:
                                yield event
                    else:
                        for event in await self._run_superstep(step, at):
                            yield event
                    if self._stopped:
                        await self._halt(step)
                        return
                    decided = await decide(self._definition, step, at, plan, self._pack, self._cancelled)
                    at = await self._commit(step, at, decided.commit)
                except DurabilityError as error:
                    for event in self._broadcast.emit_store_failure(at, error):
                        yield event
                    raise
                except BaseException:  # left or cancelled here
                    await self._halt(step)
                    raise
                if watched:
                    watched.end(decided.error)
                for event in self._broadcast.emit_commit(decided.commit, at):
                    yield event
                if decided.error is not None:
                    raise decided.error
                plan, log, begun = decided.next, EMPTY_LOG, False
        except BaseException as error:
            self._error = error
            raise
        finally:
            await self._end()

    async def _open(self) -> tuple[RunExecutors, EnteredRun]:
        run = await find_run(self._definition, self._options.position, self._archive, self._acquire_lease)
        if self._options.responses and self._options.caller is None and isinstance(run, StoredRun):
            check_no_caller(run.at)
        self._observe(run)
        run = self._complete_header(run)
        self.executors = self._troupe.take()
        self.run_id = run.run_id
        self._broadcast.set_run(run.run_id)
        executors = RunExecutors(run.run_id, self.executors, self._pack)
        self.at = run.checkpoint
        answers: Mapping[str, Payload] = {}
        if self._options.responses and run.checkpoint is not None:  # looked at before a fork is begun for them
            responses = self._select_responses(run.checkpoint)
            answers = check_responses(self._definition.graph, run.checkpoint, responses, self._pack)
        entered = await enter_run(self._definition, run, self._archive, executors, self._pack)
        self.at = entered.at
        if self._archive is None:
            self._signals.add_responses(answers)
        elif answers:
            await send_responses(self._archive, entered.at, answers)
        return executors, entered

    def _select_responses(self, at: Checkpoint) -> Mapping[str, Any]:
        """The answers of this call. Whoever calls a run inside its own gives an answer again if it died meanwhile."""
        responses = self._options.responses
        return (
            responses if self._options.caller is None else {id: v for id, v in responses.items() if id in at.requests}
        )

    def _complete_header(self, run: FoundRun) -> FoundRun:
        """A run that is begun here knows for ever whom it works for, and in which trace it was begun."""
        if not isinstance(run, (NewRun, ForkedRun)):
            return run
        trace = self._observer.traceparent if self._observer else None
        retention = Retention.FullHistory if self._archive is None else self._archive.retention
        return replace(run, header=replace(run.header, caller=self._options.caller, trace=trace, retention=retention))

    def _observe(self, run: FoundRun) -> None:
        name, before = self._definition.name, run.checkpoint
        began = None if before is None else before.header.trace
        self._observer = observer(name, run.run_id, began, resumed=before is not None)
        _LOG.info("run %r of %r %s", run.run_id, name, "starts" if before is None else "goes on")

    async def _emit_opening(self, entered: EnteredRun, plan: Plan | None) -> list[WorkflowEvent]:
        assert plan is not None
        answered: set[str] = set()
        if entered.at.requests:
            answered = await self._signals.find_response_ids(entered.at) | set(self._options.responses)
        events = await self._broadcast.emit_opening(entered, plan, self.output_commits, answered)
        return [*events, *self._withdraw_updates(entered, plan)] if entered.is_continued else events

    def _withdraw_updates(self, entered: EnteredRun, plan: Plan) -> list[WorkflowEvent]:
        """Takes back what another drive may have told of a superstep before it died: its handlers speak again."""
        executors, done = self._definition.graph.executors, entered.log.outcomes
        again = [
            delivery
            for delivery in plan.deliveries
            if executors[delivery.executor]._streams_updates and delivery.id not in done
        ]
        return [self._broadcast.emit("withdrawn", entered.at, executor_id=d.executor, delivery=d.id) for d in again]

    async def _cancel_first(self, entered: EnteredRun) -> _IntakeResult | None:
        """Stop at once if that is what somebody wants: whoever drives it now, or a letter that nobody has read yet."""
        at = entered.at
        cancels = await self._signals.find_cancels(at) if entered.is_continued else ()
        stopped = at.status in (WorkflowRunState.IDLE, WorkflowRunState.CANCELLED)
        if cancels or (self._cancelled and not stopped):
            return await self._cancel_here(at, cancels)
        events = [self._broadcast.emit("status", at, commit=at.number, replayed=True)]
        return _IntakeResult(at, None, events) if self._cancelled else None  # it had stopped before

    async def _cancel_here(self, at: Checkpoint, cancels: tuple[str, ...]) -> _IntakeResult:
        commit = kernel.cancel(at, stamp(at.run_id, at.header.epoch, at.number + 1))
        after = await self._store_commit(commit, at, consumed=cancels)
        return _IntakeResult(after, None, self._broadcast.emit_commit(commit, after))

    async def _apply_signals(self, at: Checkpoint, plan: Plan) -> _IntakeResult:
        """Commit what came from outside since the last commit, or that it came to nothing in time."""
        signals = await self._signals.receive(at)
        if signals.cancel:
            return await self._cancel_here(at, signals.cancel)
        here = stamp(at.run_id, at.header.epoch, at.number + 1)
        expired = None if plan.deliveries else expiry_error(at, find_overdue(at))
        resumed = at.status is WorkflowRunState.CANCELLED and not plan.deliveries and expired is None  # it waits again
        if signals.arrived or (signals.keys and not plan.deliveries) or resumed:
            merged = kernel.intake(self._definition.graph, at, signals.arrived, here)
            commit = replace(merged.commit, warnings=tuple(map(str, signals.refused)))
            after = await self._store_commit(commit, at, settled=at.place, consumed=signals.keys)
            error = (
                None if signals.arrived else next(iter(signals.refused), None)
            )  # if there is nothing else to go on with
            return _IntakeResult(after, merged.next, self._broadcast.emit_commit(commit, after), error)
        if expired is None or at.status is WorkflowRunState.FAILED:  # stored once, told each time
            return _IntakeResult(at, plan, [], expired)
        commit = kernel.fail(at, (details_of(None, expired),), here)
        after = await self._store_commit(commit, at)
        return _IntakeResult(after, plan, self._broadcast.emit_commit(commit, after), expired)

    async def _store_commit(
        self, commit: Commit, at: Checkpoint, *, settled: int | None = None, consumed: tuple[str, ...] = ()
    ) -> Checkpoint:
        after = kernel.apply(at.header, at, commit)
        if self._archive is not None:
            began = perf_counter()
            overtaken, self._signals.overtaken = self._signals.overtaken, ()
            keys = tuple(dict.fromkeys((*consumed, *overtaken)))
            await store_commit(self._archive, commit, after, before=at, settled=settled, consumed=keys)
            if kernel.is_at_rest(after) or keys:
                await self._settle()
            if self._observer:
                self._observer.record_commit(perf_counter() - began)
        elif any(done.outputs for done in commit.done):
            self.output_commits.append(commit)
        if self._options.caller is not None and self._archive is None:
            self.own_commits.append(commit)
        self.at = after
        return after

    async def _acquire_lease(self, run_id: str) -> None:
        if self._archive is not None:
            await self._release_lease()
            await lease_renewal.wait_for_releases(run_id)
            owner = this_process(new_run_id())
            self._lease = await lease_renewal.acquire(
                self._archive, run_id, owner, self._on_signal, self._options.by_right
            )
            watchers.register_drive(watchers.key_of(self._archive, run_id), self)

    def _on_signal(self) -> None:
        """Called from a thread: there is mail, and it may say that the run is to stop."""
        with suppress(RuntimeError):  # the loop is closed, and the drive with it
            self._loop.call_soon_threadsafe(self._check_cancel_soon)

    def _check_cancel_soon(self) -> None:
        if self._lease is not None and (self._looking is None or self._looking.done()):
            self._looking = self._loop.create_task(self._check_cancel())

    async def _check_cancel(self) -> None:
        with suppress(DurabilityError):  # we are called again as long as there is mail
            if self.at is not None and await self._signals.find_cancels(self.at):
                self.cancel()

    def _create_scope(self, at: Checkpoint) -> DriveScope:
        return DriveScope(
            self._definition.graph,
            at.run_id,
            at.header.epoch,
            self._pack,
            Private(at.run_id, self._options.private),
            self._options.streaming,
            self._broadcast.emit_live,
            self._options.archive_for,
            self._options.durability,
            self._settle,
            partial(lease_renewal.is_still_held, self._lease),
            self._definition.codec,
            self._options.recall_changed,
            self._archive is not None and self._archive.needed is not None,
        )

    async def _settle(self) -> None:
        if self._options.durability != "sync":
            await finish(durability.settle(self._archive))

    async def _stream_superstep(self, step: Superstep, at: Checkpoint) -> AsyncGenerator[WorkflowEvent, None]:
        """Let the handlers run, and pass on what they tell meanwhile."""
        if self._must_stop(at):
            return
        yield self._broadcast.emit_superstep_start(at)
        live = self._broadcast.live
        self._acting = asyncio.create_task(step.act())
        self._acting.add_done_callback(lambda _: live.put_nowait(None))
        while (event := await live.get()) is not None:
            yield event
        if not (self._cancelled or self._stopped):
            self._acting.result()

    async def _run_superstep(self, step: Superstep, at: Checkpoint) -> list[WorkflowEvent]:
        """The same without a reader to pass anything on to: the handlers run in the task of whoever called."""
        if self._must_stop(at):
            return []
        started = self._broadcast.emit_superstep_start(at)
        await self._run_handlers(step)
        return [started, *self._broadcast.drain()]

    def _must_stop(self, at: Checkpoint) -> bool:
        return self._cancelled or at.since_input >= self._definition.max_iterations

    async def _run_handlers(self, step: Superstep) -> None:
        self._acting = asyncio.current_task()
        try:
            await step.act()
        except asyncio.CancelledError:
            if not self._cancelled or self._acting is None or self._acting.uncancel() > 0:
                raise  # it was not us who wanted that
        finally:
            self._acting = None

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
        cancels = await self._signals.find_cancels(at) if commit.kind is CommitKind.CANCELLED else ()
        settled = at.place if commit.place != at.place else None
        after = await self._store_commit(commit, at, settled=settled, consumed=cancels)
        await step.end()
        return after

    async def _release_lease(self) -> None:
        if self._lease is not None:
            lease, self._lease = self._lease, None
            key = watchers.key_of(lease.archive, lease.run_id)
            try:
                await lease_renewal.release(lease)
            finally:
                watchers.unregister_drive(key, self)  # not before: whoever waits for that may drive the run next
            watchers.publish(key, watchers.LOOK_AGAIN)

    async def _end(self) -> None:
        try:
            if self._lease is not None:
                await self._settle()
        finally:
            await self._clean_up()

    async def _clean_up(self) -> None:
        try:
            await self._release_lease()
        finally:
            if self._release is not None:
                lease_renewal.finish_release(self._release)
            self._record_end()
            if self.executors and not self._ended:
                self._ended = True
                self._troupe.give_back(self.executors, self.at, self.output_commits)

    def _record_end(self) -> None:
        """Nobody acts on what is noted here; what went wrong is raised."""
        if self.at is None or self._ended:
            return
        _LOG.info("run %r of %r is %s", self.at.run_id, self._definition.name, self.at.status.value)
        if self._observer:
            self._observer.end(self.at.status.value, self._error)
