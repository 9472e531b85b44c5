"""The handlers of one superstep: executors side by side, one executor one message at a time."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from stepwell.engine import branches
from stepwell.engine.attempts import Attempts
from stepwell.engine.drive_scope import DriveScope
from stepwell.engine.executors import RunExecutors
from stepwell.engine.failures import Failure, details_of, handler_error, make_failure
from stepwell.engine.handler_context import HandlerContext
from stepwell.engine.superstep_log import Parked, SuperstepLog
from stepwell.engine.telemetry import StepObserver
from stepwell.engine.threads import in_own_thread, in_thread
from stepwell.engine.time_limits import TimeLimit
from stepwell.errors import RoutingFailed
from stepwell.graph.executor import Executor, keeps_state
from stepwell.graph.handler import HandlerSpec
from stepwell.graph.retry import Limits
from stepwell.graph.type_matching import describe
from stepwell.model.event import WorkflowErrorDetails, WorkflowEvent, WorkflowEventSource, WorkflowRunState
from stepwell.model.payload import Payload
from stepwell.model.state import StateView
from stepwell.model.superstep import Checkpoint, Delivery, Outcome, Plan, RecalledLog
from stepwell.storage.archive import Archive

STOPS = (KeyboardInterrupt, SystemExit)  # meant for the whole process, not for one run
PATIENCE = 0.01  # seconds that the last outcome of a superstep waits for the commit it is to travel in


class _Call(msgspec.Struct, frozen=True):
    """A handler, and what it is called with."""

    executor: Executor
    spec: HandlerSpec
    arguments: list[Any]
    limits: Limits


_UNOBSERVED = nullcontext()
_LOG = logging.getLogger("stepwell")


class Superstep:
    """The acts of one superstep. Each outcome is remembered the moment its handler returns."""

    def __init__(
        self,
        scope: DriveScope,
        executors: RunExecutors,
        archive: Archive | None,
        at: Checkpoint,
        plan: Plan,
        log: RecalledLog,
        observer: StepObserver | None = None,
    ) -> None:
        self._observer = observer
        self._scope, self._executors, self._archive, self._at, self._plan = scope, executors, archive, at, plan
        self._recalled = log.outcomes
        self._log = SuperstepLog(archive, at, log.entries)
        self._saved: dict[str, Payload] = {}  # what each executor kept after its last message
        self._remembering: dict[str, asyncio.Task[None]] = {}
        self._soon: asyncio.TimerHandle | None = None
        self._handed_over = False
        self.outcomes: dict[str, Outcome] = {}
        self.failures: dict[str, Failure] = {}
        self.parked: dict[str, str] = {}  # deliveries that cannot go on before a certain time

    @property
    def is_stored(self) -> bool:
        """Whether a later drive can go on with this run."""
        return self._archive is not None

    async def act(self) -> None:
        """Make every call of the plan. Failures are kept, not raised: siblings of a failed handler finish."""
        branches.install(asyncio.get_running_loop())
        lanes: dict[str, list[Delivery]] = {}
        for delivery in self._plan.deliveries:
            alone = not self._scope.graph.executors[delivery.executor]._handles_concurrently
            lanes.setdefault(delivery.executor if alone else delivery.id, []).append(delivery)
        if len(lanes) == 1:
            await self._run_lane(lanes.popitem()[1])
            return
        tasks = [asyncio.create_task(self._run_lane(lane)) for lane in lanes.values()]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # they clean up; ours is the error that counts
            raise

    async def keep(self) -> None:
        """Make durable every outcome there is, for a superstep that will not be committed now."""
        self._stop_waiting()
        if not self._handed_over:
            self._remember_all()
        await self._log.flush()
        await self._finish_storing()

    def hand_over(self) -> None:
        """The outcomes travel in a commit from here on: it is stored with all of them, or the superstep has failed."""
        self._handed_over = True
        self._stop_waiting()

    async def end(self) -> None:
        """Wait for what is being remembered. Whether that worked matters no more: the commit holds the same."""
        if self._remembering:
            await asyncio.gather(*self._remembering.values(), return_exceptions=True)

    async def _finish_storing(self) -> None:
        results = await asyncio.gather(*self._remembering.values(), return_exceptions=True)
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
                return  # what comes after a message that failed or sleeps waits for it
            self.outcomes[delivery.id] = outcome
            if outcome.saved is not None:
                self._saved[outcome.executor] = outcome.saved
            if len(self.outcomes) + len(self.failures) + len(self.parked) < len(self._plan.deliveries):
                self._remember(outcome)
            else:
                self._remember_soon()

    async def _recall(self, outcome: Outcome, state: StateView) -> None:
        state.recall(outcome.writes)
        if outcome.saved is not None:
            self._saved[outcome.executor] = outcome.saved
            await self._executors.restore(outcome.executor, outcome.saved)
        self.outcomes[outcome.delivery] = outcome
        self._emit("executor_bypassed", outcome.executor, delivery=outcome.delivery)

    def _remember_soon(self) -> None:
        """The last outcome travels in the commit itself, unless the commit is held up by a condition or a reader."""
        if self._archive is not None and (self._scope.streaming or self._scope.graph.has_conditions):
            self._soon = asyncio.get_running_loop().call_later(PATIENCE, self._remember_all)

    def _stop_waiting(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def _remember_all(self) -> None:
        for outcome in self.outcomes.values():
            self._remember(outcome)

    def _remember(self, outcome: Outcome) -> None:
        is_stored = outcome.delivery in self._recalled or outcome.delivery in self._remembering
        if self._archive is not None and not is_stored:
            keeping = self._archive.log_outcome(self._at.run_id, self._at.place, outcome)
            task = self._remembering[outcome.delivery] = asyncio.create_task(keeping)
            # If the commit fails too, its error is the one that is raised; this one must not be noise.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _handle(self, delivery: Delivery, state: StateView) -> Outcome | None:
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
            if isinstance(error, STOPS) or (isinstance(error, asyncio.CancelledError) and _is_being_stopped()):
                raise
            self._fail(delivery, error)
        return None

    async def _attempts(self, delivery: Delivery, state: StateView) -> Outcome:
        """Call the handler until it returns, or fails in a way that another attempt would not change."""
        self._log.check_awake(delivery.id)
        attempts = Attempts(self._log, delivery.id)
        await attempts.wait_until_due()
        while True:
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
        words = "attempt %d at %r in run %r failed (%s: %s); the next is due at %s"
        _LOG.warning(words, number, executor, self._at.run_id, details.error_type, details.message, due)

    async def _undo(self, executor: str) -> None:
        """Take back what an attempt that failed did to the executor; its page of the state was never taken."""
        before = self._saved.get(executor, self._at.executors.get(executor))
        if before is not None and keeps_state(self._executors[executor]):
            await self._executors.restore(executor, before)

    async def _attempt(self, delivery: Delivery, call: _Call, state: StateView, number: int) -> Outcome:
        limit = None
        if call.limits.timeout is not None or call.limits.idle_timeout is not None:
            limit = TimeLimit(call.limits, self._at.run_id, delivery.executor)
        context = HandlerContext(self._scope, delivery, state.for_attempt(), self._at, self._log, limit, number)
        self._emit("executor_invoked", delivery.executor, delivery.payload, attempt=number, delivery=delivery.id)
        try:
            with self._observe(delivery.executor, call, number):
                await self._call_within(limit, call, context)
                return context.outcome(await self._executors.save(delivery.executor), number)
        except BaseException:
            if context.spoke:
                self._emit("withdrawn", delivery.executor, attempt=number, delivery=delivery.id)
            raise
        finally:
            context.finish()

    def _observe(self, executor: str, call: _Call, number: int) -> AbstractContextManager[None]:
        if self._observer is None:
            return _UNOBSERVED
        return self._observer.handler(executor, type(call.arguments[-1]).__name__, number)

    def _choose_handler(self, delivery: Delivery) -> _Call:
        """The handler for a delivery, with a copy of its own of what was sent."""
        executor = self._executors[delivery.executor]
        value = delivery.payload.open()
        if delivery.reply is not None:
            question = delivery.reply.question.open()
            arguments, spec = [question, value], executor._handler_table.choose_response_handler(question, value)
        else:
            arguments, spec = [value], executor._handler_table.choose(value)
        if spec is None:
            raise self._unroutable_error(executor, value)
        return _Call(executor, spec, arguments, executor._limits_for(spec))

    async def _call_within(self, limit: TimeLimit | None, call: _Call, context: HandlerContext) -> None:
        """Let the handler run, in the time it has. Raises Parked if it sleeps, whatever it made of that itself."""
        try:
            if limit is None:
                await self._call(call, context, limit)
            else:
                async with limit:
                    await self._call(call, context, limit)
        except (Exception, BaseExceptionGroup):
            if context.parked is None:
                raise
        if context.parked is not None:
            raise Parked(context.parked)

    async def _call(self, call: _Call, context: HandlerContext, limit: TimeLimit | None) -> None:
        function = call.executor._handler_function(call.spec)
        args = [*call.arguments, context] if call.spec.takes_context else call.arguments
        try:
            result: Any
            with branches.Entered(context.branch):
                if call.spec.is_async:
                    result = await function(*args)
                elif limit is not None:
                    result = await in_own_thread(function, *args, name=call.executor.id, on_abandon=limit.abandon)
                else:
                    result = await in_thread(function, *args)
                if result is not None and inspect.isawaitable(result):
                    result = await result
        except GeneratorExit as error:  # of the handler's own making; let through, it would close us
            raise RuntimeError(f"{call.executor.id!r} raised GeneratorExit") from error
        if result is not None:
            context.send_message(result)

    def _unroutable_error(self, executor: Executor, value: Any) -> RoutingFailed:
        """A fan-in comes to this: each message could be taken alone, but not all of them together; and a reply whose
        handler was taken away since it was asked for."""
        kinds = " | ".join(dict.fromkeys(type(item).__name__ for item in value)) if isinstance(value, list) else ""
        accepted = " | ".join(describe(item) for item in executor.input_types)
        return RoutingFailed(
            f"run {self._at.run_id!r}: {executor.id!r} takes {accepted}, but what was joined for it is "
            f"{type(value).__name__}[{kinds}]; add a handler that takes all of it",
            run_id=self._at.run_id,
        )

    def _fail(self, delivery: Delivery, error: BaseException) -> None:
        self.failures[delivery.id] = make_failure(self._at.run_id, delivery.executor, error, stored=self.is_stored)

    def _emit(self, type: str, executor: str, payload: Payload | None = None, **more: Any) -> None:
        run_id, state, origin = self._at.run_id, WorkflowRunState.IN_PROGRESS, WorkflowEventSource.FRAMEWORK
        attributes: dict[str, Any] = {"executor_id": executor, "run_id": run_id, "state": state, "origin": origin}
        if payload is not None:
            self._scope.emit(WorkflowEvent.from_payload(type, payload, **attributes, **more))
        else:
            self._scope.emit(WorkflowEvent(type, **attributes, **more))


def _is_being_stopped() -> bool:
    """False if a cancellation is one that a handler made itself and let escape."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
