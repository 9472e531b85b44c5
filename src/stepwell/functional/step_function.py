"""`@step`: a function whose calls are steps of the durable function or handler that makes them."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from datetime import timedelta
from types import MethodType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from stepwell.engine.handler.internal_context import InternalContext, find_current
from stepwell.functional.run_context import RunContext
from stepwell.functional.signature import check_function, find_context_parameter
from stepwell.graph.annotations import AnnotationReader, local_names
from stepwell.graph.retry import RetryPolicy
from stepwell.graph.step_options import StepOptions, StoredErrors

P = ParamSpec("P")
R = TypeVar("R")


class StepFunction(Generic[P, R]):
    """A function whose calls are steps: `await lookup(order)` calls it once and stores the result.

    Outside of a run it calls the function, and nothing else. A plain function runs in a thread.
    """

    def __init__(
        self, function: Callable[P, Any], options: StepOptions[Any], replay_key: Callable[P, str] | None
    ) -> None:
        name = check_function(function, "@step")
        self.function, self._options, self._replay_key = function, options, replay_key
        self._context = find_context_parameter(function, AnnotationReader(function, name, local_names(function, ())))
        functools.update_wrapper(self, function)

    @property
    def name(self) -> str:
        return self._options.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        ctx = find_current()
        if ctx is None:
            return self._call(*args, **kwargs)
        # A coroutine, for `asyncio.create_task`.
        step: Any = ctx.step(self._options_of(*args, **kwargs), self.function, *args, **self._inject(ctx, args, kwargs))
        return step  # type: ignore[no-any-return]

    def sync(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Make the step from a durable function that is not async: blocks its thread until there is a result."""
        ctx = find_current()
        if ctx is None:
            return asyncio.run(self._call(*args, **kwargs))
        step: R = ctx.step_sync(
            self._options_of(*args, **kwargs), self.function, *args, **self._inject(ctx, args, kwargs)
        )
        return step

    async def _call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: Any
        if inspect.iscoroutinefunction(self.function):
            result = await self.function(*args, **kwargs)
        else:
            result = await asyncio.to_thread(self.function, *args, **kwargs)
        return result  # type: ignore[no-any-return]

    def _options_of(self, *args: P.args, **kwargs: P.kwargs) -> StepOptions[Any]:
        return self._options if self._replay_key is None else self._options.with_key(self._replay_key(*args, **kwargs))

    def _inject(self, ctx: InternalContext, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments, with the context if the function has a parameter for it that is not passed."""
        if (
            self._context is None
            or self._context in inspect.signature(self.function).bind_partial(*args, **kwargs).arguments
        ):
            return kwargs
        return {**kwargs, self._context: RunContext(ctx)}

    # A method: the instance is its first argument.
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<step {self.name!r}>"


class StepDecorator(Protocol):
    """What `@step(...)` returns."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> StepFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> StepFunction[P, R]: ...


@overload
def step(function: Callable[P, Coroutine[Any, Any, R]], /) -> StepFunction[P, R]: ...
@overload
def step(function: Callable[P, R], /) -> StepFunction[P, R]: ...
@overload
def step(
    *,
    name: str | None = ...,
    retry: RetryPolicy | None = ...,
    timeout: float | timedelta | None = ...,
    remember: StoredErrors = ...,
    replay_key: Callable[..., str] | None = ...,
) -> StepDecorator: ...
def step(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    retry: RetryPolicy | None = None,
    timeout: float | timedelta | None = None,
    remember: StoredErrors = (),
    replay_key: Callable[..., str] | None = None,
) -> Any:
    """Make the calls of a function steps: `@step` or `@step(name="charge", retry=..., timeout=5)`.

    Inside a durable function, or a handler of a graph, a call is made once: its result is stored before it
    returns, and returned when the function is called again. See `WorkflowContext.step` for what identifies a call.
    A parameter `idempotency_key` gets a key that every attempt shares, and a parameter `ctx: RunContext` the context,
    unless the caller passes them.

    `retry` and `timeout` are those of one call. An error of a class in `remember` is a result: it is stored, and
    raised again. `replay_key` gets the arguments and returns a string that identifies the call instead of its
    place; its arguments are then not compared. Raises DefinitionError for a generator.
    """

    def make(function: Any) -> Any:
        # First: what has no name is not a function.
        check_function(function, "@step")
        options = StepOptions(name or function.__name__, retry=retry, timeout=timeout, remember=remember)
        return StepFunction(function, options, replay_key)

    return make if function is None else make(function)
