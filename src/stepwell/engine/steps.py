"""A step: something a handler does once. Its result is remembered at once, and recalled after a crash."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from stepwell.engine.attempts import Attempts, OnRetry
from stepwell.engine.branches import Branch, Entered
from stepwell.engine.failures import details_of
from stepwell.engine.superstep_log import SuperstepLog
from stepwell.engine.threads import in_own_thread, in_thread
from stepwell.errors import CodecError, CommitConflict, HandlerTimeout, StepChanged, StepFailed
from stepwell.graph.retry import Limits
from stepwell.model.event import WorkflowErrorDetails
from stepwell.model.payload import Pack
from stepwell.model.superstep import LogEntry, is_text
from stepwell.storage.ids import idempotency_key

_NOT_RETRIED = (CodecError, CommitConflict)  # the result cannot be stored; the run is driven by somebody else
Errors = type[Exception] | tuple[type[Exception], ...]


class Step(msgspec.Struct, frozen=True):
    """What is to be done once, and how."""

    name: str
    key: str  # its place in the run
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    limits: Limits
    remember: Errors  # errors that are a result too
    branch: Branch  # where it was asked for
    call: str | None = None  # what is called, in words that are compared when its result is recalled
    transaction: bool = False  # done in the database of the storage, together with remembering its result


class StepContext(msgspec.Struct, frozen=True):
    """Where a step is done."""

    run_id: str
    epoch: int
    executor: str
    log: SuperstepLog
    pack: Pack
    on_retry: OnRetry
    recall_changed: bool  # a result is recalled even if it is that of another call


async def do_once(step: Step, place: StepContext) -> Any:
    """The result of a step: recalled, or the step is done and its result remembered before this returns."""
    entry = place.log[step.key]
    if entry is not None:
        _check_same_call(step, place, entry)
        await place.log.wait_until_durable(step.key)
        return _recall(step, place, entry)
    attempts = Attempts(place.log, step.key)
    await attempts.wait_until_due()
    while True:
        try:
            with Entered(step.branch.inside(step.key.partition("/")[2])):  # in whichever delivery
                result = await (_call_in_transaction(step, place) if step.transaction else _call(step, place))
        except Exception as error:
            if step.transaction and isinstance(error, _NOT_RETRIED):
                raise
            details = details_of(place.executor, error)
            if await attempts.record_failure(step.limits.retry, error, details, place.on_retry):
                continue
            if isinstance(error, step.remember):
                await place.log.add(step.key, _error_entry(step, place, error, details))
            raise
        if not step.transaction:
            result = _result_entry(step, place, result)
            await place.log.add(step.key, result)
            result = place.log[step.key] or result  # that of an attempt that was faster, if there was one
        return _recall(step, place, result)  # not the very object: what is recalled later is none either


async def _call(step: Step, place: StepContext) -> Any:
    call = partial(step.function, *step.args, **_with_key(step, place))
    if inspect.iscoroutinefunction(step.function):
        return await _in_time(call(), step, place)
    if step.limits.timeout is not None:
        return await _in_time(in_own_thread(call, name=f"{place.executor}/{step.name}"), step, place)
    return await _in_time(in_thread(call), step, place)


async def _call_in_transaction(step: Step, place: StepContext) -> LogEntry:
    """What was noted of a step that is done in a transaction: now, or by whoever has done it before."""
    transaction = place.log.transaction(step.key)
    assert transaction is not None  # whoever called us made sure
    entries: list[LogEntry] = []

    def work(connection: Any) -> LogEntry:
        result = step.function(connection, *step.args, **_with_key(step, place))
        if inspect.isawaitable(result):
            raise _not_async(step)
        entries.append(_result_entry(step, place, result))
        return entries[-1]

    doing = in_own_thread(
        partial(transaction.do, work), name=f"{place.executor}/{step.name}", on_abandon=transaction.give_up
    )
    entry = await _in_time(doing, step, place) or entries[-1]
    place.log.add_from_store(step.key, entry)
    return entry


async def _in_time(running: Awaitable[Any], step: Step, place: StepContext) -> Any:
    limit = step.limits.timeout
    try:
        async with asyncio.timeout(limit) as scope:
            result = await running
            return await result if inspect.isawaitable(result) else result
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise HandlerTimeout(
            f"the step {step.name!r} of {place.executor!r} in run {place.run_id!r} was not done after {limit:g} s",
            run_id=place.run_id,
            executor_id=place.executor,
        ) from error


def check_step(name: str, function: Callable[..., Any], key: str | None) -> None:
    """Raises, in words, if this cannot be a step."""
    if not isinstance(name, str) or not name or not is_text(name):
        raise ValueError(f"a step has a name, a non-empty string of whole characters, not {name!r}")
    if not callable(function):
        raise TypeError(f"the step {name!r} calls a function, not {function!r}")
    if key is not None and (not isinstance(key, str) or not key or not is_text(key)):
        raise ValueError(f"the key of the step {name!r} is a non-empty string of whole characters, not {key!r}")


def check_transaction(step: Step, executor: str, log: SuperstepLog) -> None:
    """Raises, in words, if a step cannot be done in a transaction."""
    if inspect.iscoroutinefunction(step.function):
        raise _not_async(step)
    if log.transaction(step.key) is None:
        raise RuntimeError(
            f"the step {step.name!r} of {executor!r} wants a transaction, and where this run is stored there is none: "
            f"use PostgresCheckpointStorage, or leave transaction=True out and give the function an idempotency_key"
        )


def _not_async(step: Step) -> TypeError:
    return TypeError(
        f"the step {step.name!r} is done in a transaction, so its function must be a plain one: it is called in a "
        f"thread, with a psycopg.Connection; {step.function!r} is async"
    )


def _with_key(step: Step, place: StepContext) -> dict[str, Any]:
    """A function that has a parameter for it gets a key that is the same for every attempt at this very step."""
    try:
        wanted = "idempotency_key" in inspect.signature(step.function).parameters
    except (TypeError, ValueError):  # a built-in function that does not tell
        wanted = False
    if not wanted or "idempotency_key" in step.kwargs:
        return step.kwargs
    return {**step.kwargs, "idempotency_key": idempotency_key(place.run_id, place.epoch, step.key)}


def _result_entry(step: Step, place: StepContext, result: Any) -> LogEntry:
    return LogEntry("", value=place.pack(result, f"$.step[{step.name!r}]"), call=step.call)


def _error_entry(step: Step, place: StepContext, error: Exception, details: WorkflowErrorDetails) -> LogEntry:
    value = place.pack(list(error.args), f"$.step[{step.name!r}].error")
    return LogEntry("", failure=details, value=value, call=step.call)


def _check_same_call(step: Step, place: StepContext, entry: LogEntry) -> None:
    """Raises StepChanged if what is stored came of another call: it may be the wrong receipt for this one."""
    if entry.call is None or step.call is None or entry.call == step.call or place.recall_changed:
        return
    raise StepChanged(
        f"the step {step.name!r} of {place.executor!r} in run {place.run_id!r} is stored as the result of "
        f"{entry.call}, and is now asked for as {step.call} (behind # is a digest of the argument). Give it the same "
        f"arguments each time; or, if they may differ, state which step it is: step(..., key=...); or use the stored "
        f"result all the same: run(run_id={place.run_id!r}, on_changed_step='recall')",
        run_id=place.run_id,
        executor_id=place.executor,
        stored=entry.call,
        asked=step.call,
    )


def _recall(step: Step, place: StepContext, entry: LogEntry) -> Any:
    value = None if entry.value is None else entry.value.open()
    if entry.failure is None:
        return value
    kinds = step.remember if isinstance(step.remember, tuple) else (step.remember,)
    error_class = next((kind for kind in _with_subclasses(kinds) if kind.__name__ == entry.failure.error_type), None)
    if error_class is None:
        raise StepFailed(
            f"the step {step.name!r} of {place.executor!r} in run {place.run_id!r} had failed: "
            f"{entry.failure.error_type}: {entry.failure.message}",
            run_id=place.run_id,
            executor_id=place.executor,
        )
    raise error_class.__new__(error_class, *(value or ()))  # filled, not made: what is stored must not make code run


def _with_subclasses(kinds: tuple[type[Exception], ...]) -> list[type[Exception]]:
    """The classes of errors that the code names, and those derived from them."""
    classes: list[type[Exception]] = []
    for kind in kinds:
        classes += [kind, *_with_subclasses(tuple(kind.__subclasses__()))]
    return classes
