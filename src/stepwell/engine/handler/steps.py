"""Steps: calls whose results are stored at once and reused when the handler runs again.

A call is repeated only if the process dies before its result is stored.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter
from types import FunctionType
from typing import Any

import msgspec

from stepwell.engine.durability.attempts import Attempts, OnRetry
from stepwell.engine.durability.superstep_log import SuperstepLog
from stepwell.engine.failures import details_of
from stepwell.engine.handler.branches import Branch
from stepwell.engine.handler.threads import run_in_own_thread, run_in_thread
from stepwell.errors import CodecError, CommitConflict, HandlerTimeout, StepChanged, StepFailed
from stepwell.graph.step_options import StepOptions
from stepwell.model.event import WorkflowErrorDetails
from stepwell.model.log_keys import LogEntry
from stepwell.model.payload import Pack
from stepwell.model.timing import CallTime
from stepwell.storage import clock
from stepwell.storage.ids import idempotency_key

# The result cannot be stored; another process drives the run.
_NOT_RETRIED = (CodecError, CommitConflict)


class Step(msgspec.Struct):
    """A call whose stored result is reused."""

    options: StepOptions[bool]
    key: str  # its key in the superstep log
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    branch: Branch  # that called it
    # A description of the call, compared when its result is recalled; made when it is executed.
    call: str | None = None

    @property
    def name(self) -> str:
        return self.options.name


class CallTimer:
    """Measures one attempt at a step."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self._began, self._started = clock.stamp(), perf_counter()

    def read(self) -> CallTime:
        return CallTime(self._began, round((perf_counter() - self._started) * 1_000_000))


class StepContext(msgspec.Struct, frozen=True):
    """What the execution of a step needs to know of its run."""

    run_id: str
    epoch: int
    executor: str
    log: SuperstepLog
    pack: Pack
    on_retry: OnRetry
    # Return why no other attempt begins, and a failure is none: the run is left, for example.
    find_stop: Callable[[], BaseException | None]
    # Return a stored result even if the call has changed.
    recall_changed: bool


async def do_once(step: Step, context: StepContext) -> Any:
    """Return the result of a step: the stored one, or that of a call, stored before this returns."""
    entry = context.log[step.key]
    if entry is not None:
        _check_same_call(step, context, entry)
        await context.log.wait_until_durable(step.key)
        return _recall(step, context, entry)
    attempts = Attempts(context.log, step.key)
    if attempts.number > 1:
        await attempts.wait_until_due()
    while True:
        timer = CallTimer(attempts.number)
        try:
            # The branch inside a step is named without the delivery, which is part of the key already.
            with step.branch.inside(step.key.partition("/")[2]):
                if step.options.transaction:
                    result = await _call_in_transaction(step, context, timer)
                else:
                    result = await _call(step, context)
        except Exception as error:
            if (stop := context.find_stop()) is not None:
                raise stop from error
            if step.options.transaction and isinstance(error, _NOT_RETRIED):
                raise
            details = details_of(context.executor, error)
            if await attempts.record_failure(step.options.limits.retry, error, details, context.on_retry):
                continue
            if isinstance(error, step.options.remember):
                await context.log.add(step.key, _error_entry(step, context, error, details, timer))
            raise
        if not step.options.transaction:
            result = _result_entry(step, context, result, timer)
            await context.log.add(step.key, result)
            # That of a concurrent attempt, if it was faster.
            result = context.log[step.key] or result
        # Decoded from the entry, not the object itself: a recalled result is not the same object either.
        return _recall(step, context, result)


async def _call(step: Step, context: StepContext) -> Any:
    is_async = _is_async(step.function)
    if is_async and step.options.limits.timeout is None:
        # Most steps are such.
        result = await step.function(*step.args, **_with_key(step, context))
        return await result if hasattr(type(result), "__await__") else result
    call = partial(step.function, *step.args, **_with_key(step, context))
    if is_async:
        return await _await_with_timeout(call(), step, context)
    if step.options.limits.timeout is not None:
        return await _await_with_timeout(run_in_own_thread(call, name=f"{context.executor}/{step.name}"), step, context)
    return await _await_with_timeout(run_in_thread(call), step, context)


async def _call_in_transaction(step: Step, context: StepContext, timer: CallTimer) -> LogEntry:
    """Execute a step in a transaction, unless it was executed before; return its log entry."""
    transaction = context.log.transaction(step.key)
    # `check_transaction` was called before.
    assert transaction is not None
    entries: list[LogEntry] = []

    def work(connection: Any) -> LogEntry:
        result = step.function(connection, *step.args, **_with_key(step, context))
        if inspect.isawaitable(result):
            raise _not_async(step)
        entries.append(_result_entry(step, context, result, timer))
        return entries[-1]

    doing = run_in_own_thread(
        partial(transaction.do, work), name=f"{context.executor}/{step.name}", on_abandon=transaction.give_up
    )
    entry = await _await_with_timeout(doing, step, context) or entries[-1]
    context.log.add_from_store(step.key, entry)
    return entry


async def _await_with_timeout(running: Awaitable[Any], step: Step, context: StepContext) -> Any:
    limit = step.options.limits.timeout
    try:
        async with asyncio.timeout(limit) as limit_scope:
            result = await running
            return await result if inspect.isawaitable(result) else result
    except TimeoutError as error:
        if not limit_scope.expired():
            raise
        raise HandlerTimeout(
            f"step {step.name!r} of {context.executor!r} in run {context.run_id!r} timed out after {limit:g} s",
            run_id=context.run_id,
            executor_id=context.executor,
        ) from error


def check_transaction(step: Step, executor: str, log: SuperstepLog) -> None:
    """Raise TypeError or RuntimeError if a step cannot be executed in a transaction."""
    if _is_async(step.function):
        raise _not_async(step)
    if log.transaction(step.key) is None:
        raise RuntimeError(
            f"step {step.name!r} of {executor!r} needs a transaction, which the storage of this run does not have: "
            f"use PostgresCheckpointStorage, or leave transaction=True out and pass an idempotency_key to the function"
        )


def _not_async(step: Step) -> TypeError:
    return TypeError(
        f"step {step.name!r} runs in a transaction, so its function must be a plain one: it is called in a "
        f"thread, with a psycopg.Connection; {step.function!r} is async"
    )


def _with_key(step: Step, context: StepContext) -> dict[str, Any]:
    """Return the keyword arguments; `idempotency_key`, if the function has it, is the same for every attempt."""
    if "idempotency_key" in step.kwargs or not _takes_key(step.function):
        return step.kwargs
    return {**step.kwargs, "idempotency_key": idempotency_key(context.run_id, context.epoch, step.key)}


# What `inspect` says of a plain function is in its code object, many times faster.


def _is_async(function: Callable[..., Any]) -> bool:
    if type(function) is FunctionType:
        return function.__code__.co_flags & inspect.CO_COROUTINE != 0
    return inspect.iscoroutinefunction(function)


def _takes_key(function: Callable[..., Any]) -> bool:
    if type(function) is FunctionType and not hasattr(function, "__wrapped__"):
        code = function.__code__
        return "idempotency_key" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    try:
        return "idempotency_key" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        # Some built-in functions have no signature.
        return False


def _result_entry(step: Step, context: StepContext, result: Any, timer: CallTimer) -> LogEntry:
    value = context.pack(result, f"$.step[{step.name!r}]")
    return LogEntry("", value=value, call=step.call, time=timer.read(), attempts=timer.attempt)


def _error_entry(
    step: Step, context: StepContext, error: Exception, details: WorkflowErrorDetails, timer: CallTimer
) -> LogEntry:
    value = context.pack(list(error.args), f"$.step[{step.name!r}].error")
    return LogEntry("", failure=details, value=value, call=step.call, time=timer.read(), attempts=timer.attempt)


def _check_same_call(step: Step, context: StepContext, entry: LogEntry) -> None:
    """Raise StepChanged if the stored result is that of another call: it may be the wrong receipt for this one."""
    if entry.call is None or step.call is None or entry.call == step.call or context.recall_changed:
        return
    raise StepChanged(
        f"step {step.name!r} of {context.executor!r} in run {context.run_id!r} has a stored result of {entry.call}, "
        f"and is now called as {step.call} (# marks a digest of an argument). Pass it the same arguments each time; "
        f"or, if they may differ, identify the step with a key: StepOptions({step.name!r}, key=...); or use the stored "
        f"result: run(run_id={context.run_id!r}, on_changed_step='recall')",
        run_id=context.run_id,
        executor_id=context.executor,
        stored=entry.call,
        asked=step.call,
    )


def _recall(step: Step, context: StepContext, entry: LogEntry) -> Any:
    value = None if entry.value is None else entry.value.open()
    if entry.failure is None:
        return value
    kinds = step.options.remember if isinstance(step.options.remember, tuple) else (step.options.remember,)
    error_class = next((kind for kind in _with_subclasses(kinds) if kind.__name__ == entry.failure.error_type), None)
    if error_class is None:
        raise StepFailed(
            f"step {step.name!r} of {context.executor!r} in run {context.run_id!r} had failed: "
            f"{entry.failure.error_type}: {entry.failure.message}",
            run_id=context.run_id,
            executor_id=context.executor,
        )
    # `__new__` without `__init__`: stored data must not make code of a user's class run.
    raise error_class.__new__(error_class, *(value or ()))


def _with_subclasses(kinds: tuple[type[Exception], ...]) -> list[type[Exception]]:
    """Return these exception classes and all their subclasses."""
    classes: list[type[Exception]] = []
    for kind in kinds:
        classes += [kind, *_with_subclasses(tuple(kind.__subclasses__()))]
    return classes
