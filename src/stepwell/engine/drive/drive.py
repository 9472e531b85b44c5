"""One drive of a run: open it, move it forward superstep by superstep, commit, emit.

It wires the parts together and decides when something happens; `kernel` decides what.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from time import perf_counter

from msgspec.structs import replace

from stepwell import kernel
from stepwell.engine.drive.lease import DriveLease
from stepwell.engine.drive.set_aside import decide_set_aside
from stepwell.engine.durability import deferred_archive, lease_renewal
from stepwell.engine.durability.superstep_log import SuperstepLog
from stepwell.engine.events.broadcast import Broadcast
from stepwell.engine.events.telemetry import Observer, create_observer
from stepwell.engine.handler import branches
from stepwell.engine.handler.drive_scope import DriveScope, create_scope
from stepwell.engine.handler.questions import Questions, list_changes
from stepwell.engine.intake import timers
from stepwell.engine.intake.signals import Intake
from stepwell.engine.opening.definition import WorkflowDefinition
from stepwell.engine.opening.drive_options import DriveOptions, ExecutorSource
from stepwell.engine.opening.executor_state import RunExecutors
from stepwell.engine.opening.open_run import StartingPoint, make_first_commit, open_run, plan_first
from stepwell.engine.opening.passed_responses import check_passed
from stepwell.engine.superstep.reading_task import ReadingTask
from stepwell.engine.superstep.run import SuperstepRun
from stepwell.engine.superstep.superstep import Superstep
from stepwell.errors import CommitConflict, DurabilityError
from stepwell.graph.executor import Executor
from stepwell.kernel import CommitDecision
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, CommitKind
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.model.message import Plan
from stepwell.model.request import Request
from stepwell.model.signal import ReceivedCancel
from stepwell.model.status_words import status_word
from stepwell.storage.archive import EMPTY_LOG, Archive
from stepwell.storage.cancellation_shield import finish

_LOG = logging.getLogger("stepwell")

EventBatches = AsyncGenerator[Sequence[WorkflowEvent], None]


class Drive:
    """Moves one run forward until it is idle, parked, failed, cancelled or left. `batches` does all of it."""

    def __init__(self, definition: WorkflowDefinition, options: DriveOptions, executor_source: ExecutorSource) -> None:
        self._definition, self._options, self._executor_source = definition, options, executor_source
        self._archive: Archive = deferred_archive.archive_at(options.durability, options.archive)
        self._lease = DriveLease(self, self._archive, self._on_signal, options.may_take_over)
        self._intake = Intake(definition.graph, self._archive, options.timers_until)
        self._broadcast = Broadcast(options.archive, options.streaming)
        self._running: SuperstepRun | None = None  # the latest superstep
        self.reading_task = ReadingTask()
        self._cancel_check: asyncio.Task[None] | None = None
        self._asks: Questions | None = None  # of the superstep in progress
        self._stopped = self._ended = False
        self._cancelled: ReceivedCancel | None = None  # somebody asked to cancel the run
        self._observer: Observer | None = None
        self._by: str | None = None  # who resumed the run, until a commit says so
        self._error: BaseException | None = None  # what ended the drive early
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.gathers = False  # a batch may wait for the end of the drive
        self.hands_over = False  # if it leaves the run in the middle, others have their turn: it is not stalled
        self.reader: Callable[[], Awaitable[None]] | None = None  # reads the stream of this drive to its end
        self.run_id: str | None = None
        self.at: Checkpoint | None = None  # that of the latest commit
        self.was_completed = False  # when it was opened, and nothing had arrived for it since
        self.executors: Mapping[str, Executor] = {}

    @property
    def archive(self) -> Archive:
        """Where the run is kept."""
        return self._options.archive

    @property
    def is_stored(self) -> bool:
        """Whether a later drive can resume this run."""
        return self._archive.is_durable

    @property
    def open_requests(self) -> Mapping[str, Request]:
        """The requests that can be answered where the run rests."""
        return {} if self.at is None else kernel.open_requests(self.at, self._intake.log)

    def cancel(self, *, by: str | None = None, reason: str | None = None) -> None:
        """Cancel the run: handlers are cancelled, and it ends CANCELLED at its last commit. From any thread."""
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(partial(self.cancel, by=by, reason=reason))
            return
        # The first one to ask is on record; a second interruption would hit the handlers while they clean up.
        if self._cancelled is None:
            self._cancelled = ReceivedCancel(-1 if self.at is None else self.at.number, by, reason)
            if self._running is not None:
                self._running.cancel()

    async def read_to_end(self) -> None:
        """Read the stream to its end if its reader does not: a run moves only as far as its stream is read."""
        if self.reader is not None and self._loop is asyncio.get_running_loop():
            # The error is raised where the stream is awaited.
            with suppress(Exception):
                await self.reader()

    def stop(self) -> None:
        """Stop at the last commit, as a crash would: nothing is written to the history, and `events` ends."""
        self._stopped = True
        if self._running is not None:
            self._running.stop()

    def leave(self) -> None:
        """Announce that the stream was abandoned: the next drive of the run waits until this one is closed."""
        self._lease.announce_release(self._loop)

    async def events(self) -> AsyncGenerator[WorkflowEvent, None]:
        """Yield the events of this drive as they happen. Closing the generator stops the run at its last commit."""
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def batches(self) -> EventBatches:
        """Yield the events of this drive as `events` does, those that happen together in one batch."""
        try:
            run, scope, at, first = await self._open()
            plan = plan_first(self._definition, at, run.log)
            answered = self._intake.find_answered(at) if at.requests else set[str]()
            self.was_completed = at.status is WorkflowRunState.IDLE and not self._intake.judge(at).arrived
            yield await self._broadcast.emit_opening(
                self._definition.graph, run, at, first, plan=plan, answered=answered, rests=self._intake.rests(at, plan)
            )
            if run.replay_only:
                return
            # A run that was just created, forked or moved back has no cancel signal that is meant for it.
            if run.is_continued or self._cancelled is not None:
                cancel = await self._intake.decide_cancel(at, self._cancelled)
                if cancel is not None:
                    at = await self._commit(cancel, at)
                    yield self._broadcast.emit_commit(cancel.commit, at)
                    return
                if self._cancelled is not None:
                    # It was over already: there is nothing to cancel, and the stream says where it is.
                    yield (self._broadcast.emit("status", at, commit=at.number, replayed=True),)
                    return
            # Code that has changed is given another chance: its migration is a commit.
            most = self._options.most_takeovers if run.first is None else None
            set_aside = decide_set_aside(at, plan, self._lease.takeovers, most)
            if set_aside is not None and set_aside.error is not None:
                at = await self._commit(set_aside, at)
                yield self._broadcast.emit_commit(set_aside.commit, at)
                raise set_aside.error
            branches.install(self._loop)
            async with aclosing(self._advance(scope, at, plan)) as batches:
                async for batch in batches:
                    yield batch
            # A cancel may have arrived while the run went to sleep, and nobody looks before it wakes up.
            if self._lease.is_over and self.at is not None and self.at.wake is not None:
                self._intake.signals = None  # read them again
                cancel = await self._intake.decide_cancel(self.at, self._cancelled)
                if cancel is not None and await self._lease.reacquire(self.at):
                    at = await self._commit(cancel, self.at)
                    yield self._broadcast.emit_commit(cancel.commit, at)
        except BaseException as error:
            self._error = error
            raise
        finally:
            await self._end()

    # One turn of the loop of `_advance` is one of these, in this order:
    # - the run is parked for long, or was cancelled: the drive ends;
    # - nothing is to be delivered, or requests are open and no superstep can have started: signals are
    #   applied in an intake commit, or a request without a response fails the run. In a superstep that may
    #   have been tried that is done by a late intake, which keeps the names of its outcomes;
    # - still nothing is to be delivered: the run rests, and the drive ends;
    # - a superstep: the handlers run, and it ends in a commit, in an error that is committed and then
    #   raised, or, if the stream is left, at the commit before it.
    async def _advance(self, scope: DriveScope, at: Checkpoint, first: Plan) -> EventBatches:
        """Move the run forward, commit by commit, and yield the events of each."""
        plan: Plan | None = first
        may_have_run = bool(first.deliveries)
        while plan is not None and not (kernel.is_at_rest(at) and self._intake.rests(at, plan)):
            can_apply = self._intake.is_late(at, plan) if may_have_run else at.requests or at.timers or at.children
            if can_apply or not plan.deliveries:
                intake = await self._decide_intake(at, plan)
                if intake is not None:
                    at, plan = await self._commit(intake, at), intake.next
                    yield [*self._broadcast.drain(), *self._broadcast.emit_commit(intake.commit, at)]
                    if intake.error is not None:
                        raise intake.error
            if plan is None or not plan.deliveries or self._lease.is_over:
                if plan is None or plan.deliveries or not await timers.wait_for_timer(at, self._archive):
                    break
                continue
            superstep = self._create_superstep(scope, at, plan)
            self._running = running = SuperstepRun(superstep, self._broadcast, at, self.reading_task)
            try:
                is_stopped = self._cancelled is not None or at.since_input >= self._definition.max_iterations
                if self._options.streaming and not is_stopped:
                    async with aclosing(running.stream()) as live:
                        async for event in live:
                            yield (event,)
                elif not is_stopped:
                    await running.run()
                if self._stopped:
                    await running.halt()
                    return
                decision = await superstep.decide(self._definition.max_iterations, cancel=self._cancelled)
                if decision.commit.kind is not CommitKind.SUPERSTEP:
                    # Outcomes that were stored on their own, because this commit does not contain them.
                    yield self._broadcast.drain()
                # From here on the commit stores the outcomes: if that fails, the superstep has failed.
                superstep.hand_over()
                at = await self._commit(decision, at)
            except DurabilityError as error:
                yield [*self._broadcast.drain(), *self._broadcast.emit_store_failure(at, error)]
                raise
            except BaseException:
                # The stream was closed, or its task cancelled.
                await running.halt()
                raise
            if superstep.writes:
                # Their errors no longer matter: the commit holds the same outcomes.
                await asyncio.gather(*superstep.writes.values(), return_exceptions=True)
            if superstep.observer is not None:
                superstep.observer.end(decision.error)
            self._broadcast.hold(self._broadcast.emit_commit(decision.commit, at))
            if not self.gathers or decision.error is not None:
                yield self._broadcast.drain()
            if decision.error is not None:
                raise decision.error
            may_have_run = decision.commit.kind is CommitKind.PARKED
            self._intake.end_superstep(superstep.log if may_have_run else EMPTY_LOG, decision.consumed)
            plan = plan if may_have_run and self._intake.can_continue(at, plan) else decision.next
        if self.gathers:
            yield self._broadcast.drain()

    def _create_superstep(self, scope: DriveScope, at: Checkpoint, plan: Plan) -> Superstep:
        observer = self._observer.superstep(at.iteration + 1, len(plan.deliveries)) if self._observer else None
        superstep_log = SuperstepLog(self._archive, at, dict(self._intake.log.entries))
        self._asks = Questions(self._archive, at, superstep_log, self._broadcast.emit_live, self._options.list_request)
        self._asks.receive(self._intake.signals or {})
        return Superstep(scope, at, plan, self._intake.log.outcomes, superstep_log, self._asks, observer=observer)

    # ---------------------------------------------------------------- opening

    async def _open(self) -> tuple[StartingPoint, DriveScope, Checkpoint, Commit | None]:
        options = self._options
        run = await open_run(self._definition, options.position, self._archive, self._lease.acquire_and_read)
        name, trace = self._definition.name, None if run.at is None else run.at.header.trace
        self._observer = create_observer(name, run.run_id, trace, run.at is not None, options.emits_spans)
        _LOG.info("run %r of %r %s", run.run_id, name, "starts" if run.at is None else "resumes")
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
        passed = await check_passed(self._definition.graph, self._archive, run, options)
        by = options.position.by
        at, first = await make_first_commit(self._definition, run, self._archive, executors, by=by)
        self.at, self._by = at, by if first is None else None
        signals = run.signals if run.is_continued else {}
        self._intake.signals = await passed.send(self._archive, at, signals, by)
        self._intake.log = run.log
        scope = create_scope(
            self._definition,
            options,
            at,
            archive=self._archive,
            executors=executors,
            emit=self._broadcast.emit_live,
            is_left=self.reading_task.is_leaving,
            holds_lease=partial(lease_renewal.renew_and_check, self._lease.held),
        )
        return run, scope, at, first

    # ---------------------------------------------------------------- signals

    async def _decide_intake(self, at: Checkpoint, plan: Plan) -> CommitDecision | None:
        # The run rests, and somebody asked to cancel it: what was sent since is left for a resume.
        if self._lease.is_over and self._cancelled is not None:
            return None
        try:
            decision = await self._intake.decide(at, plan)
        except CommitConflict:
            if self._lease.is_over:
                return None  # the run came to rest, and another process moves it now
            raise
        if decision is not None and self._lease.is_over and not await self._lease.reacquire(at):
            return None
        return decision

    def _on_signal(self) -> None:
        """Called from a thread: there are signals, and one of them may be a cancel."""
        # The loop is closed, and the drive with it.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._check_cancel_soon)

    def _check_cancel_soon(self) -> None:
        if self._lease.held is not None and (self._cancel_check is None or self._cancel_check.done()):
            self._cancel_check = self._loop.create_task(self._check_cancel())

    async def _check_cancel(self) -> None:
        # Called again as long as there are signals.
        with suppress(DurabilityError):
            if self.at is None:
                return
            signals = await self._archive.pending_signals(self.at.run_id)
            if self._asks is not None:
                self._asks.receive(signals)
            cancel = (await self._intake.find_cancels(self.at, signals)).first
            if cancel is not None:
                self.cancel(by=cancel.by, reason=cancel.reason)

    # ---------------------------------------------------------------- committing

    async def _commit(self, decision: CommitDecision, at: Checkpoint) -> Checkpoint:
        commit, consumed = decision.commit, decision.consumed
        # Who resumed the run is on record in the first commit that follows.
        if self._by is not None:
            commit, self._by = replace(commit, by=commit.by or self._by), None
        if commit.kind is CommitKind.CANCELLED and not any(key.startswith("cancel/") for key in consumed):
            consumed = (*consumed, *(await self._intake.find_cancels(at)).valid)
        # Cancel signals that came too late are consumed here, or they would be read again and again.
        if self._intake.stale_cancels:
            consumed = tuple(dict.fromkeys((*consumed, *self._intake.stale_cancels)))
            self._intake.stale_cancels = ()
        after = kernel.apply(at.header, at, commit)
        at_rest = kernel.is_at_rest(after)
        # The superstep log is dropped only if the messages have moved: a failed superstep is repeated in its place.
        drop_log_through = at.place if commit.place != at.place else None
        began = perf_counter()
        # A run at rest is left, unless there are signals for it: then it is acquired again.
        await self._archive.commit(
            commit, after, before=at, drop_log_through=drop_log_through, consumed=consumed, release=at_rest
        )
        # Before its events are emitted, a run at rest must be durable, and the consumption of a signal. So must an
        # intake, which depends on the time: if it were lost, a later one could give its keys to other deliveries.
        if (at_rest or consumed or commit.kind is CommitKind.INTAKE) and self._options.durability != "sync":
            await finish(self._archive.flush())
        self._lease.is_over = self._lease.is_over or at_rest
        if self._observer:
            self._observer.record_commit(perf_counter() - began)
        self.at = after
        if self._options.list_request is not None:
            requests = {**({} if self._asks is None else self._asks.awaited), **at.requests}
            await list_changes(self._options.list_request, commit, requests, after, at_rest=at_rest)
        return after

    # ---------------------------------------------------------------- the end

    async def _end(self) -> None:
        # Commits that wait to be stored need the lease, so it is released last.
        try:
            if self._lease.held is not None and self._options.durability != "sync":
                await finish(self._archive.flush())
        finally:
            await self._clean_up()

    async def _clean_up(self) -> None:
        try:
            at = self.at
            is_in_middle = at is not None and not kernel.is_at_rest(at) and at.header.caller is None
            await self._lease.leave_run(stalls=is_in_middle and not self.hands_over)
        finally:
            self._lease.finish()
            if not self._ended:
                self._record_end()
            if self.executors and not self._ended:
                self._ended = True
                self._executor_source.release(self.executors, self.at, self._options.archive)

    def _record_end(self) -> None:
        """Log the end of the drive. Errors are raised, not logged."""
        if self.at is None:
            return
        name, word = self._definition.name, status_word(self.at.status, wake=self.at.wake)
        _LOG.info("run %r of %r is %s", self.at.run_id, name, word)
        if self._observer:
            self._observer.end(self.at.status.value, self._error)
