"""Handlers: the decorators `@handler` and `@response_handler`, and the types that a handler takes, sends
and yields, read from its annotations or from its decorator."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from types import CodeType, FrameType, FunctionType, SimpleNamespace
from typing import Any, TypeVar, overload

from stepwell.errors import DefinitionError
from stepwell.graph.context import WorkflowContext
from stepwell.graph.retry import NO_LIMITS, Limits, RetryPolicy, limits
from stepwell.graph.type_matching import describe, flatten

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
    limits: Limits = NO_LIMITS


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


def _mark(declared: Declared, method: F) -> F:
    if isinstance(method, (staticmethod, classmethod)):
        raise _static_error(method)
    if not isinstance(method, FunctionType):
        if declared.is_response_handler:
            raise DefinitionError(f"@response_handler marks a method, not {method!r}")
        raise DefinitionError(f"@handler marks a method, not {method!r}; pass a type as @handler(input=...)")
    # What the line alone shows is refused here; its types may be defined later, and are read by `build()`.
    _check_form(method, *_FORMS[declared.is_response_handler], skipped=1)
    types = (declared.input, declared.response, declared.output, declared.workflow_output)
    setattr(method, SPEC, replace(declared, names=local_names(method, types)))
    return method


def local_names(func: Callable[..., Any], declared: tuple[object, ...]) -> dict[str, Any]:
    """Return the local variables, of the functions and classes around `func`, that its annotations name.

    Python resolves postponed annotations with globals only, so classes that are defined in a function
    would not be found. The surrounding scopes are still on the stack while a decorator runs. Only the
    names that the annotations use are kept, so that nothing else is kept alive.
    """
    annotations = (*getattr(_code_of(func), "__annotations__", {}).values(), *declared)
    unresolved = (str(annotation) for annotation in annotations if not isinstance(annotation, type))
    identifiers = {word for text in unresolved for word in re.findall(r"[^\W\d]\w*", text)}
    names: dict[str, Any] = {}
    frame = _scope_of(getattr(_code_of(func), "__code__", None)) if identifiers else None
    while frame is not None and frame.f_locals is not frame.f_globals:
        names = {name: frame.f_locals[name] for name in identifiers if name in frame.f_locals} | names
        frame = _scope_of(frame.f_code, frame)
    return names


def _scope_of(code: CodeType | None, frame: FrameType | None = None) -> FrameType | None:
    """Return the running frame that the code is defined in.

    A code object is a constant of the code around it. A mere caller does not have it among its
    constants, and its variables are not in scope.
    """
    frame = frame or sys._getframe()
    while frame is not None and not any(constant is code for constant in frame.f_code.co_consts):
        frame = frame.f_back
    return frame


def is_marked(attribute: object) -> bool:
    """Return whether `@handler` marked a method, or the function inside a static or class method."""
    return hasattr(attribute, SPEC) or hasattr(getattr(attribute, "__func__", None), SPEC)


def read_method(method: Callable[..., Any]) -> HandlerSpec:
    """Return the spec of a method that `@handler` marked. Raises DefinitionError."""
    # A decorator around the marked function may have made it static
    if isinstance(method, (staticmethod, classmethod)):
        raise _static_error(method)
    declared: Declared = getattr(method, SPEC)
    return _read_spec(method, declared, *_FORMS[declared.is_response_handler], skipped=1)


def _static_error(method: Any) -> DefinitionError:
    return DefinitionError(f"handler {_name(method)!r} must be a method of an instance, not a {type(method).__name__}")


# The parameters of a method, as people read them, and how many follow `self`: of handlers, and of response handlers
_FORMS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("(self, message, ctx)", (2,)),
    ("(self, original_request, response, ctx)", (3,)),
)


def read_function(func: Callable[..., Any], declared: Declared) -> HandlerSpec:
    """Return the spec of a function `(message)` or `(message, ctx)`. Raises DefinitionError."""
    return _read_spec(func, declared, "(message) or (message, ctx)", counts=(1, 2))


def _read_spec(
    func: Callable[..., Any], declared: Declared, expected: str, counts: tuple[int, ...], skipped: int = 0
) -> HandlerSpec:
    """Read a signature that must have one of these numbers of parameters, after those (`self`) to be skipped."""
    name, params = _name(func), _check_form(func, expected, counts, skipped)
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
        is_async=inspect.iscoroutinefunction(_code_of(func)),
        response=response,
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
    if inspect.isgeneratorfunction(_code_of(func)) or inspect.isasyncgenfunction(_code_of(func)):
        raise DefinitionError(
            f"handler {_name(func)!r} is a generator; send with ctx.send_message(...) instead of `yield`"
        )
    try:
        params = list(inspect.signature(func).parameters.values())
    except (TypeError, ValueError):  # some functions written in C have no signature
        raise DefinitionError(f"handler {_name(func)!r} has no readable signature; wrap it in a function") from None
    filled = [p for p in params if p.kind is not p.KEYWORD_ONLY or p.default is p.empty][skipped:]
    if len(filled) not in counts or any(p.kind not in _POSITIONAL for p in filled):
        actual = inspect.Signature([p.replace(annotation=p.empty, default=p.empty) for p in params])
        raise DefinitionError(f"handler {_name(func)!r} must take {expected}, not {actual}")
    return filled


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class AnnotationReader:
    """Resolves the annotations of one function, each only when it is needed.

    An annotation that the decorator replaces may name a type that cannot be resolved at run time.
    """

    def __init__(self, func: Callable[..., Any], name: str, names: dict[str, Any]) -> None:
        self._name = name
        code = inspect.unwrap(_code_of(func))
        self._annotations: dict[str, Any] = getattr(code, "__annotations__", {})
        self._globals: dict[str, Any] = getattr(code, "__globals__", {})
        self._locals = _closure(code) | names

    def explicit(self, annotation: object) -> tuple[object, ...]:
        """Return the members of a type that was passed to the decorator."""
        return self._members(self._resolve(annotation, vars(typing)))

    def annotation(self, parameter: str) -> tuple[object, ...] | None:
        """Return the members of a parameter's annotation; None if it has none."""
        return self._members(self._resolve(self._annotations[parameter])) if parameter in self._annotations else None

    def output_types(self, context: str | None) -> tuple[object, ...]:
        """Return the types that the context declares as sent, and those of the result, which is sent too."""
        returned = self.annotation("return") or ()
        return (*self._context_types(context)[0], *(member for member in returned if member is not type(None)))

    def workflow_output_types(self, context: str | None) -> tuple[object, ...]:
        return self._context_types(context)[1]

    def may_yield(self, context: str | None) -> bool:
        """Return whether the handler can yield outputs: its context says so, or says nothing."""
        if context is None:
            return False
        annotation = self._resolve(self._annotations[context]) if context in self._annotations else Any
        return annotation in (WorkflowContext, Any) or bool(self.workflow_output_types(context))

    def _context_types(self, parameter: str | None) -> tuple[tuple[object, ...], tuple[object, ...]]:
        """`WorkflowContext[A | B, C]` → ((A, B), (C,))."""
        annotation = self._resolve(self._annotations[parameter]) if parameter in self._annotations else Any
        if annotation is WorkflowContext or annotation is Any:
            return (), ()
        if typing.get_origin(annotation) is not WorkflowContext:
            raise DefinitionError(
                f"handler {self._name!r} annotates its context as {describe(annotation)}; "
                f"it must be WorkflowContext[...]"
            )
        args = typing.get_args(annotation)
        # `WorkflowContext` accepts any number of parameters at run time, so too many are found here
        if len(args) > 2:
            raise DefinitionError(f"handler {self._name!r}: WorkflowContext takes at most two types, not {len(args)}")
        sends, yields = (*args, typing.Never, typing.Never)[:2]
        return self._members(sends), self._members(yields)

    def _resolve(self, annotation: object, also: dict[str, Any] | None = None) -> object:
        """Resolve an annotation that may be a string, or contain strings, with the names in scope."""
        # `get_type_hints` works on whole objects only, so this annotation becomes the only one of a holder
        holder = SimpleNamespace(__annotations__={"it": annotation})
        try:
            hints = typing.get_type_hints(holder, (also or {}) | self._globals, self._locals)
        except (NameError, AttributeError, TypeError, SyntaxError) as error:
            raise DefinitionError(
                f"handler {self._name!r} names the type {describe(annotation)!r}, which cannot be found ({error}); "
                f"define it before the handler and not under TYPE_CHECKING, or pass the class itself to the decorator"
            ) from None
        return hints["it"]

    def _members(self, annotation: object) -> tuple[object, ...]:
        members = flatten(annotation)
        for member in members:
            if variable := _type_variable(member):
                raise DefinitionError(f"handler {self._name!r} uses the type variable {variable}; name the type itself")
            # as all types and all forms of `typing` are
            if not callable(member):
                raise DefinitionError(f"handler {self._name!r} names {member!r}, which is not a type")
        return members


def _type_variable(member: Any) -> TypeVar | None:
    """Return a type variable that an annotation leaves open, or None. A bare generic class leaves none."""
    if isinstance(member, type):
        return None
    candidates = [member, *getattr(member, "__parameters__", ())]
    return next((candidate for candidate in candidates if isinstance(candidate, TypeVar)), None)


def _code_of(func: Any) -> Any:
    """Return the function that has the source code: inside a `partial`, or the `__call__` of an object."""
    while isinstance(func, partial):
        func = func.func
    return func if inspect.isroutine(func) else type(func).__call__


def _name(func: Any) -> str:
    code = _code_of(func)
    return getattr(code, "__qualname__", None) or repr(code)


def _closure(func: Any) -> dict[str, Any]:
    """Return the variables that a function closes over, by name."""
    cells = getattr(func, "__closure__", None) or ()
    variables = {}
    for name, cell in zip(getattr(getattr(func, "__code__", None), "co_freevars", ()), cells, strict=False):
        try:
            variables[name] = cell.cell_contents
        except ValueError:  # the variable is not bound yet
            continue
    return variables
