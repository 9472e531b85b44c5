"""Runs the handlers of one superstep: executors concurrently, each with one message at a time.

Only sub-workflow executors, which keep no state of their own, handle their messages concurrently.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from stepwell.engine import branches
from stepwell.engine.attempts import Attempts
from stepwell.engine.drive_scope import DriveScope
from stepwell.engine.failures import Failure, details_of, handler_error, make_failure
from stepwell.engine.handler_context import HandlerContext
from stepwell.engine.superstep_log import Parked, SuperstepLog
from stepwell.engine.telemetry import SuperstepObserver
from stepwell.engine.threads import run_in_own_thread, run_in_thread
from stepwell.engine.time_limits import TimeLimit
from stepwell.errors import RoutingFailed
from stepwell.graph.executor import Executor, keeps_state
from stepwell.graph.handler import HandlerSpec
from stepwell.graph.retry import Limits
from stepwell.graph.type_matching import describe
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowErrorDetails, WorkflowEvent, WorkflowEventSource, WorkflowRunState
from stepwell.model.log_keys import RecalledLog
from stepwell.model.message import Delivery, Outcome, Plan
from stepwell.model.payload import Payload
from stepwell.model.state import StateView

# Meant for the whole process, not for one run.
STOPS = (KeyboardInterrupt, SystemExit)

# Seconds that the last outcome of a superstep waits for the commit that contains it. Usually the
# commit comes at once, and one write is saved.
COMMIT_GRACE = 0.01


class _Call(msgspec.Struct, frozen=True):
    """A handler and its arguments."""

    executor: Executor
    spec: HandlerSpec
    arguments: list[Any]
    limits: Limits


_UNOBSERVED = nullcontext()
_LOG = logging.getLogger("stepwell")


class Superstep:
    """The handler calls of one superstep. Each outcome is stored as soon as its handler returns."""

    def __init__(
        self,
        scope: DriveScope,
        at: Checkpoint,
        plan: Plan,
        log: RecalledLog,
        observer: SuperstepObserver | None = None,
    ) -> None:
        self.observer = observer
        self._scope, self._executors, self._at, self._plan = scope, scope.executors, at, plan
        self._recalled = log.outcomes
        self._log = SuperstepLog(scope.archive, at, log.entries)
        # The state of each executor after its latest message.
        self._saved: dict[str, Payload] = {}
        self._writes: dict[str, asyncio.Task[None]] = {}
        self._store_timer: asyncio.TimerHandle | None = None
        self._handed_over = False
        self.outcomes: dict[str, Outcome] = {}
        self.failures: dict[str, Failure] = {}
        # By delivery: the time before which it cannot continue.
        self.parked: dict[str, str] = {}

    @property
    def is_stored(self) -> bool:
        """Whether a later drive can resume this run."""
        return self._scope.archive.is_durable

    async def run_handlers(self) -> None:
        """Make every call of the plan. Failures are collected, not raised: siblings of a failed handler finish."""
        branches.install(asyncio.get_running_loop())
        # A lane is handled in order. An executor has one lane, because its attributes must not be
        # changed by two messages at once; a sub-workflow executor has a lane for each message.
        lanes: dict[str, list[Delivery]] = {}
        for delivery in self._plan.deliveries:
            alone = not self._scope.graph.executors[delivery.executor]._handles_concurrently
            lanes.setdefault(delivery.executor if alone else delivery.id, []).append(delivery)
        if len(lanes) == 1:
            # The common case needs no task: the handlers run in the task of the caller.
            await self._run_lane(lanes.popitem()[1])
            return
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
        await self._finish_storing()

    def hand_over(self) -> None:
        """Leave the outcomes to a commit: from here on it stores all of them, or the superstep has failed."""
        self._handed_over = True
        self._stop_waiting()

    async def end(self) -> None:
        """Wait for writes under way. Their errors no longer matter: the commit holds the same outcomes."""
        if self._writes:
            await asyncio.gather(*self._writes.values(), return_exceptions=True)

    async def _finish_storing(self) -> None:
        results = await asyncio.gather(*self._writes.values(), return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                raise error

    async def _run_lane(self, lane: Iterable[Delivery]) -> None:
        state = StateView(self._at.state, self._scope.pack)
        for delivery in lane:
            if (recalled := self._recalled.get(delivery.id)) is not None:
                await self._recall(recalled, state)
                continue
            outcome = await self._handle(delivery, state)
            if outcome is None:
                # Later messages of a lane wait for one that failed or sleeps.
                return
            self.outcomes[delivery.id] = outcome
            if outcome.saved is not None:
                self._saved[outcome.executor] = outcome.saved
            # The last outcome is left to the commit: see COMMIT_GRACE.
            if len(self.outcomes) + len(self.failures) + len(self.parked) < len(self._plan.deliveries):
                self._store_outcome(outcome)
            else:
                self._store_outcomes_later()

    async def _recall(self, outcome: Outcome, state: StateView) -> None:
        state.recall(outcome.writes)
        if outcome.saved is not None:
            self._saved[outcome.executor] = outcome.saved
            await self._executors.restore(outcome.executor, outcome.saved)
        self.outcomes[outcome.delivery] = outcome
        self._emit("executor_bypassed", outcome.executor, delivery=outcome.delivery)

    def _store_outcomes_later(self) -> None:
        """Store the last outcome on its own if the commit is held up, by an async condition or a slow reader."""
        if self.is_stored and (self._scope.streaming or self._scope.graph.has_conditions):
            self._store_timer = asyncio.get_running_loop().call_later(COMMIT_GRACE, self._store_outcomes)

    def _stop_waiting(self) -> None:
        if self._store_timer is not None:
            self._store_timer.cancel()
            self._store_timer = None

    def _store_outcomes(self) -> None:
        for outcome in self.outcomes.values():
            self._store_outcome(outcome)

    def _store_outcome(self, outcome: Outcome) -> None:
        is_stored = outcome.delivery in self._recalled or outcome.delivery in self._writes
        if self._scope.archive.has_superstep_log and not is_stored:
            write = self._scope.archive.log_outcome(self._at.run_id, self._at.place, outcome)
            task = self._writes[outcome.delivery] = asyncio.create_task(write)
            # If the commit fails too, its error is raised; this one must not show up as "never retrieved".
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _handle(self, delivery: Delivery, state: StateView) -> Outcome | None:
        # The process died between the last attempt and the commit that reports the failure.
        if (details := self._log.find_final_failure(delivery.id)) is not None:
            self.failures[delivery.id] = Failure(
                handler_error(self._at.run_id, delivery.executor, details, stored=self.is_stored), details
            )
            return None
        try:
            return await self._attempts(delivery, state)
        except Parked as parked:
            self.parked[delivery.id] = parked.due
        except BaseException as error:
            # A CancelledError that the handler raised itself is a failure like any other.
            if isinstance(error, STOPS) or (isinstance(error, asyncio.CancelledError) and _is_being_stopped()):
                raise
            self._fail(delivery, error)
        return None

    async def _attempts(self, delivery: Delivery, state: StateView) -> Outcome:
        """Call the handler until it returns, or fails and is not to be retried."""
        self._log.check_awake(delivery.id)
        attempts = Attempts(self._log, delivery.id)
        await attempts.wait_until_due()
        while True:
            # Chosen again for each attempt: the handler gets a fresh copy of the message.
            call = self._choose_handler(delivery)
            try:
                return await self._attempt(delivery, call, state, attempts.number)
            except Exception as error:
                details = details_of(delivery.executor, error)
                on_retry = partial(self._emit_retry, delivery.executor)
                if not await attempts.record_failure(call.limits.retry, error, details, on_retry):
                    raise
            await self._undo(delivery.executor)

    def _emit_retry(self, executor: str, number: int, details: WorkflowErrorDetails, due: str) -> None:
        moment = datetime.fromisoformat(due)
        self._emit("executor_retrying", executor, details=details, attempt=number, data=moment)
        text = "attempt %d at %r in run %r failed (%s: %s); the next is due at %s"
        _LOG.warning(text, number, executor, self._at.run_id, details.error_type, details.message, due)

    async def _undo(self, executor: str) -> None:
        """Restore the executor to its state before a failed attempt. State writes of it were never applied."""
        before = self._saved.get(executor, self._at.executors.get(executor))
        if before is not None and keeps_state(self._executors[executor]):
            await self._executors.restore(executor, before)

    async def _attempt(self, delivery: Delivery, call: _Call, state: StateView, number: int) -> Outcome:
        limit = None
        if call.limits.timeout is not None or call.limits.idle_timeout is not None:
            limit = TimeLimit(call.limits, self._at.run_id, delivery.executor)
        context = HandlerContext(
            self._scope, delivery, state.for_attempt(), at=self._at, log=self._log, limit=limit, attempt=number
        )
        self._emit("executor_invoked", delivery.executor, delivery.payload, attempt=number, delivery=delivery.id)
        try:
            with self._observe(delivery.executor, call, number):
                await self._call_within(limit, call, context)
                return context.outcome(await self._executors.save(delivery.executor), number)
        except BaseException:
            if context.has_updates:
                self._emit("withdrawn", delivery.executor, attempt=number, delivery=delivery.id)
            raise
        finally:
            context.finish()

    def _observe(self, executor: str, call: _Call, number: int) -> AbstractContextManager[None]:
        if self.observer is None:
            return _UNOBSERVED
        return self.observer.handler(executor, type(call.arguments[-1]).__name__, number)

    def _choose_handler(self, delivery: Delivery) -> _Call:
        """Choose the handler for a delivery, and decode a copy of the message for it."""
        executor = self._executors[delivery.executor]
        value = delivery.payload.open()
        if delivery.reply is not None:
            question = delivery.reply.question.open()
            arguments, spec = [question, value], executor._handler_table.choose_response_handler(question, value)
        else:
            arguments, spec = [value], executor._handler_table.choose(value)
        if spec is None:
            raise self._unroutable_error(executor, arguments)
        return _Call(executor, spec, arguments, executor._limits_for(spec))

    async def _call_within(self, limit: TimeLimit | None, call: _Call, context: HandlerContext) -> None:
        """Run the handler within its time limit. Raises Parked if it sleeps, even if it caught that itself."""
        try:
            if limit is None:
                await self._call(call, context, limit)
            else:
                async with limit:
                    await self._call(call, context, limit)
        except (Exception, BaseExceptionGroup):
            if context.parked is None:
                raise
        # Checked after a normal return too: the handler may have swallowed Parked in an `except`.
        if context.parked is not None:
            raise Parked(context.parked)

    async def _call(self, call: _Call, context: HandlerContext, limit: TimeLimit | None) -> None:
        function = call.executor._handler_function(call.spec)
        args = [*call.arguments, context] if call.spec.takes_context else call.arguments
        try:
            result: Any
            with branches.BranchScope(context.branch):
                if call.spec.is_async:
                    result = await function(*args)
                # A thread that runs out of time cannot be stopped; it must not occupy the shared pool.
                elif limit is not None:
                    result = await run_in_own_thread(function, *args, name=call.executor.id, on_abandon=limit.abandon)
                else:
                    result = await run_in_thread(function, *args)
                if result is not None and inspect.isawaitable(result):
                    result = await result
        except GeneratorExit as error:
            # Raised by the handler; passed on, it would close the drive's generator.
            raise RuntimeError(f"{call.executor.id!r} raised GeneratorExit") from error
        if result is not None:
            context.send_message(result)

    def _unroutable_error(self, executor: Executor, arguments: Sequence[Any]) -> RoutingFailed:
        """Return the error for a delivery that no handler accepts. `arguments` are those of the handler.

        There are two such cases: the messages of a fan-in fit a handler one by one, but not together as a list;
        or the handler of a response was removed after the request was made.
        """
        *questions, value = arguments
        if questions:
            problem = (
                f"{executor.id!r} has no response handler for a request of type {type(questions[0]).__name__} and a "
                f"response of type {type(value).__name__}; add it again"
            )
        else:
            accepted = " | ".join(describe(item) for item in executor.input_types)
            problem = f"{executor.id!r} accepts {accepted}, but was sent {_describe_sent(value)}"
        return RoutingFailed(f"run {self._at.run_id!r}: {problem}", run_id=self._at.run_id)

    def _fail(self, delivery: Delivery, error: BaseException) -> None:
        self.failures[delivery.id] = make_failure(self._at.run_id, delivery.executor, error, stored=self.is_stored)

    def _emit(self, type: str, executor: str, payload: Payload | None = None, **more: Any) -> None:
        run_id, state, origin = self._at.run_id, WorkflowRunState.IN_PROGRESS, WorkflowEventSource.FRAMEWORK
        attributes: dict[str, Any] = {"executor_id": executor, "run_id": run_id, "state": state, "origin": origin}
        if payload is not None:
            self._scope.emit(WorkflowEvent.from_payload(type, payload, **attributes, **more))
        else:
            self._scope.emit(WorkflowEvent(type, **attributes, **more))


def _describe_sent(value: Any) -> str:
    if not isinstance(value, list):
        return f"a {type(value).__name__}; add a handler that accepts it"
    kinds = " | ".join(dict.fromkeys(type(item).__name__ for item in value))
    return f"a {type(value).__name__}[{kinds}]; add a handler that accepts all of its items"


def _is_being_stopped() -> bool:
    """Return False for a cancellation that a handler raised itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
