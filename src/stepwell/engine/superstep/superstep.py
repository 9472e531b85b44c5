"""Runs the handlers of one superstep, and decides what it leads to.

Executors run concurrently, each with one message at a time. Only sub-workflow executors, which keep no state of
their own, handle their messages concurrently.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from stepwell import kernel
from stepwell.engine.durability.attempts import Attempts
from stepwell.engine.durability.superstep_log import Parked, SuperstepLog, find_wake
from stepwell.engine.events.telemetry import SuperstepObserver
from stepwell.engine.failures import Failure, details_of, handler_error, is_stop, make_failure
from stepwell.engine.handler.calls import ChosenHandler, choose_handler, invoke
from stepwell.engine.handler.context import HandlerContext
from stepwell.engine.handler.drive_scope import DriveScope
from stepwell.engine.handler.questions import Questions
from stepwell.engine.handler.time_limits import TimeLimit
from stepwell.engine.intake.responses import expiry_error
from stepwell.engine.superstep.edge_conditions import choose_routes
from stepwell.errors import DurabilityError, StepwellError, SuperstepLimit
from stepwell.kernel import CommitDecision
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowErrorDetails, WorkflowEvent, WorkflowEventSource, WorkflowRunState
from stepwell.model.log_keys import RecalledLog
from stepwell.model.message import Delivery, Outcome, OutcomeSummary, Plan, Routed
from stepwell.model.payload import Payload
from stepwell.model.request import Request
from stepwell.model.signal import ReceivedCancel
from stepwell.model.state import StateView, add_writes
from stepwell.model.state_writes import Write
from stepwell.model.timing import CallTime
from stepwell.storage.ids import new_stamp

# Seconds that the last outcome of a superstep waits for the commit that contains it. Usually the
# commit comes at once, and one write is saved.
COMMIT_GRACE = 0.01

_LOG = logging.getLogger("stepwell")


class Superstep(msgspec.Struct, eq=False):
    """The handler calls of one superstep. Each outcome is stored as soon as its handler returns."""

    _scope: DriveScope
    _at: Checkpoint
    _plan: Plan
    _recalled: Mapping[str, Outcome]
    _log: SuperstepLog
    # What its handlers ask people.
    asks: Questions
    observer: SuperstepObserver | None = None
    outcomes: dict[str, Outcome] = {}
    failures: dict[str, Failure] = {}
    # By delivery: the time before which it cannot continue; None if only an answer helps.
    parked: dict[str, str | None] = {}
    # By delivery: the attempt that failed last, and its time.
    _failed_calls: dict[str, tuple[int, CallTime]] = {}
    # The writes of outcomes on their own.
    writes: dict[str, asyncio.Task[None]] = {}
    # The state of each executor after its latest message.
    _saved: dict[str, Payload] = {}
    _store_timer: asyncio.TimerHandle | None = None
    _handed_over: bool = False

    @property
    def is_stored(self) -> bool:
        """Whether a later drive can resume this run."""
        return self._scope.archive.is_durable

    @property
    def log(self) -> RecalledLog:
        """The superstep log, as a later drive recalls it."""
        return RecalledLog(self.outcomes, self._log.entries)

    async def run_handlers(self) -> None:
        """Make every call of the plan. Failures are collected, not raised: siblings of a failed handler finish."""
        deliveries = self._plan.deliveries
        self.asks.lanes = 1
        if len(deliveries) == 1:
            # The common case needs no task: the handler runs in the task of the caller.
            await self._run_lane(deliveries)
            return
        # A lane is handled in order. An executor has one lane, because its attributes must not be
        # changed by two messages at once; a sub-workflow executor has a lane for each message.
        lanes: dict[str, list[Delivery]] = {}
        for delivery in deliveries:
            alone = not self._scope.graph.executors[delivery.executor]._handles_concurrently
            lanes.setdefault(delivery.executor if alone else delivery.id, []).append(delivery)
        if len(lanes) == 1:
            await self._run_lane(lanes.popitem()[1])
            return
        self.asks.lanes = len(lanes)
        tasks = [asyncio.create_task(self._run_lane(lane)) for lane in lanes.values()]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # let them clean up before we raise
            raise

    async def persist(self) -> None:
        """Make every outcome durable, for a superstep that is not going to be committed now."""
        self._stop_waiting()
        if not self._handed_over:
            self._store_outcomes()
        await self._log.flush()
        for error in await asyncio.gather(*self.writes.values(), return_exceptions=True):
            if isinstance(error, BaseException):
                raise error

    def hand_over(self) -> None:
        """Leave the outcomes to a commit: from here on it stores all of them, or the superstep has failed."""
        self._handed_over = True
        if self._store_timer is not None:
            self._stop_waiting()

    async def decide(self, max_iterations: int, *, cancel: ReceivedCancel | None) -> CommitDecision:
        """Decide what the superstep leads to: the next commit, and whether the run continues.

        Conditions are evaluated, and outcomes merged; those of a superstep that cannot commit are stored.
        """
        decision = await self._decide(max_iterations, cancel)
        return await self.asks.settle(decision, self.log) if self.asks.was_asked else decision

    async def _decide(self, max_iterations: int, cancel: ReceivedCancel | None) -> CommitDecision:
        at, plan, graph, run_id = self._at, self._plan, self._scope.graph, self._scope.run_id
        stamp = new_stamp(run_id, self._scope.epoch, at.number + 1)
        if cancel is not None:
            await self.persist()
            return CommitDecision(kernel.cancel(at, stamp, by=cancel.by, reason=cancel.reason), None)
        errors = [self.failures[d.id] for d in plan.deliveries if d.id in self.failures] if self.failures else []
        if at.since_input >= max_iterations:
            errors = [make_failure(run_id, None, self._limit_error(), stored=self.is_stored)]
        early = kernel.early_requests(at, self.log) if self.parked else {}
        if not errors:  # a late intake would fail the run at once
            expired = [expiry_error(at, request) for request in await self.asks.find_expired(early)]
            errors = [make_failure(run_id, None, error, stored=self.is_stored) for error in expired]
        if not errors and self.parked:
            await self.persist()
            if not self._scope.archive.has_superstep_log:
                await self._keep_log()
            return CommitDecision(kernel.park(at, find_wake(at, self.parked.values(), early.values()), stamp), None)
        if not errors:
            try:
                routes: dict[str, list[Routed]] = {}
                for id, outcome in self.outcomes.items():
                    source, sent = outcome.executor, outcome.sent
                    if (fixed := graph.fixed_targets.get(source)) is None:
                        routes[id] = await choose_routes(graph, run_id, outcome)
                    else:
                        routes[id] = [kernel.route(graph, source, s.payload.open(), s.target, fixed) for s in sent]
                return kernel.merge(graph, at, plan, self.outcomes, routes, pack=self._scope.pack, stamp=stamp)
            except DurabilityError:
                raise
            except StepwellError as error:
                errors = [make_failure(run_id, None, error, stored=self.is_stored)]
        await self.persist()
        for other in errors[1:]:
            errors[0].error.add_note(f"also: {other.error}")
        commit = kernel.fail(at, tuple(failure.details for failure in errors), stamp)
        return CommitDecision(commit, None, errors[0].error)

    async def _keep_log(self) -> None:
        """Keep what was done in memory, where there is no superstep log: handlers wait, and are called again."""
        for outcome in self.outcomes.values():
            await self._scope.archive.log_outcome(self._at, outcome)
        for key, entry in self._log.entries.items():
            await self._scope.archive.log_entry(self._at, key, entry)

    def _limit_error(self) -> SuperstepLimit:
        still = ", ".join(dict.fromkeys(repr(delivery.executor) for delivery in self._plan.deliveries))
        return SuperstepLimit(
            f"run {self._scope.run_id!r} took {self._at.since_input} supersteps since its last input and has not "
            f"finished: {still} would run next; build the workflow with a larger max_iterations and "
            f"{'resume' if self.is_stored else 'run it again'}",
            run_id=self._scope.run_id,
        )

    async def _run_lane(self, lane: Sequence[Delivery]) -> None:
        try:
            await self._handle_lane(lane)
        finally:
            self.asks.lanes -= 1
            if self.asks.was_asked:
                self.asks.check_lanes()

    async def _handle_lane(self, lane: Sequence[Delivery]) -> None:
        # What the deliveries so far have written: those after them see it.
        earlier: dict[str, Write] = {}
        for delivery in lane:
            outcome = self._recalled.get(delivery.id)
            if outcome is not None:
                await self._recall(outcome)
            else:
                outcome = await self._handle(delivery, earlier)
                if outcome is None:
                    # Later messages of a lane wait for one that failed or sleeps.
                    return
                self._keep(outcome)
            if outcome.writes and len(lane) > 1:
                add_writes(earlier, outcome.writes)

    def _is_last(self, outcome: Outcome) -> bool:
        """Return whether an outcome that is about to be kept completes the superstep."""
        missing = len(self._plan.deliveries) - len(self.outcomes) - len(self.failures) - len(self.parked)
        return missing <= 1

    @property
    def _is_complete(self) -> bool:
        return len(self.outcomes) + len(self.failures) + len(self.parked) >= len(self._plan.deliveries)

    def _keep(self, outcome: Outcome) -> None:
        is_last = self._is_last(outcome)
        outcome = kernel.drop_repeated(outcome, self.outcomes.values())
        if outcome.requests:
            # They can be answered from now on: also those of the last outcome, if another handler sleeps or has failed.
            own = f"{outcome.delivery}/"  # listed while its sub-workflow run was at work
            logged = self._log.requests
            others = [request.id for key, request in logged.items() if not key.startswith(own)]
            outcome = kernel.name_requests(outcome, {*self._at.requests, *self.asks.listed, *others}, logged)
            self.asks.listed |= {request.id: request for request in outcome.requests}
        self.outcomes[outcome.delivery] = outcome
        if outcome.saved is not None:
            self._saved[outcome.executor] = outcome.saved
        if not is_last:
            self._store_outcome(outcome)
        # The last outcome is left to the commit, unless that is held up by an async condition or a slow
        # reader: see COMMIT_GRACE.
        elif self._scope.may_wait:
            self._store_timer = self._scope.loop.call_later(COMMIT_GRACE, self._store_outcomes)

    async def _recall(self, outcome: Outcome) -> None:
        if outcome.saved is not None:
            self._saved[outcome.executor] = outcome.saved
            await self._scope.executors.restore(outcome.executor, outcome.saved)
        self.outcomes[outcome.delivery] = outcome
        self.asks.listed |= {request.id: request for request in outcome.requests}
        self._emit("executor_bypassed", outcome.executor, delivery=outcome.delivery)

    def _stop_waiting(self) -> None:
        if self._store_timer is not None:
            self._store_timer.cancel()
            self._store_timer = None

    def _store_outcomes(self) -> None:
        for outcome in self.outcomes.values():
            self._store_outcome(outcome)

    def _store_outcome(self, outcome: Outcome) -> None:
        is_stored = outcome.delivery in self._recalled or outcome.delivery in self.writes
        if self._scope.archive.has_superstep_log and not is_stored:
            left = self.asks.leave(outcome)
            write = self._scope.archive.log_outcome(self._at, outcome, closed=[request.id for request in left])
            if outcome.requests or left:
                write = self.asks.list_after(write, outcome.requests, left)
            task = self.writes[outcome.delivery] = asyncio.create_task(write)
            task.add_done_callback(partial(self._announce, outcome, left))

    def _announce(self, outcome: Outcome, left: Sequence[Request], write: asyncio.Task[None]) -> None:
        """Emit that a handler has returned, once its outcome is durable, unless its commit follows at once."""
        # If the commit fails too, its error is raised; that of the write must not show up as "never retrieved".
        if write.cancelled() or write.exception() is not None:
            return
        # A superstep with handlers that failed or sleep is not committed yet.
        if not self._is_complete or self.failures or self.parked:
            self._emit(
                "executor_returned",
                outcome.executor,
                payload=OutcomeSummary(outcome),
                attempt=outcome.attempts,
                delivery=outcome.delivery,
                time=outcome.time,
            )
            for request in outcome.requests:
                self.asks.show(request)
            for request in left:
                self.asks.show_withdrawal(request)

    async def _handle(self, delivery: Delivery, earlier: Mapping[str, Write]) -> Outcome | None:
        """Call the handler until it returns; None if it sleeps, or fails and is not to be retried."""
        attempts: Attempts | None = None
        try:
            if self._log.entries:
                if (details := self._log.find_final_failure(delivery.id)) is not None:
                    # The process died between the last attempt and the commit that reports the failure.
                    error = handler_error(self._scope.run_id, delivery.executor, details, stored=self.is_stored)
                    self.failures[delivery.id] = Failure(error, details)
                    return None
                self.asks.check_answered(delivery.id)
                self._log.check_awake(delivery.id)
                attempts = Attempts(self._log, delivery.id)
                await attempts.wait_until_due()
            while True:
                # Chosen again for each attempt: the handler gets a fresh copy of the message.
                executor = self._scope.executors.instances[delivery.executor]
                call = choose_handler(executor, delivery, self._scope.run_id)
                try:
                    return await self._attempt(delivery, call, earlier, 1 if attempts is None else attempts.number)
                except Exception as error:
                    if call.limits.retry is None:
                        raise
                    attempts = attempts or Attempts(self._log, delivery.id)
                    details = self._with_call(delivery, details_of(delivery.executor, error))
                    on_retry = partial(self._emit_retry, delivery.executor)
                    if not await attempts.record_failure(call.limits.retry, error, details, on_retry):
                        raise
                await self._undo(delivery.executor)
        except Parked as parked:
            self.parked[delivery.id] = parked.due
        except BaseException as error:
            if is_stop(error) or self._scope.is_left():
                raise
            failure = make_failure(self._scope.run_id, delivery.executor, error, stored=self.is_stored)
            self.failures[delivery.id] = Failure(failure.error, self._with_call(delivery, failure.details))
        return None

    def _with_call(self, delivery: Delivery, details: WorkflowErrorDetails) -> WorkflowErrorDetails:
        """Return what went wrong with which attempt it was, and its time."""
        attempts, time = self._failed_calls.get(delivery.id, (None, None))
        return replace(details, attempts=attempts, time=time)

    def _emit_retry(self, executor: str, number: int, details: WorkflowErrorDetails, due: str) -> None:
        moment = datetime.fromisoformat(due)
        self._emit("executor_retrying", executor, details=details, attempt=number, data=moment)
        text = "attempt %d at %r in run %r failed (%s: %s); the next is due at %s"
        _LOG.warning(text, number, executor, self._scope.run_id, details.error_type, details.message, due)

    async def _undo(self, executor: str) -> None:
        """Restore the executor to its state before a failed attempt. State writes of it were never applied."""
        before = self._saved.get(executor, self._at.executors.get(executor))
        if before is not None and executor in self._scope.executors.stateful:
            await self._scope.executors.restore(executor, before)

    async def _attempt(
        self, delivery: Delivery, call: ChosenHandler, earlier: Mapping[str, Write], number: int
    ) -> Outcome:
        limit = None
        if call.limits.timeout is not None or call.limits.idle_timeout is not None:
            limit = TimeLimit(call.limits, self._scope.run_id, delivery.executor)
        state = StateView(self._at.state, self._scope.pack, earlier)
        context = HandlerContext(
            self._scope, delivery, state, at=self._at, log=self._log, questions=self.asks, limit=limit, attempt=number
        )
        self._emit(
            "executor_invoked", delivery.executor, payload=delivery.payload, attempt=number, delivery=delivery.id
        )
        try:
            if self.observer is None:
                return await self._call(call, context, limit)
            with self.observer.handler(delivery.executor, type(call.arguments[-1]).__name__, number):
                return await self._call(call, context, limit)
        except BaseException:
            self._failed_calls[delivery.id] = number, context.call_time()
            if context.has_updates:
                self._emit("withdrawn", delivery.executor, attempt=number, delivery=delivery.id)
            raise
        finally:
            context.finish()

    async def _call(self, call: ChosenHandler, context: HandlerContext, limit: TimeLimit | None) -> Outcome:
        """Run the handler within its time limit. Raises what it is left by, such as Parked, even if it caught that."""
        try:
            if limit is None:
                await invoke(call, context, limit)
            else:
                async with limit:
                    await invoke(call, context, limit)
        except (Exception, BaseExceptionGroup, Parked) as error:
            if self._scope.is_left():
                # Whatever it has made of its cancellation has not failed.
                raise asyncio.CancelledError from error
            if context.parked is None:
                raise
        if context.stop is not None:
            raise context.stop
        # Checked after a normal return too: the handler may have swallowed Parked in an `except`.
        if context.parked is not None:
            raise context.parked
        executors, id = self._scope.executors, context.delivery.executor
        return context.outcome(await executors.save(id) if id in executors.stateful else None)

    def _emit(self, type: str, executor: str, **attributes: Any) -> None:
        state, origin = WorkflowRunState.IN_PROGRESS, WorkflowEventSource.FRAMEWORK
        self._scope.emit(
            WorkflowEvent(
                type, executor_id=executor, run_id=self._scope.run_id, state=state, origin=origin, **attributes
            )
        )
