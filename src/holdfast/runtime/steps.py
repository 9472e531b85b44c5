"""A step: something a handler does once. Its result is remembered at once, and recalled after a crash."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..core.errors import HandlerTimeout, StepFailed
from ..core.events import WorkflowErrorDetails
from ..core.model import Note
from ..core.parcel import Pack
from ..durable.ids import idempotency_key
from ..graph.policy import Limits
from .attempts import Attempts, OnRetry
from .failing import details_of
from .threads import in_own_thread, in_thread
from .timers import Notes

Errors = type[Exception] | tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done once, and how."""

    name: str
    key: str  # its place in the run
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    limits: Limits
    remember: Errors  # errors that are a result too


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step is done."""

    run_id: str
    epoch: int
    executor: str
    notes: Notes
    pack: Pack
    on_retry: OnRetry


async def done_once(step: Step, place: Place) -> Any:
    """The result of a step: recalled, or the step is done and its result remembered before this returns."""
    known = place.notes[step.key]
    if known is not None:
        return _recalled(step, place, known)
    attempts = Attempts(place.notes, step.key)
    await attempts.begin()
    while True:
        try:
            result = await _called(step, place)
        except Exception as error:
            details = details_of(place.executor, error)
            if await attempts.again(step.limits.retry, error, details, place.on_retry):
                continue
            if isinstance(error, step.remember):
                await place.notes.put(step.key, _of_error(step, place, error, details))
            raise
        parcel = place.pack(result, f"$.step[{step.name!r}]")
        await place.notes.put(step.key, Note("", value=parcel))
        return parcel.open()  # not the very object: what is recalled later is none either


async def _called(step: Step, place: Place) -> Any:
    call = partial(step.function, *step.args, **_with_key(step, place))
    limit = step.limits.timeout
    if inspect.iscoroutinefunction(step.function):
        running = call()
    elif limit is not None:
        running = in_own_thread(call, name=f"{place.executor}/{step.name}")
    else:
        running = in_thread(call)
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


def _with_key(step: Step, place: Place) -> dict[str, Any]:
    """A function that has a parameter for it gets a key that is the same for every attempt at this very step."""
    try:
        wanted = "idempotency_key" in inspect.signature(step.function).parameters
    except (TypeError, ValueError):  # a built-in function that does not tell
        wanted = False
    if not wanted or "idempotency_key" in step.kwargs:
        return step.kwargs
    return {**step.kwargs, "idempotency_key": idempotency_key(place.run_id, place.epoch, step.key)}


def _of_error(step: Step, place: Place, error: Exception, details: WorkflowErrorDetails) -> Note:
    return Note("", failure=details, value=place.pack(list(error.args), f"$.step[{step.name!r}].error"))


def _recalled(step: Step, place: Place, known: Note) -> Any:
    value = None if known.value is None else known.value.open()
    if known.failure is None:
        return value
    kinds = step.remember if isinstance(step.remember, tuple) else (step.remember,)
    found = next((kind for kind in _all_kinds(kinds) if kind.__name__ == known.failure.error_type), None)
    if found is None:
        raise StepFailed(
            f"the step {step.name!r} of {place.executor!r} in run {place.run_id!r} had failed: "
            f"{known.failure.error_type}: {known.failure.message}",
            run_id=place.run_id,
            executor_id=place.executor,
        )
    raise found.__new__(found, *(value or ()))  # filled, not made: what is stored must not make code run


def _all_kinds(kinds: tuple[type[Exception], ...]) -> list[type[Exception]]:
    """The classes of errors that the code names, and those derived from them."""
    found: list[type[Exception]] = []
    for kind in kinds:
        found += [kind, *_all_kinds(tuple(kind.__subclasses__()))]
    return found
