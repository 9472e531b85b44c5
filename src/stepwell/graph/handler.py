"""Handlers: the decorators `@handler`, `@response_handler` and `@timer_handler`, and the types that a handler
takes, sends and yields, read from its annotations or from its decorator."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from types import FunctionType
from typing import Any, TypeVar, overload

from stepwell.errors import DefinitionError
from stepwell.graph.annotations import AnnotationReader, code_of, local_names, qualified_name
from stepwell.graph.retry import NO_LIMITS, Limits, RetryPolicy, limits

F = TypeVar("F", bound=Callable[..., Any])
SPEC = "__stepwell_handler__"


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """A handler's name, and the types that it takes, sends and yields."""

    name: str
    # types of the message; for a response handler, of the request
    input: tuple[object, ...]
    output: tuple[object, ...]
    workflow_output: tuple[object, ...]
    takes_context: bool
    is_async: bool
    # types of the response; None: not a response handler
    response: tuple[object, ...] | None = None
    # names of timers, empty for all that no other handler names; None: not a timer handler
    timers: tuple[str, ...] | None = None
    # those of its decorator; `Executor._limits_for` adds those of the executor
    limits: Limits = NO_LIMITS
    # False if its annotations say that it yields no output
    may_yield: bool = True


@dataclass(frozen=True, slots=True)
class Declared:
    """The arguments of a decorator; for those that are None, the annotations count."""

    input: object = None
    output: object = None
    workflow_output: object = None
    # local names that its types may refer to
    names: dict[str, Any] = field(default_factory=dict)
    response: object = None
    is_response_handler: bool = False
    timers: tuple[str, ...] | None = None
    limits: Limits = NO_LIMITS

    @property
    def form(self) -> tuple[str, tuple[int, ...]]:
        """The parameters of such a method, as people read them, and how many follow `self`."""
        if self.is_response_handler:
            return "(self, original_request, response, ctx)", (3,)
        return "(self, message, ctx)" if self.timers is None else "(self, name, ctx)", (2,)


@overload
def handler(func: F) -> F: ...
@overload
def handler(
    *,
    input: Any = ...,
    output: Any = ...,
    workflow_output: Any = ...,
    retry: RetryPolicy | None = ...,
    timeout: float | timedelta | None = ...,
    idle_timeout: float | timedelta | None = ...,
) -> Callable[[F], F]: ...
def handler(
    func: Any = None,
    *,
    input: Any = None,
    output: Any = None,
    workflow_output: Any = None,
    retry: RetryPolicy | None = None,
    timeout: float | timedelta | None = None,
    idle_timeout: float | timedelta | None = None,
) -> Any:
    """Mark a method `(self, message, ctx)` as the handler of the message type in its annotation.

    Types passed here replace the annotations; strings are resolved where the method is defined. A
    plain method runs in a thread. A result other than None is sent as a message.

    `retry` says when a failed attempt is repeated, `timeout` how long one attempt may take,
    `idle_timeout` how long it may be without a sign of life. The executor's values are the defaults.
    """
    mark = partial(_mark, Declared(input, output, workflow_output, limits=limits(retry, timeout, idle_timeout)))
    return mark if func is None else mark(func)


@overload
def response_handler(func: F) -> F: ...
@overload
def response_handler(
    *,
    request: Any = ...,
    response: Any = ...,
    output: Any = ...,
    workflow_output: Any = ...,
    retry: RetryPolicy | None = ...,
    timeout: float | timedelta | None = ...,
    idle_timeout: float | timedelta | None = ...,
) -> Callable[[F], F]: ...
def response_handler(
    func: Any = None,
    *,
    request: Any = None,
    response: Any = None,
    output: Any = None,
    workflow_output: Any = None,
    retry: RetryPolicy | None = None,
    timeout: float | timedelta | None = None,
    idle_timeout: float | timedelta | None = None,
) -> Any:
    """Mark a method `(self, original_request, response, ctx)` as the handler of responses to such requests.

    It is chosen by the types of both. Types passed here replace the annotations; `retry`, `timeout`
    and `idle_timeout` are those of `@handler`.
    """
    allowed = limits(retry, timeout, idle_timeout)
    declared = Declared(request, output, workflow_output, response=response, is_response_handler=True, limits=allowed)
    mark = partial(_mark, declared)
    return mark if func is None else mark(func)


@overload
def timer_handler(func: F, /) -> F: ...
@overload
def timer_handler(
    *names: str,
    output: Any = ...,
    workflow_output: Any = ...,
    retry: RetryPolicy | None = ...,
    timeout: float | timedelta | None = ...,
    idle_timeout: float | timedelta | None = ...,
) -> Callable[[F], F]: ...
def timer_handler(
    *names: Any,
    output: Any = None,
    workflow_output: Any = None,
    retry: RetryPolicy | None = None,
    timeout: float | timedelta | None = None,
    idle_timeout: float | timedelta | None = None,
) -> Any:
    """Mark a method `(self, name, ctx)` as the handler of timers that `ctx.set_timer` sets.

    `@timer_handler("remind")` handles the timer of that name; it may list several. `@timer_handler`
    handles all that no other handler of the executor names. The rest is as for `@handler`.
    """
    marked = names[0] if len(names) == 1 and callable(names[0]) else None
    declared = timers_declared(
        () if marked is not None else names, output, workflow_output, limits(retry, timeout, idle_timeout)
    )
    return partial(_mark, declared) if marked is None else _mark(declared, marked)


def timers_declared(names: tuple[Any, ...], output: Any, workflow_output: Any, allowed: Limits) -> Declared:
    """Return what a decorator of a timer handler says. Raises DefinitionError for a name that is not one."""
    for name in names:
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"@timer_handler takes names of timers, non-empty strings, not {name!r}")
    return Declared(str, output, workflow_output, timers=names, limits=allowed)


def _mark(declared: Declared, method: F) -> F:
    if isinstance(method, (staticmethod, classmethod)):
        raise _static_error(method)
    if not isinstance(method, FunctionType):
        if declared.timers is not None:
            raise DefinitionError(f"@timer_handler marks a method, not {method!r}")
        if declared.is_response_handler:
            raise DefinitionError(f"@response_handler marks a method, not {method!r}")
        raise DefinitionError(f"@handler marks a method, not {method!r}; pass a type as @handler(input=...)")
    # What the line alone shows is refused here; its types may be defined later, and are read by `build()`.
    _check_form(method, *declared.form, skipped=1)
    types = (declared.input, declared.response, declared.output, declared.workflow_output)
    setattr(method, SPEC, replace(declared, names=local_names(method, types)))
    return method


def is_marked(attribute: object) -> bool:
    """Return whether `@handler` marked a method, or the function inside a static or class method."""
    return hasattr(attribute, SPEC) or hasattr(getattr(attribute, "__func__", None), SPEC)


def read_method(method: Callable[..., Any]) -> HandlerSpec:
    """Return the spec of a method that `@handler` marked. Raises DefinitionError."""
    # A decorator around the marked function may have made it static
    if isinstance(method, (staticmethod, classmethod)):
        raise _static_error(method)
    declared: Declared = getattr(method, SPEC)
    return _read_spec(method, declared, *declared.form, skipped=1)


def _static_error(method: Any) -> DefinitionError:
    return DefinitionError(
        f"handler {qualified_name(method)!r} must be a method of an instance, not a {type(method).__name__}"
    )


def read_function(func: Callable[..., Any], declared: Declared) -> HandlerSpec:
    """Return the spec of a function `(message)` or `(message, ctx)`. Raises DefinitionError."""
    first = "message" if declared.timers is None else "name"
    return _read_spec(func, declared, f"({first}) or ({first}, ctx)", counts=(1, 2))


def _read_spec(
    func: Callable[..., Any], declared: Declared, expected: str, counts: tuple[int, ...], skipped: int = 0
) -> HandlerSpec:
    """Read a signature that must have one of these numbers of parameters, after those (`self`) to be skipped."""
    name, params = qualified_name(func), _check_form(func, expected, counts, skipped)
    reader = AnnotationReader(func, name, declared.names)
    taken = reader.explicit(declared.input) if declared.input is not None else reader.annotation(params[0].name)
    if taken is None:
        option = "request" if declared.is_response_handler else "input"
        raise DefinitionError(
            f"handler {name!r} does not declare what it takes: annotate {params[0].name!r}, or pass {option}=... "
            f"to its decorator"
        )
    response = None
    if declared.is_response_handler:
        answer = params.pop(1).name
        response = reader.explicit(declared.response) if declared.response is not None else reader.annotation(answer)
        if response is None:
            raise DefinitionError(
                f"response handler {name!r} does not declare what response it takes: annotate {answer!r}, or "
                f"pass response=... to its decorator"
            )
    context = params[1].name if len(params) > 1 else None
    return HandlerSpec(
        name=name,
        input=taken,
        output=reader.explicit(declared.output) if declared.output is not None else reader.output_types(context),
        workflow_output=(
            reader.explicit(declared.workflow_output)
            if declared.workflow_output is not None
            else reader.workflow_output_types(context)
        ),
        takes_context=context is not None,
        is_async=inspect.iscoroutinefunction(code_of(func)),
        response=response,
        timers=declared.timers,
        limits=declared.limits,
        may_yield=declared.workflow_output is not None or reader.may_yield(context),
    )


def _check_form(
    func: Callable[..., Any], expected: str, counts: tuple[int, ...], skipped: int
) -> list[inspect.Parameter]:
    """Return the parameters that a call fills, without optional keywords such as those a `partial` filled.

    Raises DefinitionError for a generator, and for another number of parameters.
    """
    # calling a generator function runs none of its code, so it would look like a handler that does nothing
    if inspect.isgeneratorfunction(code_of(func)) or inspect.isasyncgenfunction(code_of(func)):
        raise DefinitionError(
            f"handler {qualified_name(func)!r} is a generator; send with ctx.send_message(...) instead of `yield`"
        )
    try:
        params = list(inspect.signature(func).parameters.values())
    except (TypeError, ValueError):  # some functions written in C have no signature
        raise DefinitionError(
            f"handler {qualified_name(func)!r} has no readable signature; wrap it in a function"
        ) from None
    filled = [p for p in params if p.kind is not p.KEYWORD_ONLY or p.default is p.empty][skipped:]
    if len(filled) not in counts or any(p.kind not in _POSITIONAL for p in filled):
        actual = inspect.Signature([p.replace(annotation=p.empty, default=p.empty) for p in params])
        raise DefinitionError(f"handler {qualified_name(func)!r} must take {expected}, not {actual}")
    return filled


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
