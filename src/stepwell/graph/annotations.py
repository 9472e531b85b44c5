"""The annotations of functions: resolved with the names in scope where the function is defined."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType, SimpleNamespace
from typing import Any, TypeVar

from stepwell.errors import DefinitionError
from stepwell.graph.context import WorkflowContext
from stepwell.graph.type_matching import describe, flatten


def local_names(func: Callable[..., Any], declared: tuple[object, ...]) -> dict[str, Any]:
    """Return the local variables, of the functions and classes around `func`, that its annotations name.

    Python resolves postponed annotations with globals only, so classes that are defined in a function
    would not be found. The surrounding scopes are still on the stack while a decorator runs. Only the
    names that the annotations use are kept, so that nothing else is kept alive.
    """
    annotations = (*getattr(code_of(func), "__annotations__", {}).values(), *declared)
    unresolved = (str(annotation) for annotation in annotations if not isinstance(annotation, type))
    identifiers = {word for text in unresolved for word in re.findall(r"[^\W\d]\w*", text)}
    names: dict[str, Any] = {}
    frame = _scope_of(getattr(code_of(func), "__code__", None)) if identifiers else None
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


class AnnotationReader:
    """Resolves the annotations of one function, each only when it is needed.

    An annotation that the decorator replaces may name a type that cannot be resolved at run time.
    """

    def __init__(self, func: Callable[..., Any], name: str, names: dict[str, Any]) -> None:
        self._name = name
        code = inspect.unwrap(code_of(func))
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


def code_of(func: Any) -> Any:
    """Return the function that has the source code: inside a `partial`, or the `__call__` of an object."""
    while isinstance(func, partial):
        func = func.func
    return func if inspect.isroutine(func) else type(func).__call__


def qualified_name(func: Any) -> str:
    """Return the name of a function, as errors say it."""
    code = code_of(func)
    return getattr(code, "__qualname__", None) or repr(code)


def find_in_scope(func: Callable[..., Any], name: str) -> object:
    """Return what a name stands for in the code of a function; None if it stands for nothing there."""
    code = inspect.unwrap(code_of(func))
    return _closure(code).get(name, getattr(code, "__globals__", {}).get(name))


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
