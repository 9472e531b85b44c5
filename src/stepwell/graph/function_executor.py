"""Functions as executors: `FunctionExecutor` and the decorator `@executor`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, overload

from stepwell.errors import DefinitionError
from stepwell.graph.edges import name_of
from stepwell.graph.executor import Executor, HandlerTable
from stepwell.graph.handler import Declared, local_names, read_function
from stepwell.graph.retry import RetryPolicy, limits


class FunctionExecutor(Executor):
    """A function `(message)` or `(message, ctx)` as an executor, named after the function.

    An async function runs on the event loop, a plain one in a thread. A result other than None is
    sent as a message.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        id: str | None = None,
        *,
        input: Any = None,
        output: Any = None,
        workflow_output: Any = None,
        retry: RetryPolicy | None = None,
        timeout: float | timedelta | None = None,
        idle_timeout: float | timedelta | None = None,
    ) -> None:
        if isinstance(func, (staticmethod, classmethod, type)) or not callable(func):
            raise DefinitionError(f"FunctionExecutor takes a function, not {func!r}")
        name = name_of(func) if id is None else id
        super().__init__(name, retry=retry, timeout=timeout, idle_timeout=idle_timeout)
        self.func = func
        names = local_names(func, (input, output, workflow_output))
        self._handler_table = _read_table(func, Declared(input, output, workflow_output, names))


def _read_table(func: Callable[..., Any], declared: Declared) -> HandlerTable:
    """Read the signature. Problems are kept for `build()`, which reports all of a graph at once."""
    try:
        # Called like a method, by the name of the attribute that holds it
        return HandlerTable([replace(read_function(func, declared), name="func")])
    except DefinitionError as error:
        return HandlerTable([], error.problems)


@overload
def executor(func: Callable[..., Any]) -> FunctionExecutor: ...
@overload
def executor(
    func: None = None,
    *,
    id: str | None = ...,
    input: Any = ...,
    output: Any = ...,
    workflow_output: Any = ...,
    retry: RetryPolicy | None = ...,
    timeout: float | timedelta | None = ...,
    idle_timeout: float | timedelta | None = ...,
) -> Callable[[Callable[..., Any]], FunctionExecutor]: ...
def executor(
    func: Callable[..., Any] | None = None,
    *,
    id: str | None = None,
    input: Any = None,
    output: Any = None,
    workflow_output: Any = None,
    retry: RetryPolicy | None = None,
    timeout: float | timedelta | None = None,
    idle_timeout: float | timedelta | None = None,
) -> Any:
    """Make a function an executor: `@executor` or `@executor(id="upper", ...)`."""
    # checked now, so that the error is raised at the line with the mistake and not where the function is
    limits(retry, timeout, idle_timeout)

    def make(function: Callable[..., Any]) -> FunctionExecutor:
        return FunctionExecutor(
            function,
            id,
            input=input,
            output=output,
            workflow_output=workflow_output,
            retry=retry,
            timeout=timeout,
            idle_timeout=idle_timeout,
        )

    return make if func is None else make(func)
