"""What a handler takes and gives, read from its annotations or said in its decorator."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
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
    """One handler: where it is, what it takes, what it gives."""

    name: str
    input: tuple[object, ...]  # of a message; for a response handler, of the request
    output: tuple[object, ...]
    workflow_output: tuple[object, ...]
    takes_context: bool
    is_async: bool
    response: tuple[object, ...] | None = None  # what a response handler takes as an answer; None: it is none
    limits: Limits = NO_LIMITS  # as its decorator says; `Executor._limits_for` adds those of the executor


@dataclass(frozen=True, slots=True)
class Declared:
    """What a decorator said; None: look at the annotations."""

    input: object = None
    output: object = None
    workflow_output: object = None
    names: dict[str, Any] = field(default_factory=dict)  # what its strings mean where it was written
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
    """Mark a method `(self, message, ctx)` as the handler of the message type it is annotated with.

    The types may be given here instead; strings are looked up where the method was defined. A plain
    method runs in a thread. What a handler returns, unless it is None, is sent on.

    `retry` says when it is tried again, `timeout` how long one attempt may take, `idle_timeout` how long
    it may go without a sign of life. What is not said here is what its executor was given.
    """
    allowed = limits(retry, timeout, idle_timeout)

    def mark(method: F) -> F:
        if not isinstance(method, _MARKABLE):
            raise DefinitionError(f"@handler marks a method, not {method!r}; a type is given as @handler(input=...)")
        names = local_names(method, (input, output, workflow_output))
        setattr(method, SPEC, Declared(input, output, workflow_output, names, limits=allowed))
        return method

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
    """Mark a method `(self, original_request, response, ctx)` as the one that gets the answer to such a request.

    It is chosen by the types of both. The types may be given here instead of in annotations; `retry`,
    `timeout` and `idle_timeout` are those of `@handler`.
    """
    allowed = limits(retry, timeout, idle_timeout)

    def mark(method: F) -> F:
        if not isinstance(method, _MARKABLE):
            raise DefinitionError(f"@response_handler marks a method, not {method!r}")
        names = local_names(method, (request, response, output, workflow_output))
        declared = Declared(request, output, workflow_output, names, response, is_response_handler=True, limits=allowed)
        setattr(method, SPEC, declared)
        return method

    return mark if func is None else mark(func)


# static and class methods are refused later, with all the other problems
_MARKABLE = (FunctionType, staticmethod, classmethod)


def local_names(func: Callable[..., Any], declared: tuple[object, ...]) -> dict[str, Any]:
    """What the names in postponed annotations mean in the functions and classes around `func`, if it is in any.

    Those scopes must still be on the stack. Only what the annotations name is kept, not all that lives there.
    """
    written = (*getattr(_code_of(func), "__annotations__", {}).values(), *declared)
    unclear = (str(annotation) for annotation in written if not isinstance(annotation, type))
    words = {word for text in unclear for word in re.findall(r"[^\W\d]\w*", text)}
    names: dict[str, Any] = {}
    frame = _scope_of(getattr(_code_of(func), "__code__", None)) if words else None
    while frame is not None and frame.f_locals is not frame.f_globals:
        names = {name: frame.f_locals[name] for name in words if name in frame.f_locals} | names
        frame = _scope_of(frame.f_code, frame)
    return names


def _scope_of(code: CodeType | None, frame: FrameType | None = None) -> FrameType | None:
    """The running frame in whose source the code stands; a caller's variables are not its own."""
    frame = frame or sys._getframe()
    while frame is not None and not any(constant is code for constant in frame.f_code.co_consts):
        frame = frame.f_back
    return frame


def is_marked(attribute: object) -> bool:
    """Whether `@handler` marked it, or the function inside a static or class method."""
    return hasattr(attribute, SPEC) or hasattr(getattr(attribute, "__func__", None), SPEC)


def read_method(method: Callable[..., Any]) -> HandlerSpec:
    """The spec of a method that `@handler` marked. Raises DefinitionError in words."""
    if isinstance(method, (staticmethod, classmethod)):
        raise DefinitionError(
            f"handler {_name(method)!r} must be a method of an instance, not a {type(method).__name__}"
        )
    declared: Declared = getattr(method, SPEC)
    if declared.is_response_handler:
        return _read_spec(
            method, declared, _ExpectedSignature("(self, original_request, response, ctx)", skipped=1, allowed=(3,))
        )
    return _read_spec(method, declared, _ExpectedSignature("(self, message, ctx)", skipped=1, allowed=(2,)))


def read_function(func: Callable[..., Any], declared: Declared) -> HandlerSpec:
    """The spec of a function `(message)` or `(message, ctx)`."""
    return _read_spec(func, declared, _ExpectedSignature("(message) or (message, ctx)", skipped=0, allowed=(1, 2)))


@dataclass(frozen=True, slots=True)
class _ExpectedSignature:
    words: str
    skipped: int
    allowed: tuple[int, ...]


def _read_spec(func: Callable[..., Any], declared: Declared, expected: _ExpectedSignature) -> HandlerSpec:
    name, params = _name(func), _parameters(func, expected)
    if inspect.isgeneratorfunction(_code_of(func)) or inspect.isasyncgenfunction(_code_of(func)):
        raise DefinitionError(f"handler {name!r} is a generator; send with ctx.send_message(...) instead of `yield`")
    reader = _AnnotationReader(func, name, declared.names)
    input_types = reader.explicit(declared.input) if declared.input is not None else reader.annotation(params[0].name)
    if input_types is None:
        raise DefinitionError(
            f"handler {name!r} does not say what it takes: annotate {params[0].name!r}, or give input=... "
            f"in its decorator"
        )
    response = _response_types(reader, declared, params[1], name) if declared.is_response_handler else None
    others = params[2:] if declared.is_response_handler else params[1:]
    context = others[0].name if others else None
    return HandlerSpec(
        name=name,
        input=input_types,
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
    )


def _response_types(
    reader: _AnnotationReader, declared: Declared, parameter: inspect.Parameter, name: str
) -> tuple[object, ...]:
    response_types = (
        reader.explicit(declared.response) if declared.response is not None else reader.annotation(parameter.name)
    )
    if response_types is None:
        raise DefinitionError(
            f"response handler {name!r} does not say what answer it takes: annotate {parameter.name!r}, or give "
            f"response=... in its decorator"
        )
    return response_types


def _parameters(func: Callable[..., Any], expected: _ExpectedSignature) -> list[inspect.Parameter]:
    """Those that a call fills. Options by keyword, such as those a `partial` has filled, are none of them."""
    try:
        params = list(inspect.signature(func).parameters.values())
    except (TypeError, ValueError):  # some functions written in C do not say
        raise DefinitionError(f"handler {_name(func)!r} does not say its parameters; wrap it in a function") from None
    filled = [p for p in params if p.kind is not p.KEYWORD_ONLY or p.default is p.empty][expected.skipped :]
    if len(filled) not in expected.allowed or any(p.kind not in _POSITIONAL for p in filled):
        actual = inspect.Signature([p.replace(annotation=p.empty, default=p.empty) for p in params])
        raise DefinitionError(f"handler {_name(func)!r} must take {expected.words}, not {actual}")
    return filled


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class _AnnotationReader:
    """Reads one function's types, each only when it is asked for: what the decorator said need not be found."""

    def __init__(self, func: Callable[..., Any], name: str, names: dict[str, Any]) -> None:
        self._name = name
        code = inspect.unwrap(_code_of(func))
        self._written: dict[str, Any] = getattr(code, "__annotations__", {})
        self._globals: dict[str, Any] = getattr(code, "__globals__", {})
        self._locals = _closure(code) | names

    def explicit(self, annotation: object) -> tuple[object, ...]:
        """The members of a type that the decorator gave."""
        return self._members(self._resolve(annotation, vars(typing)))

    def annotation(self, parameter: str) -> tuple[object, ...] | None:
        """The members of a parameter's annotation; None if it has none."""
        return self._members(self._resolve(self._written[parameter])) if parameter in self._written else None

    def output_types(self, context: str | None) -> tuple[object, ...]:
        """What the context says is sent, and what is returned: that is sent too."""
        returned = self.annotation("return") or ()
        return (*self._context_types(context)[0], *(member for member in returned if member is not type(None)))

    def workflow_output_types(self, context: str | None) -> tuple[object, ...]:
        return self._context_types(context)[1]

    def _context_types(self, parameter: str | None) -> tuple[tuple[object, ...], tuple[object, ...]]:
        """`WorkflowContext[A | B, C]` → ((A, B), (C,))."""
        annotation = self._resolve(self._written[parameter]) if parameter in self._written else Any
        if annotation is WorkflowContext or annotation is Any:
            return (), ()
        if typing.get_origin(annotation) is not WorkflowContext:
            raise DefinitionError(
                f"handler {self._name!r} annotates its context as {describe(annotation)}; "
                f"it must be WorkflowContext[...]"
            )
        args = typing.get_args(annotation)
        if len(args) > 2:
            raise DefinitionError(f"handler {self._name!r}: WorkflowContext takes at most two types, not {len(args)}")
        sends, yields = (*args, typing.Never, typing.Never)[:2]
        return self._members(sends), self._members(yields)

    def _resolve(self, annotation: object, also: dict[str, Any] | None = None) -> object:
        """An annotation that may be a string, or have strings in it, looked up among the names in sight."""
        holder = SimpleNamespace(__annotations__={"it": annotation})
        try:
            hints = typing.get_type_hints(holder, (also or {}) | self._globals, self._locals)
        except (NameError, AttributeError, TypeError, SyntaxError) as error:
            raise DefinitionError(
                f"handler {self._name!r} names the type {describe(annotation)!r}, which cannot be found ({error}); "
                f"define it before the handler and not under TYPE_CHECKING, or give the class itself in the decorator"
            ) from None
        return hints["it"]

    def _members(self, annotation: object) -> tuple[object, ...]:
        members = flatten(annotation)
        for member in members:
            if variable := _type_variable(member):
                raise DefinitionError(f"handler {self._name!r} uses the type variable {variable}; name the type itself")
            if not callable(member):  # as all types and all forms of `typing` are
                raise DefinitionError(f"handler {self._name!r} names {member!r}, which is no type")
        return members


def _type_variable(member: Any) -> TypeVar | None:
    """The type variable that an annotation leaves open. A generic class without arguments leaves none."""
    if isinstance(member, type):
        return None
    candidates = [member, *getattr(member, "__parameters__", ())]
    return next((candidate for candidate in candidates if isinstance(candidate, TypeVar)), None)


def _code_of(func: Any) -> Any:
    """The function written down somewhere: inside a `partial`, or the `__call__` of an object."""
    while isinstance(func, partial):
        func = func.func
    return func if inspect.isroutine(func) else type(func).__call__


def _name(func: Any) -> str:
    written = _code_of(func)
    return getattr(written, "__qualname__", None) or repr(written)


def _closure(func: Any) -> dict[str, Any]:
    cells = getattr(func, "__closure__", None) or ()
    variables = {}
    for name, cell in zip(getattr(getattr(func, "__code__", None), "co_freevars", ()), cells, strict=False):
        try:
            variables[name] = cell.cell_contents
        except ValueError:  # the variable is not bound yet
            continue
    return variables
