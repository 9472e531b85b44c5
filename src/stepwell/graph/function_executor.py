"""Functions as executors: `@executor`, and the handlers of their timers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, overload

from stepwell.errors import DefinitionError
from stepwell.graph.annotations import local_names
from stepwell.graph.edges import name_of
from stepwell.graph.executor import Executor, HandlerTable
from stepwell.graph.handler import Declared, F, read_function, timers_declared
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
        declared = Declared(input, output, workflow_output, local_names(func, (input, output, workflow_output)))
        # Called like a method, by the name of the attribute that holds it
        self._handler_table = HandlerTable([replace(read_function(func, declared), name="func")])

    @overload
    def timer_handler(self, func: F, /) -> F: ...
    @overload
    def timer_handler(
        self,
        *names: str,
        output: Any = ...,
        workflow_output: Any = ...,
        retry: RetryPolicy | None = ...,
        timeout: float | timedelta | None = ...,
        idle_timeout: float | timedelta | None = ...,
    ) -> Callable[[F], F]: ...
    def timer_handler(
        self,
        *names: Any,
        output: Any = None,
        workflow_output: Any = None,
        retry: RetryPolicy | None = None,
        timeout: float | timedelta | None = None,
        idle_timeout: float | timedelta | None = None,
    ) -> Any:
        """Mark a function `(name)` or `(name, ctx)` as the handler of timers that this executor sets.

        With names, of those; without, of all that no other handler names: `@review.timer_handler("remind")`.
        Before the workflow is built. Raises DefinitionError if there is one for the same name already.
        """
        marked = names[0] if len(names) == 1 and callable(names[0]) else None
        allowed = limits(retry, timeout, idle_timeout)
        declared = timers_declared(() if marked is not None else names, output, workflow_output, allowed)
        mark = partial(self._add_timer_handler, declared)
        return mark if marked is None else mark(marked)

    def _add_timer_handler(self, declared: Declared, func: F) -> F:
        if not callable(func):
            raise DefinitionError(f"@timer_handler marks a function, not {func!r}")
        attribute = f"timer_func_{len(self._handler_table.timer_specs)}"
        scope = local_names(func, (declared.output, declared.workflow_output))
        spec = replace(read_function(func, replace(declared, names=scope)), name=attribute)
        table = HandlerTable([*self._handler_table.every_spec(), spec])
        if table.problems:
            raise DefinitionError(f"{self.id!r}: {'; '.join(table.problems)}")
        vars(self).update({attribute: func, "_handler_table": table})
        return func


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
    make = partial(
        FunctionExecutor,
        id=id,
        input=input,
        output=output,
        workflow_output=workflow_output,
        retry=retry,
        timeout=timeout,
        idle_timeout=idle_timeout,
    )
    return make if func is None else make(func)
