"""`@workflow`: a function as a workflow.

Such a workflow has one executor, whose handler is the function. So a durable function has everything that a graph
has: storages, handles, requests, events, the command line.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, Concatenate, Generic, Protocol, TypeVar, overload

from stepwell.engine.handler.call_steps import HandlerSteps
from stepwell.engine.handler.internal_context import InternalContext, find_current
from stepwell.functional.run_context import RunContext
from stepwell.functional.signature import Signature, read_signature
from stepwell.graph.executor import Executor, HandlerTable
from stepwell.graph.graph import Graph
from stepwell.graph.handler import HandlerSpec
from stepwell.graph.retry import Limits, RetryPolicy, limits
from stepwell.model.event import WorkflowRunState
from stepwell.model.status_words import status_word
from stepwell.workflows.executor_specs import freeze, spec_of
from stepwell.workflows.storage_options import StorageLike, storage_of
from stepwell.workflows.workflow import Workflow

InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")
Function = Callable[Concatenate[InputT, ...], ResultT]
WithoutInput = Callable[[], ResultT] | Callable[[RunContext], ResultT]


class DurableFunctionExecutor(Executor):
    """The executor whose handler is a durable function. What the function returns is the output of the run."""

    _is_durable_function = True

    def __init__(self, function: Callable[..., Any], signature: Signature, id: str, limits: Limits) -> None:
        super().__init__(id)
        self._executor_limits = limits
        self._function, self._signature = function, signature
        spec = HandlerSpec(
            "call" if signature.is_async else "call_in_thread",
            input=signature.input,
            output=(),
            workflow_output=signature.output,
            takes_context=True,
            is_async=signature.is_async,
        )
        self._handler_table = HandlerTable([spec])

    async def call(self, message: Any, ctx: InternalContext) -> None:
        """Call an async function."""
        # Made before the function starts: they see which tasks it starts.
        steps = ctx.steps
        self._finish(await self._function(**self._arguments(message, ctx)), ctx, steps)

    def call_in_thread(self, message: Any, ctx: InternalContext) -> None:
        """Call a plain function, in a thread."""
        steps = ctx.steps
        self._finish(self._function(**self._arguments(message, ctx)), ctx, steps)

    def _functions(self) -> list[Callable[..., Any]]:
        return [self._function]

    def _arguments(self, message: Any, ctx: InternalContext) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        if self._signature.message is not None:
            arguments[self._signature.message] = message
        if self._signature.context is not None:
            arguments[self._signature.context] = RunContext(ctx)
        return arguments

    def _finish(self, result: Any, ctx: InternalContext, steps: HandlerSteps) -> None:
        steps.check_replay()
        if result is not None:
            ctx.yield_output(result)


class DurableFunction(Workflow[ResultT], Generic[InputT, ResultT]):
    """A function as a workflow. Its runs are those of any workflow: `run`, `start`, `attach`, `as_agent`.

    Calling it, `await refund(order)`, returns what the function returns. Inside another durable function that is
    a run of its own, which a repetition finds again.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        declared: Signature,
        *,
        name: str,
        description: str | None,
        limits: Limits,
        checkpoint_storage: StorageLike | None,
    ) -> None:
        self.function, self._declared, self._limits = function, declared, limits
        spec = freeze(spec_of(DurableFunctionExecutor(function, declared, name, limits)))
        super().__init__(
            Graph(name, {name: spec.pattern.clone()}, (), None, {}, "fail"),
            {name: spec},
            name=name,
            description=description,
            max_iterations=1,
            checkpoint_storage=storage_of(checkpoint_storage),
        )
        functools.update_wrapper(self, function, updated=())

    def build(self, *, checkpoint_storage: StorageLike | None = None) -> DurableFunction[InputT, ResultT]:
        """Return the same function as a workflow that commits its runs to this storage, by default its own."""
        return DurableFunction(
            self.function,
            self._declared,
            name=self.name,
            description=self.description,
            limits=self._limits,
            checkpoint_storage=self._storage if checkpoint_storage is None else checkpoint_storage,
        )

    def __call__(self, message: InputT = None) -> Coroutine[Any, Any, ResultT]:  # type: ignore[assignment]
        """Run the function and return its result.

        Raises RuntimeError if the run stops to wait, for a person or for more than a minute: `run` and `start` have
        the means to continue it.
        """
        ctx = find_current()
        return self._run_alone(message) if ctx is None else self._await_result(RunContext(ctx).run(self, message))

    def sync(self, message: InputT = None) -> ResultT:  # type: ignore[assignment]
        """Run the function from a durable function that is not async: blocks its thread until there is a result."""
        ctx = find_current()
        if ctx is None:
            return asyncio.run(self._run_alone(message))
        return _last(RunContext(ctx).run_sync(self, message))  # type: ignore[no-any-return]

    async def _await_result(self, outputs: Awaitable[list[ResultT]]) -> ResultT:
        return _last(await outputs)  # type: ignore[no-any-return]

    async def _run_alone(self, message: InputT) -> ResultT:
        events = await self.run(message)
        state = events.get_final_state()
        if state is not WorkflowRunState.IDLE:
            raise RuntimeError(
                f"run {events.run_id!r} of {self.name!r} has no result yet: it is {status_word(state)}. Start a "
                f"function that waits with `run` or `start`, on a storage"
            )
        return _last(events.get_outputs())  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<durable function {self.name!r}>"


def _last(outputs: list[Any]) -> Any:
    # A function that returns None has no output.
    return outputs[-1] if outputs else None


class WorkflowDecorator(Protocol):
    """What `@workflow(...)` returns."""

    @overload
    def __call__(self, function: WithoutInput[Coroutine[Any, Any, ResultT]], /) -> DurableFunction[None, ResultT]: ...
    @overload
    def __call__(self, function: WithoutInput[ResultT], /) -> DurableFunction[None, ResultT]: ...
    @overload
    def __call__(
        self, function: Function[InputT, Coroutine[Any, Any, ResultT]], /
    ) -> DurableFunction[InputT, ResultT]: ...
    @overload
    def __call__(self, function: Function[InputT, ResultT], /) -> DurableFunction[InputT, ResultT]: ...


@overload
def workflow(function: WithoutInput[Coroutine[Any, Any, ResultT]], /) -> DurableFunction[None, ResultT]: ...
@overload
def workflow(function: WithoutInput[ResultT], /) -> DurableFunction[None, ResultT]: ...
@overload
def workflow(function: Function[InputT, Coroutine[Any, Any, ResultT]], /) -> DurableFunction[InputT, ResultT]: ...
@overload
def workflow(function: Function[InputT, ResultT], /) -> DurableFunction[InputT, ResultT]: ...
@overload
def workflow(
    *,
    name: str | None = ...,
    description: str | None = ...,
    retry: RetryPolicy | None = ...,
    timeout: float | timedelta | None = ...,
    checkpoint_storage: StorageLike | None = ...,
) -> WorkflowDecorator: ...
def workflow(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    retry: RetryPolicy | None = None,
    timeout: float | timedelta | None = None,
    checkpoint_storage: StorageLike | None = None,
) -> Any:
    """Make a function a workflow: `@workflow` or `@workflow(name="refund", retry=..., timeout=60)`.

    The function takes at most one input, annotated with its type, and a context (`ctx: RunContext`), in any order.
    What it returns is the output of the run, unless it is None. It is called again from its beginning after a
    crash, a failure or a long wait; what it did in steps is not repeated. A plain function runs in a thread.

    `name` is the name of the workflow in the store, by default that of the function. `retry` says when a failed call
    is repeated, `timeout` how long one may take, without the time it sleeps. Raises DefinitionError for a function
    that cannot be one, such as a generator.
    """
    # Checked now, so that the error is raised at the line with the mistake.
    allowed = limits(retry, timeout, None)

    def make(function: Any) -> Any:
        return DurableFunction(
            function,
            read_signature(function),
            name=name or function.__name__,
            description=description or inspect.getdoc(function),
            limits=allowed,
            checkpoint_storage=checkpoint_storage,
        )

    return make if function is None else make(function)
