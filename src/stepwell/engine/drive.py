"""One drive of a run: open it, move it forward superstep by superstep, commit, emit.

It wires the parts together and decides when something happens; `kernel` decides what.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from time import perf_counter
from typing import Any

from msgspec.structs import replace

from stepwell import kernel
from stepwell.engine import durability, lease_renewal, watchers
from stepwell.engine.broadcast import Broadcast
from stepwell.engine.commit import store_commit
from stepwell.engine.definition import WorkflowDefinition
from stepwell.engine.drive_options import DriveOptions, ExecutorSource
from stepwell.engine.drive_scope import DriveScope, PrivateValues
from stepwell.engine.executor_state import RunExecutors
from stepwell.engine.failures import details_of
from stepwell.engine.open_run import FoundRun, make_first_commit, new_stamp, open_run, plan_first
from stepwell.engine.responses import (
    check_no_caller,
    check_responses,
    expiry_error,
    find_overdue,
    send_defaults,
    send_responses,
)
from stepwell.engine.signals import JudgedSignals, find_cancels, judge_signals
from stepwell.engine.superstep import Superstep
from stepwell.engine.superstep_decision import decide
from stepwell.engine.superstep_log import is_far
from stepwell.engine.telemetry import Observer, create_observer
from stepwell.errors import DurabilityError, RunBusy
from stepwell.graph.executor import Executor
from stepwell.kernel import CommitDecision
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, CommitKind, Stamp
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.model.log_keys import RecalledLog
from stepwell.model.message import Plan
from stepwell.model.payload import Payload
from stepwell.model.signal import Signal
from stepwell.model.status_words import status_word
from stepwell.storage.archive import EMPTY_LOG, Archive, StoredRun
from stepwell.storage.cancellation_shield import finish
from stepwell.storage.ids import new_run_id
from stepwell.storage.lease import this_process

_LOG = logging.getLogger("stepwell")

Events = AsyncGenerator[WorkflowEvent, None]


class Drive:
    """Moves one run forward until it is idle, parked, failed, cancelled or left. `events` does all of it."""

    def __init__(self, definition: WorkflowDefinition, options: DriveOptions, executor_source: ExecutorSource) -> None:
        self._definition, self._options, self._executor_source = definition, options, executor_source
        self._archive: Archive = durability.archive_at(options.durability, options.archive)
        self._lease: lease_renewal.HeldLease | None = None
        self._lease_is_over = False  # a commit has ended it
        self._key: watchers.Key | None = None  # under which those who watch the run find this drive
        self._broadcast = Broadcast(options.archive, options.streaming)
        # Signals that were read and not applied yet; None: they have to be read again.
        self._signals: Mapping[str, Signal] | None = None
        # Keys of cancel signals that came too late: the next commit consumes them.
        self._stale_cancels: tuple[str, ...] = ()
        self._acting: asyncio.Task[Any] | None = None
        self._cancel_check: asyncio.Task[None] | None = None
        self._cancelled = self._stopped = self._ended = False
        self._observer: Observer | None = None
        self._error: BaseException | None = None  # what ended the drive early
        self._release: lease_renewal.PendingRelease | None = None
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        # Reads the stream of this drive to its end.
        self.reader: Callable[[], Awaitable[None]] | None = None
        self.run_id: str | None = None
        self.at: Checkpoint | None = None  # the latest commit
        self.executors: Mapping[str, Executor] = {}

    @property
    def archive(self) -> Archive:
        """Where the run is kept."""
        return self._options.archive

    @property
    def is_stored(self) -> bool:
        """Whether a later drive can resume this run."""
        return self._archive.is_durable

    def cancel(self) -> None:
        """Cancel the run: handlers are cancelled, and it ends CANCELLED at its last commit. From any thread."""
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.cancel)
            return
        self._cancelled = True
        self._interrupt()

    async def read_to_end(self) -> None:
        """Read the stream to its end if its reader does not: a run moves only as far as its stream is read."""
        if self.reader is not None and self._loop is asyncio.get_running_loop():
            # The error is raised where the stream is awaited.
            with suppress(Exception):
                await self.reader()

    def stop(self) -> None:
        """Stop at the last commit, as a crash would: nothing is written to the history, and `events` ends."""
        self._stopped = True
        self._interrupt()

    def leave(self) -> None:
        """Announce that the stream was abandoned: the next drive of the run waits until this one is closed."""
        if self._lease is not None and self._release is None:
            self._release = lease_renewal.announce_release(self._lease.run_id, self._loop)

    async def events(self) -> Events:
        """Yield the events of this drive as they happen. Closing the generator stops the run at its last commit."""
        try:
            run, scope, at, first = await self._open()
            first_plan = plan_first(self._definition, at, run.log)
            for event in await self._emit_opening(run, at, first, first_plan):
                yield event
            if run.replay_only:
                return
            plan: Plan | None = first_plan
            # A run that was just created, forked or moved back has no cancel signal that is meant for it.
            cancel = await self._decide_cancel(at) if run.is_continued or self._cancelled else None
            if cancel is not None:
                at, plan = await self._commit(cancel, at), None
                for event in self._broadcast.emit_commit(cancel.commit, at):
                    yield event
            elif self._cancelled:
                # It was over already: there is nothing to cancel, and the stream says where it is.
                yield self._broadcast.emit("status", at, commit=at.number, replayed=True)
                return
            log, may_have_run = run.log, bool(plan and plan.deliveries)
            # One turn of the loop is one of these, in this order:
            # - the run is parked for long, or was cancelled above: the drive ends;
            # - nothing is to be delivered, or requests are open and no superstep can have started: signals are
            #   applied in an intake commit, or a request without a response fails the run. Not while a superstep
            #   may have been tried: an intake changes the place of its messages, and with it the names under
            #   which its outcomes are logged and its idempotency keys;
            # - still nothing is to be delivered: the run rests, and the drive ends;
            # - a superstep: the handlers run, and it ends in a commit, in an error that is committed and then
            #   raised, or, if the stream is left, at the commit before it.
            while plan is not None and not _is_asleep(at, plan):
                if not plan.deliveries or (at.requests and not may_have_run):
                    intake = await self._decide_intake(at, plan)
                    if intake is not None:
                        at, plan = await self._commit(intake, at), intake.next
                        for event in self._broadcast.emit_commit(intake.commit, at):
                            yield event
                        if intake.error is not None:
                            raise intake.error
                if plan is None or not plan.deliveries:
                    break
                superstep = self._create_superstep(scope, at, plan, log)
                try:
                    if self._options.streaming:
                        async with aclosing(self._stream_superstep(superstep, at)) as live:
                            async for event in live:
                                yield event
                    else:
                        for event in await self._run_superstep(superstep, at):
                            yield event
                    if self._stopped:
                        await self._halt(superstep)
                        return
                    decision = await decide(self._definition, superstep, at, plan, scope.pack, self._cancelled)
                    at = await self._commit_superstep(superstep, decision, at)
                except DurabilityError as error:
                    for event in self._broadcast.emit_store_failure(at, error):
                        yield event
                    raise
                except BaseException:
                    # The stream was closed, or its task cancelled.
                    await self._halt(superstep)
                    raise
                for event in self._broadcast.emit_commit(decision.commit, at):
                    yield event
                if decision.error is not None:
                    raise decision.error
                plan, log, may_have_run = decision.next, EMPTY_LOG, False
        except BaseException as error:
            self._error = error
            raise
        finally:
            await self._end()

    # ---------------------------------------------------------------- opening

    async def _open(self) -> tuple[FoundRun, DriveScope, Checkpoint, Commit | None]:
        options = self._options
        run = await open_run(self._definition, options.position, self._archive, self._acquire)
        if options.responses and options.caller is None and run.is_continued and run.at is not None:
            check_no_caller(run.at)
        self._observe(run)
        if run.first in (CommitKind.INPUT, CommitKind.FORKED):
            trace = self._observer.traceparent if self._observer else None
            born_with = {"caller": options.caller, "trace": trace, "retention": self._archive.retention}
            run = replace(run, header=replace(run.header, **born_with))
        self.executors, self.run_id, self.at = self._executor_source.acquire(), run.run_id, run.at
        self._broadcast.set_run(run.run_id)
        executors = RunExecutors(
            run.run_id,
            self.executors,
            self._archive.pack,
            are_live=self._executor_source.are_live,
            # A run that is not stored continues with its live executors, unless its caller repeats a failed call.
            may_be_restored=self._archive.is_durable or options.caller is not None,
        )
        answers: Mapping[str, Payload] = {}
        # Checked before a fork is created for them.
        if options.responses and run.at is not None:
            # A caller that crashed gives its sub-workflow run a response twice: skip it.
            known = run.at.requests if options.caller is not None else options.responses
            responses = {id: value for id, value in options.responses.items() if id in known}
            answers = check_responses(self._definition.graph, run.at, responses, self._archive.pack)
        at, first = await make_first_commit(self._definition, run, self._archive, executors)
        self.at, self._signals = at, run.signals if run.is_continued else {}
        if answers:
            self._signals = {**self._signals, **await send_responses(self._archive, at, answers, self._signals)}
        return run, self._create_scope(at, executors), at, first

    async def _acquire(self, run_id: str) -> StoredRun:
        """Acquire a run and read it. The lease of a run that was acquired before is released."""
        if self._key is not None and self._key != watchers.key_of(self._archive, run_id):
            await self._leave_run()
        await self._release_lease()
        owner = this_process(new_run_id())
        if not self._archive.is_durable:
            return await self._archive.open(run_id, owner)
        await lease_renewal.wait_for_releases(run_id)
        self._lease, stored = await lease_renewal.open_run(
            self._archive, run_id, owner, on_signal=self._on_signal, may_take_over=self._options.may_take_over
        )
        self._lease_is_over = False
        self._key = watchers.key_of(self._archive, run_id)
        watchers.register_drive(self._key, self)
        return stored

    def _observe(self, run: FoundRun) -> None:
        name, before = self._definition.name, run.at
        began = None if before is None else before.header.trace
        self._observer = create_observer(name, run.run_id, began, resumed=before is not None)
        _LOG.info("run %r of %r %s", run.run_id, name, "starts" if before is None else "resumes")

    def _create_scope(self, at: Checkpoint, executors: RunExecutors) -> DriveScope:
        return DriveScope(
            self._definition.graph,
            self._definition.codec,
            run_id=at.run_id,
            epoch=at.header.epoch,
            archive=self._archive,
            executors=executors,
            private=PrivateValues(at.run_id, self._options.private),
            options=self._options,
            emit=self._broadcast.emit_live,
            holds_lease=partial(lease_renewal.is_still_held, self._lease),
            pack=self._archive.pack,
            streaming=self._options.streaming,
        )

    async def _emit_opening(
        self, run: FoundRun, at: Checkpoint, first: Commit | None, plan: Plan
    ) -> list[WorkflowEvent]:
        answered = set[str]()
        if at.requests:
            has_default = {request.id for request in find_overdue(at) if request.default is not None}
            answered = self._judge(at, self._signals or {}).answered | has_default
        events = await self._broadcast.emit_opening(run, at, first, plan, answered)
        if not run.is_continued:
            return events
        # Withdraw updates that an earlier drive may have emitted before it died: those handlers run again.
        executors, done = self._definition.graph.executors, run.log.outcomes
        again = [d for d in plan.deliveries if executors[d.executor]._streams_updates and d.id not in done]
        withdrawn = [self._broadcast.emit("withdrawn", at, executor_id=d.executor, delivery=d.id) for d in again]
        return [*events, *withdrawn]

    # ---------------------------------------------------------------- signals

    def _judge(self, at: Checkpoint, signals: Mapping[str, Signal]) -> JudgedSignals:
        return judge_signals(self._definition.graph, at, signals, self._archive.pack)

    async def _decide_cancel(self, at: Checkpoint) -> CommitDecision | None:
        """Decide to cancel the run if somebody asked for it: through this drive, or by a signal."""
        cancels = await self._find_cancels(at, self._signals)
        is_over = at.status in (WorkflowRunState.IDLE, WorkflowRunState.CANCELLED)
        if not cancels and (not self._cancelled or is_over):
            return None
        return CommitDecision(kernel.cancel(at, _next_stamp(at)), None, consumed=cancels)

    async def _find_cancels(self, at: Checkpoint, signals: Mapping[str, Signal] | None) -> tuple[str, ...]:
        """Return the keys of the signals that cancel the run now; None: read them first."""
        if signals is None:
            signals = await self._archive.pending_signals(at.run_id)
        cancels = await find_cancels(self._archive, at, signals)
        self._stale_cancels = cancels.stale
        return cancels.valid

    async def _decide_intake(self, at: Checkpoint, plan: Plan) -> CommitDecision | None:
        """Decide on the signals that arrived since the last commit, and on requests that got no response in time."""
        # The run rests, and somebody asked to cancel it: what was sent since is left for a resume.
        if self._lease_is_over and self._cancelled:
            return None
        # Those of the opening, if there were any; what is sent meanwhile is read after the next commit.
        signals, self._signals = self._signals or await self._archive.pending_signals(at.run_id), None
        judged = self._judge(at, signals)
        # A default is stored as a signal, so that the first response wins no matter who sends it.
        if await send_defaults(self._archive, at, [r for r in find_overdue(at) if r.id not in judged.answered]):
            signals = await self._archive.pending_signals(at.run_id)
            judged = self._judge(at, signals)
        decision = await self._judge_intake(at, plan, signals, judged)
        if decision is not None and self._lease_is_over and not await self._is_acquired_again(at):
            return None
        return decision

    async def _judge_intake(
        self, at: Checkpoint, plan: Plan, signals: Mapping[str, Signal], judged: JudgedSignals
    ) -> CommitDecision | None:
        if cancels := await self._find_cancels(at, signals):
            return CommitDecision(kernel.cancel(at, _next_stamp(at)), None, consumed=cancels)
        expired = None if plan.deliveries else expiry_error(at, find_overdue(at))
        # A resumed run that was cancelled while it waited: a commit says that it waits again.
        resumed = at.status is WorkflowRunState.CANCELLED and not plan.deliveries and expired is None
        if judged.arrived or (judged.keys and not plan.deliveries) or resumed:
            intake = kernel.intake(self._definition.graph, at, judged.arrived, _next_stamp(at))
            commit = replace(intake.commit, warnings=tuple(map(str, judged.refused)))
            # A rejected response fails the call, unless there is something else to continue with.
            error = None if judged.arrived else next(iter(judged.refused), None)
            return replace(intake, commit=commit, error=error, consumed=judged.keys)
        if expired is None:
            return None
        # A failure is stored once and raised each time.
        if at.status is WorkflowRunState.FAILED:
            raise expired
        return CommitDecision(kernel.fail(at, (details_of(None, expired),), _next_stamp(at)), plan, expired)

    async def _is_acquired_again(self, at: Checkpoint) -> bool:
        """Acquire a run that was released when it came to rest; False if another process was first and moves it."""
        try:
            stored = await self._acquire(at.run_id)
        except RunBusy:
            return False
        return stored.head is not None and stored.head.number == at.number

    def _on_signal(self) -> None:
        """Called from a thread: there are signals, and one of them may be a cancel."""
        # The loop is closed, and the drive with it.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._check_cancel_soon)

    def _check_cancel_soon(self) -> None:
        if self._lease is not None and (self._cancel_check is None or self._cancel_check.done()):
            self._cancel_check = self._loop.create_task(self._check_cancel())

    async def _check_cancel(self) -> None:
        # Called again as long as there are signals.
        with suppress(DurabilityError):
            if self.at is not None and await self._find_cancels(self.at, None):
                self.cancel()

    # ---------------------------------------------------------------- a superstep

    def _create_superstep(self, scope: DriveScope, at: Checkpoint, plan: Plan, log: RecalledLog) -> Superstep:
        watching = self._observer.superstep(at.iteration + 1, len(plan.deliveries)) if self._observer else None
        return Superstep(scope, at, plan, log, watching)

    async def _stream_superstep(self, superstep: Superstep, at: Checkpoint) -> Events:
        """Run the handlers in a task, and yield the events they emit meanwhile."""
        if self._must_stop(at):
            return
        yield self._broadcast.emit_superstep_start(at)
        live = self._broadcast.live
        self._acting = asyncio.create_task(superstep.run_handlers())
        self._acting.add_done_callback(lambda _: live.put_nowait(None))
        while (event := await live.get()) is not None:
            yield event
        if not (self._cancelled or self._stopped):
            self._acting.result()

    def _must_stop(self, at: Checkpoint) -> bool:
        return self._cancelled or at.since_input >= self._definition.max_iterations

    async def _run_superstep(self, superstep: Superstep, at: Checkpoint) -> list[WorkflowEvent]:
        """Run the handlers in the caller's task: nobody reads a stream, so events can wait until they have returned."""
        if self._must_stop(at):
            return []
        started = self._broadcast.emit_superstep_start(at)
        self._acting = asyncio.current_task()
        try:
            await superstep.run_handlers()
        except asyncio.CancelledError:
            if not self._cancelled or self._acting is None or self._acting.uncancel() > 0:
                raise  # somebody else cancelled the task
        finally:
            self._acting = None
        return [started, *self._broadcast.drain()]

    def _interrupt(self) -> None:
        if self._acting is not None:
            self._acting.cancel()

    async def _halt(self, superstep: Superstep) -> None:
        """Stop the handlers; store finished outcomes, so that a resume does not execute them again."""
        if self._acting is not None and not self._acting.done():
            self._acting.cancel()
            await asyncio.wait([self._acting])
        await superstep.persist()

    # ---------------------------------------------------------------- committing

    async def _commit_superstep(self, superstep: Superstep, decision: CommitDecision, at: Checkpoint) -> Checkpoint:
        """Commit what the superstep came to: if that fails, the superstep has failed."""
        superstep.hand_over()
        if decision.commit.kind is CommitKind.CANCELLED:
            decision = replace(decision, consumed=await self._find_cancels(at, None))
        after = await self._commit(decision, at)
        await superstep.end()
        if superstep.observer is not None:
            superstep.observer.end(decision.error)
        return after

    async def _commit(self, decision: CommitDecision, at: Checkpoint) -> Checkpoint:
        commit = decision.commit
        after = kernel.apply(at.header, at, commit)
        began = perf_counter()
        # Cancel signals that came too late are consumed here, or they would be read again and again.
        consumed = tuple(dict.fromkeys((*decision.consumed, *self._stale_cancels)))
        self._stale_cancels = ()
        at_rest = kernel.is_at_rest(after)
        await store_commit(
            self._archive,
            commit,
            after,
            before=at,
            # The superstep log is dropped only if the messages have moved: a failed superstep is repeated in its place.
            drop_log_through=at.place if commit.place != at.place else None,
            consumed=consumed,
            # A run at rest is left, unless there are signals for it: then it is acquired again.
            release=at_rest,
        )
        # Before its events are emitted, a run at rest must be durable; so must the consumption of a signal.
        if at_rest or consumed:
            await self._flush()
        self._lease_is_over = self._lease_is_over or at_rest
        if self._observer:
            self._observer.record_commit(perf_counter() - began)
        self.at = after
        return after

    async def _flush(self) -> None:
        if self._options.durability != "sync":
            await finish(self._archive.flush())

    # ---------------------------------------------------------------- the end

    async def _release_lease(self) -> None:
        if self._lease is not None:
            lease, self._lease = self._lease, None
            await lease_renewal.release(lease, is_over=self._lease_is_over)

    async def _leave_run(self) -> None:
        """Release the lease, and let those who wait for this drive to disappear look at the run again."""
        try:
            await self._release_lease()
        finally:
            # Not before: a drive that waits for this one may acquire the run next.
            key, self._key = self._key, None
            if key is not None:
                watchers.unregister_drive(key, self)
                watchers.publish(key, watchers.LOOK_AGAIN)

    async def _end(self) -> None:
        # Commits that wait to be stored need the lease, so it is released last.
        try:
            if self._lease is not None:
                await self._flush()
        finally:
            await self._clean_up()

    async def _clean_up(self) -> None:
        try:
            await self._leave_run()
        finally:
            if self._release is not None:
                lease_renewal.finish_release(self._release)
            self._record_end()
            if self.executors and not self._ended:
                self._ended = True
                self._executor_source.release(self.executors, self.at, self._options.archive)

    def _record_end(self) -> None:
        """Log the end of the drive. Errors are raised, not logged."""
        if self.at is None or self._ended:
            return
        _LOG.info("run %r of %r is %s", self.at.run_id, self._definition.name, status_word(self.at.status))
        if self._observer:
            self._observer.end(self.at.status.value, self._error)


def _next_stamp(at: Checkpoint) -> Stamp:
    return new_stamp(at.run_id, at.header.epoch, at.number + 1)


def _is_asleep(at: Checkpoint, plan: Plan) -> bool:
    """Return whether a run is parked for long: nothing needs to be loaded to find that out."""
    return bool(plan.deliveries) and at.wake is not None and is_far(at.wake)
