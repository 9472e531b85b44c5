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
from typing import Any

import msgspec
from msgspec.structs import replace

from stepwell import kernel
from stepwell.engine import durability, lease_renewal, open_run, watchers
from stepwell.engine.broadcast import Broadcast
from stepwell.engine.commit import store_commit
from stepwell.engine.definition import WorkflowDefinition
from stepwell.engine.drive_options import ExecutorSource, Options
from stepwell.engine.drive_scope import DriveScope, PrivateValues
from stepwell.engine.executor_state import RunExecutors
from stepwell.engine.failures import details_of
from stepwell.engine.open_run import (
    EMPTY_LOG,
    EnteredRun,
    ForkedRun,
    FoundRun,
    NewRun,
    StoredRun,
    SuspendedRun,
    enter_run,
    find_run,
    new_stamp,
)
from stepwell.engine.responses import check_no_caller, check_responses, expiry_error, find_overdue, send_responses
from stepwell.engine.signals import SignalReader
from stepwell.engine.superstep import Superstep
from stepwell.engine.superstep_decision import SuperstepDecision, decide
from stepwell.engine.superstep_log import is_far
from stepwell.engine.telemetry import Observer, create_observer
from stepwell.errors import DurabilityError, StepwellError
from stepwell.graph.executor import Executor
from stepwell.model.checkpoint import Checkpoint, Retention
from stepwell.model.commit import Commit, CommitKind
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.model.log_keys import RecalledLog
from stepwell.model.message import Plan
from stepwell.model.payload import Pack, Payload, pack_copy
from stepwell.model.status_words import status_word
from stepwell.storage.cancellation_shield import finish
from stepwell.storage.ids import new_run_id
from stepwell.storage.lease import this_process

_LOG = logging.getLogger("stepwell")


class _IntakeResult(msgspec.Struct, frozen=True):
    """Where a run is after signals were applied."""

    at: Checkpoint
    next: Plan | None  # None: the run stops here
    events: Sequence[WorkflowEvent] = ()
    error: StepwellError | None = None


class Drive:
    """Moves one run forward until it is idle, parked, failed, cancelled or left. `events` does all of it."""

    def __init__(self, definition: WorkflowDefinition, options: Options, executor_source: ExecutorSource) -> None:
        self._definition, self._options, self._executor_source = definition, options, executor_source
        self._archive = durability.archive_at(options.durability, options.archive)
        self._pack: Pack = definition.codec.pack if options.archive is not None else pack_copy
        self._lease: lease_renewal.HeldLease | None = None
        self._signals = SignalReader(options.archive, definition.codec, definition.graph)
        self._broadcast = Broadcast(options.archive, options.streaming)
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
        # A run without a storage cannot be read again, so the drive keeps what its caller needs of it.
        # The commits of this drive, if it is a sub-workflow run.
        self.own_commits: list[Commit] = []
        output_commits = options.position.output_commits if isinstance(options.position, SuspendedRun) else ()
        self.output_commits = list(output_commits)  # the commits with outputs

    @property
    def is_stored(self) -> bool:
        """Whether a later drive can resume this run."""
        return self._options.archive is not None

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

    async def events(self) -> AsyncGenerator[WorkflowEvent, None]:
        """Yield the events of this drive as they happen. Closing the generator stops the run at its last commit."""
        try:
            executors, entered = await self._open()
            at, log = entered.at, entered.log
            plan: Plan | None = open_run.plan_first(self._definition, at, log)
            for event in await self._emit_opening(entered, plan):
                yield event
            if entered.replay_only:
                return
            if (intake := await self._cancel_first(entered)) is not None:
                at, plan = intake.at, intake.next
                for event in intake.events:
                    yield event
            elif plan is not None and _is_asleep(at, plan):
                return
            scope = self._create_scope(at)
            may_have_run = bool(plan and plan.deliveries)  # see `_apply_signals`
            while plan is not None:
                if not plan.deliveries or (at.requests and not may_have_run):
                    intake = await self._apply_signals(at, plan)
                    at, plan = intake.at, intake.next
                    for event in intake.events:
                        yield event
                    if intake.error is not None:
                        raise intake.error
                if plan is None or not plan.deliveries:
                    break
                superstep = self._create_superstep(scope, executors, at, plan, log)
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
                    decided = await decide(self._definition, superstep, at, plan, self._pack, self._cancelled)
                    at = await self._commit(superstep, at, decided)
                except DurabilityError as error:
                    for event in self._broadcast.emit_store_failure(at, error):
                        yield event
                    raise
                except BaseException:
                    # The stream was closed, or its task cancelled.
                    await self._halt(superstep)
                    raise
                for event in self._broadcast.emit_commit(decided.commit, at):
                    yield event
                if decided.error is not None:
                    raise decided.error
                plan, log, may_have_run = decided.next, EMPTY_LOG, False
        except BaseException as error:
            self._error = error
            raise
        finally:
            await self._end()

    def _create_superstep(
        self, scope: DriveScope, executors: RunExecutors, at: Checkpoint, plan: Plan, log: RecalledLog
    ) -> Superstep:
        watching = self._observer.superstep(at.iteration + 1, len(plan.deliveries)) if self._observer else None
        return Superstep(scope, executors, archive=self._archive, at=at, plan=plan, log=log, observer=watching)

    async def _open(self) -> tuple[RunExecutors, EnteredRun]:
        run = await find_run(self._definition, self._options.position, self._archive, self._acquire_lease)
        if self._options.responses and self._options.caller is None and isinstance(run, StoredRun):
            check_no_caller(run.at)
        self._observe(run)
        run = self._complete_header(run)
        self.executors = self._executor_source.acquire()
        self.run_id = run.run_id
        self._broadcast.set_run(run.run_id)
        executors = RunExecutors(run.run_id, self.executors, self._pack)
        self.at = run.checkpoint
        answers: Mapping[str, Payload] = {}
        # Checked before a fork is created for them.
        if self._options.responses and run.checkpoint is not None:
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
        """Return the responses to send. A caller that crashed gives its sub-workflow run a response twice: skip it."""
        responses = self._options.responses
        return (
            responses if self._options.caller is None else {id: v for id, v in responses.items() if id in at.requests}
        )

    def _complete_header(self, run: FoundRun) -> FoundRun:
        """Add what a new run is born with: its caller, its retention and the trace that it was started in."""
        if not isinstance(run, (NewRun, ForkedRun)):
            return run
        trace = self._observer.traceparent if self._observer else None
        retention = Retention.FullHistory if self._archive is None else self._archive.retention
        return replace(run, header=replace(run.header, caller=self._options.caller, trace=trace, retention=retention))

    def _observe(self, run: FoundRun) -> None:
        name, before = self._definition.name, run.checkpoint
        began = None if before is None else before.header.trace
        self._observer = create_observer(name, run.run_id, began, resumed=before is not None)
        _LOG.info("run %r of %r %s", run.run_id, name, "starts" if before is None else "resumes")

    async def _emit_opening(self, entered: EnteredRun, plan: Plan | None) -> list[WorkflowEvent]:
        assert plan is not None
        answered: set[str] = set()
        if entered.at.requests:
            answered = await self._signals.find_response_ids(entered.at) | set(self._options.responses)
        events = await self._broadcast.emit_opening(entered, plan, self.output_commits, answered)
        return [*events, *self._withdraw_updates(entered, plan)] if entered.is_continued else events

    def _withdraw_updates(self, entered: EnteredRun, plan: Plan) -> list[WorkflowEvent]:
        """Withdraw updates that an earlier drive may have emitted before it died: those handlers run again."""
        executors, done = self._definition.graph.executors, entered.log.outcomes
        again = [
            delivery
            for delivery in plan.deliveries
            if executors[delivery.executor]._streams_updates and delivery.id not in done
        ]
        return [self._broadcast.emit("withdrawn", entered.at, executor_id=d.executor, delivery=d.id) for d in again]

    async def _cancel_first(self, entered: EnteredRun) -> _IntakeResult | None:
        """Cancel the run before its first superstep if somebody asked for it: through this drive, or by a signal."""
        at = entered.at
        # A run that was just created, forked or moved back has no cancel signal that is meant for it.
        cancels = await self._signals.find_cancels(at) if entered.is_continued else ()
        stopped = at.status in (WorkflowRunState.IDLE, WorkflowRunState.CANCELLED)
        if cancels or (self._cancelled and not stopped):
            return await self._cancel_here(at, cancels)
        # It was over already: there is nothing to cancel, and the stream says where it is.
        events = [self._broadcast.emit("status", at, commit=at.number, replayed=True)]
        return _IntakeResult(at, None, events) if self._cancelled else None

    async def _cancel_here(self, at: Checkpoint, cancels: tuple[str, ...]) -> _IntakeResult:
        commit = kernel.cancel(at, new_stamp(at.run_id, at.header.epoch, at.number + 1))
        after = await self._store_commit(commit, at, consumed=cancels)
        return _IntakeResult(after, None, self._broadcast.emit_commit(commit, after))

    async def _apply_signals(self, at: Checkpoint, plan: Plan) -> _IntakeResult:
        """Commit the signals that arrived since the last commit, or that a request got no response in time.

        Not while a superstep may have been tried already: an intake commit changes the place of its messages,
        and with it the names under which its outcomes are logged and its idempotency keys.
        """
        signals = await self._signals.receive(at)
        if signals.cancel:
            return await self._cancel_here(at, signals.cancel)
        stamp = new_stamp(at.run_id, at.header.epoch, at.number + 1)
        expired = None if plan.deliveries else expiry_error(at, find_overdue(at))
        # A resumed run that was cancelled while it waited: a commit says that it waits again.
        resumed = at.status is WorkflowRunState.CANCELLED and not plan.deliveries and expired is None
        if signals.arrived or (signals.keys and not plan.deliveries) or resumed:
            merged = kernel.intake(self._definition.graph, at, signals.arrived, stamp)
            commit = replace(merged.commit, warnings=tuple(map(str, signals.refused)))
            after = await self._store_commit(commit, at, drop_log_through=at.place, consumed=signals.keys)
            # A rejected response fails the call, unless there is something else to continue with.
            error = None if signals.arrived else next(iter(signals.refused), None)
            return _IntakeResult(after, merged.next, self._broadcast.emit_commit(commit, after), error)
        # A failure is stored once and raised each time.
        if expired is None or at.status is WorkflowRunState.FAILED:
            return _IntakeResult(at, plan, [], expired)
        commit = kernel.fail(at, (details_of(None, expired),), stamp)
        after = await self._store_commit(commit, at)
        return _IntakeResult(after, plan, self._broadcast.emit_commit(commit, after), expired)

    async def _store_commit(
        self, commit: Commit, at: Checkpoint, *, drop_log_through: int | None = None, consumed: tuple[str, ...] = ()
    ) -> Checkpoint:
        after = kernel.apply(at.header, at, commit)
        if self._archive is not None:
            began = perf_counter()
            # Cancel signals that came too late are consumed here, or they would be read again and again.
            stale_cancels, self._signals.stale_cancels = self._signals.stale_cancels, ()
            keys = tuple(dict.fromkeys((*consumed, *stale_cancels)))
            await store_commit(
                self._archive, commit, after, before=at, drop_log_through=drop_log_through, consumed=keys
            )
            # Before its events are emitted, a run at rest must be durable; so must the consumption of a signal.
            if kernel.is_at_rest(after) or keys:
                await self._flush()
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
                self._archive, run_id, owner, on_signal=self._on_signal, may_take_over=self._options.may_take_over
            )
            watchers.register_drive(watchers.key_of(self._archive, run_id), self)

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
            if self.at is not None and await self._signals.find_cancels(self.at):
                self.cancel()

    def _create_scope(self, at: Checkpoint) -> DriveScope:
        return DriveScope(
            self._definition.graph,
            at.run_id,
            epoch=at.header.epoch,
            pack=self._pack,
            private=PrivateValues(at.run_id, self._options.private),
            streaming=self._options.streaming,
            emit=self._broadcast.emit_live,
            archive_for=self._options.archive_for,
            durability=self._options.durability,
            flush=self._flush,
            holds_lease=partial(lease_renewal.is_still_held, self._lease),
            codec=self._definition.codec,
            recall_changed=self._options.recall_changed,
            is_needed=self._archive is not None and self._archive.needed is not None,
        )

    async def _flush(self) -> None:
        if self._options.durability != "sync":
            await finish(durability.flush(self._archive))

    async def _stream_superstep(self, superstep: Superstep, at: Checkpoint) -> AsyncGenerator[WorkflowEvent, None]:
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

    async def _run_superstep(self, superstep: Superstep, at: Checkpoint) -> list[WorkflowEvent]:
        """Run the handlers in the caller's task: nobody reads a stream, so events can wait until they have returned."""
        if self._must_stop(at):
            return []
        started = self._broadcast.emit_superstep_start(at)
        await self._run_handlers(superstep)
        return [started, *self._broadcast.drain()]

    def _must_stop(self, at: Checkpoint) -> bool:
        return self._cancelled or at.since_input >= self._definition.max_iterations

    async def _run_handlers(self, superstep: Superstep) -> None:
        self._acting = asyncio.current_task()
        try:
            await superstep.run_handlers()
        except asyncio.CancelledError:
            if not self._cancelled or self._acting is None or self._acting.uncancel() > 0:
                raise  # somebody else cancelled the task
        finally:
            self._acting = None

    def _interrupt(self) -> None:
        if self._acting is not None:
            self._acting.cancel()

    async def _halt(self, superstep: Superstep) -> None:
        """Stop the handlers; store finished outcomes, so that a resume does not execute them again."""
        if self._acting is not None and not self._acting.done():
            self._acting.cancel()
            await asyncio.wait([self._acting])
        await superstep.persist()

    async def _commit(self, superstep: Superstep, at: Checkpoint, decided: SuperstepDecision) -> Checkpoint:
        """Commit what the superstep came to: if that fails, the superstep has failed."""
        commit = decided.commit
        superstep.hand_over()
        cancels = await self._signals.find_cancels(at) if commit.kind is CommitKind.CANCELLED else ()
        # The superstep log is dropped only if the messages have moved: a failed superstep is repeated in its place.
        drop_log_through = at.place if commit.place != at.place else None
        after = await self._store_commit(commit, at, drop_log_through=drop_log_through, consumed=cancels)
        await superstep.end()
        if superstep.observer is not None:
            superstep.observer.end(decided.error)
        return after

    async def _release_lease(self) -> None:
        if self._lease is not None:
            lease, self._lease = self._lease, None
            key = watchers.key_of(lease.archive, lease.run_id)
            try:
                await lease_renewal.release(lease)
            finally:
                # Not before: a drive that waits for this one to disappear may acquire the run next.
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
            await self._release_lease()
        finally:
            if self._release is not None:
                lease_renewal.finish_release(self._release)
            self._record_end()
            if self.executors and not self._ended:
                self._ended = True
                self._executor_source.release(self.executors, self.at, self.output_commits)

    def _record_end(self) -> None:
        """Log the end of the drive. Errors are raised, not logged."""
        if self.at is None or self._ended:
            return
        _LOG.info("run %r of %r is %s", self.at.run_id, self._definition.name, status_word(self.at.status))
        if self._observer:
            self._observer.end(self.at.status.value, self._error)


def _is_asleep(at: Checkpoint, plan: Plan) -> bool:
    """Return whether a run is parked for long: nothing needs to be loaded to find that out."""
    return bool(plan.deliveries) and at.wake is not None and is_far(at.wake)
