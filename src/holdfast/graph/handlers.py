"""What a handler takes and gives, read from its annotations or said in its decorator."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar, overload

from ..core.errors import DefinitionError
from .context import WorkflowContext
from .types import flatten

F = TypeVar("F", bound=Callable[..., Any])
SPEC = "__holdfast_handler__"


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """One handler: where it is, what it takes, what it gives."""

    name: str
    input: tuple[object, ...]
    output: tuple[object, ...]
    workflow_output: tuple[object, ...]
    takes_context: bool
    is_async: bool


@dataclass(frozen=True, slots=True)
class Declared:
    """What a decorator said; None: look at the annotations."""

    input: object = None
    output: object = None
    workflow_output: object = None
    names: dict[str, Any] = field(default_factory=dict)  # what its strings mean where it was written


@overload
def handler(func: F) -> F: ...
@overload
def handler(*, input: Any = ..., output: Any = ..., workflow_output: Any = ...) -> Callable[[F], F]: ...
def handler(func: Any = None, *, input: Any = None, output: Any = None, workflow_output: Any = None) -> Any:
    """Mark a method `(self, message, ctx)` as the handler of the message type it is annotated with.

    The types may be given here instead; strings are looked up where the method was defined. A plain
    method runs in a thread. What a handler returns, unless it is None, is sent on.
    """

    def mark(method: F, depth: int = 1) -> F:
        names = local_names(method, (input, output, workflow_output), sys._getframe(depth))
        setattr(method, SPEC, Declared(input, output, workflow_output, names))
        return method

    return mark if func is None else mark(func, 2)


def local_names(func: Callable[..., Any], declared: tuple[object, ...], frame: FrameType | None) -> dict[str, Any]:
    """What the names in string annotations mean around `frame`, as long as it is inside a function or class."""
    strings = [a for a in (*getattr(func, "__annotations__", {}).values(), *declared) if isinstance(a, str)]
    wanted = {word for text in strings for word in re.findall(r"[A-Za-z_]\w*", text)}
    found: dict[str, Any] = {}
    while wanted and frame is not None and frame.f_locals is not frame.f_globals:
        found = {name: frame.f_locals[name] for name in wanted if name in frame.f_locals} | found
        frame = frame.f_back
    return found


def read_method(method: Callable[..., Any]) -> HandlerSpec:
    """The spec of a method that `@handler` marked. Raises DefinitionError in words."""
    params = list(inspect.signature(method).parameters.values())[1:]
    return _read(method, params, getattr(method, SPEC), needs_context=True)


def read_function(func: Callable[..., Any], declared: Declared) -> HandlerSpec:
    """The spec of a function `(message)` or `(message, ctx)`."""
    return _read(func, list(inspect.signature(func).parameters.values()), declared, needs_context=False)


def _read(
    func: Callable[..., Any], params: list[inspect.Parameter], declared: Declared, *, needs_context: bool
) -> HandlerSpec:
    name = getattr(func, "__qualname__", repr(func))
    allowed = (2,) if needs_context else (1, 2)
    if len(params) not in allowed or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in params):
        shape = "(self, message, ctx)" if needs_context else "(message) or (message, ctx)"
        raise DefinitionError(f"handler {name!r} must take {shape}, not {len(params)} parameters")
    hints = _hints(func, declared.names)
    taken = (
        _resolve(func, declared.input, declared.names)
        if declared.input is not None
        else hints.get(params[0].name, _MISSING)
    )
    if taken is _MISSING:
        raise DefinitionError(
            f"handler {name!r} does not say what it takes: annotate {params[0].name!r}, or give input=... "
            f"in its decorator"
        )
    sends, yields = _context_types(name, hints.get(params[1].name) if len(params) > 1 else None)
    returned = hints.get("return", None)
    sends += () if returned in (None, type(None)) else tuple(t for t in flatten(returned) if t is not type(None))
    return HandlerSpec(
        name=func.__name__,
        input=_members(name, taken),
        output=_members(name, _resolve(func, declared.output, declared.names))
        if declared.output is not None
        else sends,
        workflow_output=(
            _members(name, _resolve(func, declared.workflow_output, declared.names))
            if declared.workflow_output is not None
            else yields
        ),
        takes_context=len(params) > 1,
        is_async=inspect.iscoroutinefunction(func),
    )


_MISSING = object()


def _hints(func: Callable[..., Any], names: dict[str, Any]) -> dict[str, Any]:
    """Annotations with postponed ones looked up."""
    try:
        return typing.get_type_hints(func, localns=names or None)
    except (NameError, AttributeError, TypeError):  # look one by one, so that the error can say which
        found = {n: _resolve(func, a, names) for n, a in getattr(func, "__annotations__", {}).items()}
        return {name: type(None) if value is None else value for name, value in found.items()}


def _resolve(func: Callable[..., Any], annotation: object, names: dict[str, Any]) -> object:
    """An annotation that may be a string, looked up among the names the function can see."""
    if not isinstance(annotation, str):
        return annotation
    code = inspect.unwrap(func)
    seen = dict(vars(typing)) | getattr(code, "__globals__", {}) | _closure(code) | names
    try:
        return eval(annotation, seen)  # the function's own source text, as typing.get_type_hints does
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise DefinitionError(
            f"handler {getattr(func, '__qualname__', func)!r} names the type {annotation!r}, which cannot be "
            f"found ({error}); define it at the top of its module, or give the class itself in the decorator"
        ) from None


def _closure(func: Any) -> dict[str, Any]:
    cells = getattr(func, "__closure__", None) or ()
    found = {}
    for name, cell in zip(getattr(getattr(func, "__code__", None), "co_freevars", ()), cells, strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # the variable is not bound yet
            continue
    return found


def _members(name: str, annotation: object) -> tuple[object, ...]:
    members = flatten(annotation)
    for member in members:
        if isinstance(member, TypeVar):
            raise DefinitionError(f"handler {name!r} uses the type variable {member}; name the type itself")
    return members


def _context_types(name: str, annotation: object) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """`WorkflowContext[A | B, C]` → ((A, B), (C,))."""
    if annotation is None or annotation is WorkflowContext or annotation is Any:
        return (), ()
    origin = typing.get_origin(annotation)
    if origin is not WorkflowContext:
        raise DefinitionError(
            f"handler {name!r}: the context must be annotated WorkflowContext[...], not {annotation!r}"
        )
    args = typing.get_args(annotation)
    if len(args) > 2:
        raise DefinitionError(f"handler {name!r}: WorkflowContext takes at most two types, not {len(args)}")
    sends = flatten(args[0]) if args else ()
    return sends, flatten(args[1]) if len(args) > 1 else ()
