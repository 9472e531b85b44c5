"""What a handler does through its context, and waits for: steps, sleeps, and the answers to its questions."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any

import msgspec

from stepwell.engine.durability.superstep_log import NOT_WORTH_LOGGING, Parked, SuperstepLog, earliest
from stepwell.engine.failures import is_stop
from stepwell.engine.handler.branches import Branch, handler_branch
from stepwell.engine.handler.call_requests import HandlerRequests
from stepwell.engine.handler.call_steps import HandlerSteps
from stepwell.engine.handler.drive_scope import DriveScope
from stepwell.engine.handler.questions import Questions
from stepwell.engine.handler.staged_context import DONE, Ready, StagedContext
from stepwell.engine.handler.steps import Step, check_transaction
from stepwell.engine.handler.time_limits import TimeLimit
from stepwell.errors import CommitConflict, DurabilityError
from stepwell.graph.step_options import StepOptions
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.child import Child
from stepwell.model.event import (
    WorkflowErrorDetails,
    WorkflowEventSource,
)
from stepwell.model.log_keys import LogEntry, ask_key, timer_key
from stepwell.model.message import Delivery, Outcome, Output, Sent
from stepwell.model.payload import Payload
from stepwell.model.request import Request
from stepwell.model.state import StateView
from stepwell.model.timing import CallTime, StepRecord
from stepwell.storage import clock


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


class HandlerContext(StagedContext):
    """The context of one delivery: what is staged, and what a handler waits for."""

    __slots__ = (
        "_began",
        "_log",
        "_questions",
        "_requests",
        "_started",
        "_steps",
        "_thread_waits",
        "_waiting_steps",
        "asking",
        "branch",
        "busy",
        "parked",
        "refused",
    )

    def __init__(
        self,
        scope: DriveScope,
        delivery: Delivery,
        state: StateView,
        at: Checkpoint,
        log: SuperstepLog,
        questions: Questions,
        limit: TimeLimit | None,
        attempt: int,
    ) -> None:
        self.scope, self.delivery, self.attempt = scope, delivery, attempt
        # Emitted updates, which count only once the superstep is committed.
        self.has_updates = False
        self._state, self._at, self._log, self._limit = state, at, log, limit
        self._questions = questions
        self.branch = handler_branch(self)
        self._began, self._started = clock.stamp(), perf_counter()
        self._steps: HandlerSteps | None = None
        self._children: dict[str, Child | None] = {}
        self._sent: list[Sent] = []
        self._outputs: list[Output] = []
        self._requests: HandlerRequests | None = None
        self._tags: Mapping[str, str | None] = {}
        self._timers: Mapping[str, str | None] = {}
        self._open, self._returned = True, False
        # What threads of the handler block on.
        self._thread_waits: set[concurrent.futures.Future[Any]] = set()
        # The handler sleeps until then or waits for an answer, and is to be left.
        self.parked: Parked | None = None
        # Why a step, sleep or question of it did not begin.
        self.refused: BaseException | None = None
        # How many of its steps, sleeps and questions are under way, and how many of them wait for an answer.
        self.busy = self.asking = 0
        # The steps around those questions.
        self._waiting_steps: list[Branch] = []

    @property
    def steps(self) -> HandlerSteps:
        # Created when needed: most handlers have none.
        if self._steps is None:
            self._steps = HandlerSteps(
                self.scope,
                self.delivery,
                self._log,
                self.branch,
                on_retry=self._emit_retry,
                on_completed=self._emit_step,
            )
        return self._steps

    @property
    def requests(self) -> HandlerRequests:
        # Created when needed, too.
        if self._requests is None:
            self._requests = HandlerRequests(self.scope, self.delivery, self._at)
        return self._requests

    def request_info(self, request_data: object, response_type: Any, **options: Any) -> Awaitable[str]:
        self._check_open("request_info")
        return Ready(self.requests.ask(request_data, response_type, **options))

    def withdraw(self, request_id: str) -> None:
        self._check_open("withdraw")
        self.requests.withdraw(request_id)

    def forward_request(self, request: Request) -> None:
        self.requests.asked.append(request)

    async def list_request(self, request: Request, *, is_open: bool) -> None:
        await self._questions.list_for_child(self.delivery.id, request, is_open=is_open)

    def ask(self, question: object, response_type: Any, **options: Any) -> Any:
        if threading.get_ident() != self.scope.thread:
            raise RuntimeError(
                f"ctx.ask was called in a thread, by a plain function of {self.executor_id!r}: use ctx.ask_sync there"
            )
        return self._ask(question, response_type, options)

    def ask_sync(self, question: object, response_type: Any, **options: Any) -> Any:
        if threading.get_ident() == self.scope.thread:
            raise RuntimeError(
                f"ctx.ask_sync was called on the event loop, which it would block, by {self.executor_id!r}: "
                f"write `await ctx.ask(...)`"
            )
        return self.block(self._ask(question, response_type, options))

    def _ask(self, question: object, response_type: Any, options: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        self._check_open("ask")
        self.steps.check_stays()
        branch = self.steps.branch()
        key, make = self.requests.prepare_question(branch, question, response_type, **options)
        self.steps.check_question(key, question)
        return self._wait_for_answer(key, make, response_type)

    def ask_for_child(self, request: Request) -> Awaitable[Any]:
        # Known by its id: which requests of the child are open differs when it is driven again.
        key = ask_key(self.delivery.id, 0, self.steps.branch().inside(f"request {request.id}").id)
        asked = msgspec.structs.replace(request, executor=self.executor_id, waiting=key, child=None)
        return self._wait_for_answer(key, lambda: asked, Any)

    async def _wait_for_answer(self, key: str, make: Callable[[], Request], response_type: Any) -> Any:
        steps = [branch for branch in self.steps.branch().ancestors() if branch.is_step]
        self._waiting_steps += steps
        try:
            with self._limit.pause() if self._limit is not None else nullcontext():
                return await self.await_or_park(self._questions.ask(key, self, make, response_type))
        except Parked:
            self.steps.is_left = True
            raise
        finally:
            for branch in steps:
                self._waiting_steps.remove(branch)

    def sleep(self, duration: float | timedelta) -> Awaitable[None]:
        try:
            moment = clock.now() + (duration if isinstance(duration, timedelta) else timedelta(seconds=duration))
        except (ValueError, OverflowError):
            raise ValueError(f"cannot sleep for {duration!r} seconds") from None
        return self._sleep(moment)

    def sleep_until(self, moment: datetime) -> Awaitable[None]:
        if moment.tzinfo is None:
            raise ValueError(f"{moment} has no time zone; use datetime.now(UTC) + ...")
        return self._sleep(moment.astimezone(UTC))

    def _sleep(self, moment: datetime) -> Awaitable[None]:
        self._check_open("sleep")
        self.steps.check_stays()
        branch = self.steps.branch()
        key = timer_key(self.delivery.id, branch.count("timer"), branch.id)
        waiting = self._wait(key, moment)
        if threading.get_ident() == self.scope.thread:
            return waiting
        self.block(waiting)
        return DONE

    def block(self, waiting: Coroutine[Any, Any, Any]) -> Any:
        """Block the thread of a plain function until a coroutine is done, or until nobody waits for the function."""
        try:
            asleep = asyncio.run_coroutine_threadsafe(waiting, self.scope.loop)
        except RuntimeError:  # the loop is closed
            waiting.close()
            raise
        self._thread_waits.add(asleep)
        # The handler may have been given up in between; `finish` has not seen this wait then.
        if not self._open:
            asleep.cancel()
        try:
            result = asleep.result()
        except concurrent.futures.CancelledError:
            self._check_open("sleep")
            raise
        finally:
            self._thread_waits.discard(asleep)
        self._check_open("sleep")  # it may have ended before it could be cancelled
        return result

    async def _wait(self, key: str, moment: datetime) -> None:
        entry = self._log[key]
        if entry is None:
            entry = LogEntry(moment.isoformat())
            if (moment - clock.now()).total_seconds() >= NOT_WORTH_LOGGING:
                await self.await_or_park(self._log.add(key, entry))
        await self.wait_until(entry.due)

    async def wait_until(self, due: str) -> None:
        with self._limit.pause() if self._limit is not None else nullcontext():
            await self.await_or_park(self._log.wait(due))

    def step(self, name: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != self.scope.thread:
            raise RuntimeError(
                f"ctx.step was called in a thread, by a plain function of {self.executor_id!r}: use ctx.step_sync "
                f"there, or `.sync(...)` of the step function"
            )
        step = self._make_step(name, function, args, kwargs)
        return self.await_or_park(self.steps.do(step))

    def step_sync(self, name: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == self.scope.thread:
            raise RuntimeError(
                f"ctx.step_sync was called on the event loop, which it would block, by {self.executor_id!r}: "
                f"write `await ctx.step(...)`"
            )
        step = self._make_step(name, function, args, kwargs)
        with step.branch.block() if step.options.key is None else nullcontext():
            return self.block(self.await_or_park(self.steps.do(step)))

    def _make_step(self, name: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Step:
        self._check_open("step")
        options = name if isinstance(name, StepOptions) else StepOptions(name)
        if not callable(function):
            raise TypeError(f"the step {options.name!r} calls a function, not {function!r}")
        log_key, branch = self.steps.assign_key(options)
        step = Step(options, log_key, function=function, args=args, kwargs=kwargs, branch=branch)
        if options.transaction:
            check_transaction(step, self.executor_id, self._log)
        return step

    async def named_step(self, name: str, function: Callable[[], Awaitable[Any]], call: str | None = None) -> Any:
        self._check_open("named_step")
        return await self.await_or_park(self.steps.do_by_name(name, function, call))

    async def await_or_park(self, running: Awaitable[Any]) -> Any:
        """Wait; if the wait is parked, or may not begin, note it, because the handler itself may catch that."""
        if (stop := self.steps.find_stop()) is not None:
            self.refused = stop
            if inspect.iscoroutine(running):
                running.close()
            # A handler that tries again and again must not block the event loop.
            await asyncio.sleep(0)
            raise stop
        self.busy += 1
        try:
            return await running
        except Parked as parked:
            due = parked.due if self.parked is None else earliest(self.parked.due, parked.due)
            self.parked = Parked(due)
            self.steps.is_parked = True
            # A task of the handler that nobody awaits any more has not failed.
            if (task := asyncio.current_task()) is not None:
                task.add_done_callback(_retrieve)
            raise
        except DurabilityError as error:
            self.steps.lost = self.steps.lost or error
            raise
        finally:
            self.busy -= 1
            self._questions.check_soon()

    @property
    def stop(self) -> BaseException | None:
        """Why the handler is left, although it has returned: what it makes of that does not count."""
        return self.refused or (None if self._steps is None else self._steps.lost)

    @property
    def is_waiting(self) -> bool:
        return self._open and 0 < self.busy <= self.asking + len(set(map(id, self._waiting_steps)))

    def _emit_retry(self, number: int, details: WorkflowErrorDetails, due: str) -> None:
        moment, origin = datetime.fromisoformat(due), WorkflowEventSource.FRAMEWORK
        self._emit("executor_retrying", moment, details=details, attempt=number, origin=origin)

    def _emit_step(self, record: StepRecord) -> None:
        origin = WorkflowEventSource.FRAMEWORK
        self._emit("step_completed", record, attempt=self.attempt, delivery=self.delivery.id, origin=origin)

    async def end_steps(self, error: BaseException) -> None:
        """Wait for the steps that the handler has under way although it failed or is left, so that they are stored.

        If it was stopped, or another process drives the run, they are cancelled instead.
        """
        if self._steps is None:
            return
        if is_stop(error) or isinstance(error, CommitConflict):
            self._steps.cancel()
        else:
            await self._steps.settle()

    def finish(self) -> None:
        """Close the context: the handler has returned or was given up, and can no longer add to its outcome."""
        self._open, self.branch.context = False, None
        for asleep in tuple(self._thread_waits):
            asleep.cancel()

    def call_time(self) -> CallTime:
        """Return when the handler was called, and how long it has been running."""
        return CallTime(self._began, round((perf_counter() - self._started) * 1_000_000))

    def outcome(self, saved: Payload | None) -> Outcome:
        self._returned = True
        return Outcome(
            self.delivery.id,
            self.delivery.executor,
            sent=tuple(self._sent),
            outputs=tuple(self._outputs),
            writes=self._state.writes,
            saved=saved,
            requests=() if self._requests is None else tuple(self._requests.asked),
            withdrawn=() if self._requests is None else tuple(self._requests.withdrawn),
            children=self._children,
            tags=self._tags,
            timers=self._timers,
            attempts=self.attempt,
            version=self._at.header.version,
            time=self.call_time(),
            steps=() if self._steps is None else tuple(self._steps.made),
        )
