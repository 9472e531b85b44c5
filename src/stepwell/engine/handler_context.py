"""What a handler does through its context: everything is staged here until the commit."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any

import msgspec

from stepwell.engine.branches import Branch, handler_branch
from stepwell.engine.drive_scope import DriveScope
from stepwell.engine.handler_requests import HandlerRequests
from stepwell.engine.handler_steps import HandlerSteps
from stepwell.engine.internal_context import InternalContext
from stepwell.engine.questions import Questions
from stepwell.engine.steps import Step, check_transaction
from stepwell.engine.superstep_log import NOT_WORTH_LOGGING, Parked, SuperstepLog, earliest
from stepwell.engine.time_limits import TimeLimit
from stepwell.graph.graph import OutputKind
from stepwell.graph.step_options import StepOptions
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.child import Child
from stepwell.model.event import (
    RESERVED_EVENT_TYPES,
    WorkflowErrorDetails,
    WorkflowEvent,
    WorkflowEventSource,
    WorkflowRunState,
)
from stepwell.model.log_keys import LogEntry, ask_key, timer_key
from stepwell.model.message import Delivery, Outcome, Output, Sent
from stepwell.model.payload import Payload
from stepwell.model.request import Request
from stepwell.model.state import StateView
from stepwell.model.timing import CallTime, StepRecord
from stepwell.storage import clock, ids
from stepwell.storage.limits import check_tag


class _Ready:
    """An awaitable for what has already happened.

    `send_message` and its like act when called; what they return is there for `await` to be allowed,
    and a forgotten `await` loses nothing.
    """

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    # The `yield` that is never reached makes this a generator, which `__await__` must return.
    def __await__(self) -> Generator[None, None, Any]:
        return self._value
        yield


_DONE = _Ready(None)


class HandlerContext(InternalContext):
    """The context of one delivery."""

    __slots__ = (
        "_at",
        "_began",
        "_children",
        "_limit",
        "_log",
        "_open",
        "_outputs",
        "_questions",
        "_requests",
        "_returned",
        "_sent",
        "_started",
        "_state",
        "_steps",
        "_tags",
        "_thread_waits",
        "_waiting_steps",
        "asking",
        "attempt",
        "branch",
        "busy",
        "delivery",
        "has_updates",
        "parked",
        "scope",
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
        self._open, self._returned = True, False
        # What threads of the handler block on.
        self._thread_waits: set[concurrent.futures.Future[Any]] = set()
        # The handler sleeps until then or waits for an answer, and is to be left.
        self.parked: Parked | None = None
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

    @property
    def _internal(self) -> InternalContext:
        return self

    @property
    def run_id(self) -> str:
        return self.scope.run_id

    @property
    def root_run_id(self) -> str:
        return self.scope.options.root or self.scope.run_id

    @property
    def executor_id(self) -> str:
        return self.delivery.executor

    @property
    def idempotency_key(self) -> str:
        return ids.idempotency_key(self.scope.run_id, self.scope.epoch, self.delivery.id)

    @property
    def source_executor_ids(self) -> list[str]:
        return list(self.delivery.sources)

    def get_source_executor_id(self) -> str | None:
        if len(self.delivery.sources) > 1:
            raise RuntimeError(
                f"the message to {self.executor_id!r} came from several executors "
                f"({', '.join(self.delivery.sources)}): use source_executor_ids"
            )
        return self.delivery.sources[0] if self.delivery.sources else None

    def send_message(self, message: Any, target_id: str | None = None) -> Awaitable[None]:
        self._check_open("send_message")
        self._sent.append(Sent(self.scope.pack(message, "$.message"), target_id))
        return _DONE

    def yield_output(self, output: Any) -> Awaitable[None]:
        self._check_open("yield_output")
        kind = self.scope.graph.output_kind(self.delivery.executor)
        if kind is not None:
            self.yield_as(kind, output)
        return _DONE

    def yield_as(self, kind: OutputKind, output: Any) -> None:
        self._outputs.append(Output(kind, self.scope.pack(output, "$.output")))

    @property
    def request_id(self) -> str | None:
        return self.delivery.reply.request_id if self.delivery.reply else None

    def request_info(self, request_data: object, response_type: Any, **options: Any) -> Awaitable[str]:
        self._check_open("request_info")
        return _Ready(self.requests.ask(request_data, response_type, **options))

    def withdraw(self, request_id: str) -> None:
        self._check_open("withdraw")
        self.requests.withdraw(request_id)

    def forward_request(self, request: Request) -> None:
        self.requests.asked.append(request)

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
        return self._block(self._ask(question, response_type, options))

    def _ask(self, question: object, response_type: Any, options: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        self._check_open("ask")
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
        finally:
            for branch in steps:
                self._waiting_steps.remove(branch)

    @property
    def at(self) -> Checkpoint:
        return self._at

    @property
    def children(self) -> Mapping[str, Child]:
        return self._at.children

    def keep_child(self, key: str, child: Child | None) -> None:
        self._children[key] = child

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
        branch = self.steps.branch()
        key = timer_key(self.delivery.id, branch.count("timer"), branch.id)
        waiting = self._wait(key, moment)
        if threading.get_ident() == self.scope.thread:
            return waiting
        self._block(waiting)
        return _DONE

    def _block(self, waiting: Coroutine[Any, Any, Any]) -> Any:
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
                await self._log.add(key, entry)
        with self._limit.pause() if self._limit is not None else nullcontext():
            await self.await_or_park(self._log.wait(entry.due))

    def step(self, name: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != self.scope.thread:
            raise RuntimeError(
                f"ctx.step was called in a thread, by a plain function of {self.executor_id!r}: use ctx.step_sync there"
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
            return self._block(self.await_or_park(self.steps.do(step)))

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
        """Wait; if the wait is parked, note it, because the handler itself may catch Parked."""
        self.busy += 1
        try:
            return await running
        except Parked as parked:
            due = parked.due if self.parked is None else earliest(self.parked.due, parked.due)
            self.parked = Parked(due)
            raise
        finally:
            self.busy -= 1
            self._questions.check_soon()

    @property
    def is_waiting(self) -> bool:
        return self._open and 0 < self.busy <= self.asking + len(set(map(id, self._waiting_steps)))

    def _emit_retry(self, number: int, details: WorkflowErrorDetails, due: str) -> None:
        moment, origin = datetime.fromisoformat(due), WorkflowEventSource.FRAMEWORK
        self._emit("executor_retrying", moment, details=details, attempt=number, origin=origin)

    def _emit_step(self, record: StepRecord) -> None:
        origin = WorkflowEventSource.FRAMEWORK
        self._emit("step_completed", record, attempt=self.attempt, delivery=self.delivery.id, origin=origin)

    def add_event(self, event: WorkflowEvent) -> Awaitable[None]:
        self._check_open("add_event")
        if event.type in RESERVED_EVENT_TYPES:
            raise ValueError(f"events of type {event.type!r} are emitted by the engine only; choose another type")
        # The handler may add the same object again, even in another run.
        emitted = copy.copy(event)
        emitted.executor_id = event.executor_id or self.delivery.executor
        emitted.state = event.state or WorkflowRunState.IN_PROGRESS
        emitted.run_id = self.scope.run_id
        self.scope.emit(emitted)
        return _DONE

    def emit_update(self, data: Any) -> None:
        self._check_open("emit_update")
        self.has_updates = True
        self._emit("update", data, attempt=self.attempt, delivery=self.delivery.id)

    def emit_withdrawal(self, data: Any) -> None:
        self._emit("withdrawn", data, attempt=self.attempt, delivery=self.delivery.id)

    def _emit(self, type: str, data: Any, **attributes: Any) -> None:
        state = WorkflowRunState.IN_PROGRESS
        self.scope.emit(
            WorkflowEvent(type, data, state=state, executor_id=self.executor_id, run_id=self.run_id, **attributes)
        )

    def state_keys(self) -> list[str]:
        return self._state.keys()

    def state_length(self, key: str) -> int:
        return self._state.length(key)

    def get_state(self, key: str, default: Any = None) -> Any:
        self.keep_alive()
        return self._state.get(key, default)

    def set_tag(self, name: str, value: str | None) -> None:
        self._check_open("set_tag")
        check_tag(name, "" if value is None else value)
        self._tags = {**self._tags, name: value}

    def set_state(self, key: str, value: Any) -> None:
        self._check_open("set_state")
        self._state.set(key, value)

    def delete_state(self, key: str) -> None:
        self._check_open("delete_state")
        self._state.delete(key)

    def append_state(self, key: str, *items: Any) -> None:
        self._check_open("append_state")
        self._state.append(key, items)

    @property
    def private(self) -> Mapping[str, Any]:
        return self.scope.private

    def is_streaming(self) -> bool:
        return self.scope.streaming

    def get_sent_messages(self) -> list[Any]:
        return [sent.payload.open() for sent in self._sent]

    def get_yielded_outputs(self) -> list[Any]:
        return [output.payload.open() for output in self._outputs]

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
            writes=dict(self._state.writes),
            saved=saved,
            requests=() if self._requests is None else tuple(self._requests.asked),
            withdrawn=() if self._requests is None else tuple(self._requests.withdrawn),
            children=self._children,
            tags=self._tags,
            attempts=self.attempt,
            version=self._at.header.version,
            time=self.call_time(),
            steps=() if self._steps is None else tuple(self._steps.made),
        )

    def _check_open(self, what: str) -> None:
        if self._open:
            if self._limit is not None:
                self._limit.keep_alive()
            return
        call = f"{what} was called after the handler of {self.delivery.executor!r}"
        if self._returned:
            raise RuntimeError(f"{call} had returned; await what you start inside a handler")
        raise RuntimeError(f"{call} had failed or was given up; it has no effect any more")

    def keep_alive(self) -> None:
        if self._limit is not None:
            self._limit.keep_alive()
