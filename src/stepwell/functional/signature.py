"""Reads the signature of a durable function: its input, its context and its result."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from stepwell.errors import DefinitionError
from stepwell.functional.run_context import RunContext
from stepwell.graph.annotations import AnnotationReader, local_names
from stepwell.graph.edges import name_of

_ONE_BY_ONE = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature(msgspec.Struct, frozen=True):
    """What a durable function takes and returns."""

    # the name of the parameter, or None if the function has no such parameter
    message: str | None
    context: str | None
    input: tuple[object, ...]
    output: tuple[object, ...]
    is_async: bool


def read_signature(function: Callable[..., Any]) -> Signature:
    """Return the signature of a function `(message, ctx)`, of which either may be missing. Raises DefinitionError."""
    name = check_function(function, "@workflow")
    reader = AnnotationReader(function, name, local_names(function, ()))
    parameters = inspect.signature(function).parameters.values()
    context = find_context_parameter(function, reader)
    others = [p for p in parameters if p.name != context]
    if len(others) > 1 or any(p.kind not in _ONE_BY_ONE for p in parameters):
        raise DefinitionError(
            f"the durable function {name!r} takes at most one input and a RunContext, not "
            f"({', '.join(str(p) for p in parameters)}); put several inputs into one dataclass"
        )
    message = others[0].name if others else None
    taken = reader.annotation(message) if message is not None else (type(None),)
    if taken is None:
        raise DefinitionError(f"the durable function {name!r} does not declare what it takes: annotate {message!r}")
    returned = reader.annotation("return") or ()
    return Signature(
        message=message,
        context=context,
        input=taken,
        output=tuple(member for member in returned if member is not type(None)),
        is_async=inspect.iscoroutinefunction(function),
    )


def check_function(function: Any, decorator: str) -> str:
    """Return the name of a function. Raises DefinitionError for anything else, and for generators."""
    if not inspect.isfunction(function):
        raise DefinitionError(f"{decorator} marks a function, not {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(
            f"{decorator} marks a function that returns its result; {name_of(function)!r} is a generator: "
            f"return a list instead of `yield`"
        )
    return function.__qualname__


def find_context_parameter(function: Callable[..., Any], reader: AnnotationReader) -> str | None:
    """Return the parameter that is annotated as a RunContext, or called `ctx`; None if there is none."""
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = parameter.annotation
        # Only what looks like ours is resolved: other annotations may name what exists for type checkers alone.
        if "RunContext" in str(annotation) and reader.annotation(name) == (RunContext,):
            return name
        if name == "ctx" and annotation is inspect.Parameter.empty:
            return name
    return None
