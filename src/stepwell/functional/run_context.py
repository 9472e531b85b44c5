"""What a durable function uses to act: steps, sleeps, questions to people, other workflows."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Generator, Mapping
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar, overload

from stepwell.engine.handler.internal_context import InternalContext, find_current
from stepwell.functional.child_run import run_child
from stepwell.graph.context import NO_DEFAULT, StepName
from stepwell.model.event import WorkflowEvent
from stepwell.workflows.result import OutputT
from stepwell.workflows.workflow import Workflow

P = ParamSpec("P")
R = TypeVar("R")


class RunContext:
    """What a durable function uses to act. It gets one if it has a parameter `ctx: RunContext`.

    A function is called again from its beginning after a crash, a failure or a long wait. What it did through
    its context is not repeated: steps return their stored results, waits that are over return at once.
    """

    __slots__ = ("_context",)

    def __init__(self, context: InternalContext) -> None:
        self._context = context

    @property
    def _internal(self) -> InternalContext:
        return self._context

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._context.run_id

    @property
    def idempotency_key(self) -> str:
        """A key that every call of this function in this run shares, and no other run has."""
        return self._context.idempotency_key

    @overload
    def step(
        self, name: StepName, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[R]: ...
    @overload
    def step(self, name: StepName, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]: ...
    def step(self, name: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function once: `await ctx.step("charge", charge, order)`. See `WorkflowContext.step`."""
        return self._context.step(name, function, *args, **kwargs)

    @overload
    def step_sync(
        self, name: StepName, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    def step_sync(self, name: StepName, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def step_sync(self, name: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function once, like `step`, from a durable function that is not async: blocks its thread."""
        return self._context.step_sync(name, function, *args, **kwargs)

    @overload
    def ask(
        self,
        question: object,
        response_type: type[R],
        *,
        request_id: str | None = ...,
        deadline: datetime | timedelta | None = ...,
        default: R = ...,
    ) -> Awaitable[R]: ...
    @overload
    def ask(
        self,
        question: object,
        response_type: Any,
        *,
        request_id: str | None = ...,
        deadline: datetime | timedelta | None = ...,
        default: Any = ...,
    ) -> Awaitable[Any]: ...
    def ask(
        self,
        question: object,
        response_type: Any,
        *,
        request_id: str | None = None,
        deadline: datetime | timedelta | None = None,
        default: Any = NO_DEFAULT,
    ) -> Any:
        """Ask somebody outside the run, and wait for the response: `decision = await ctx.ask(draft, Decision)`.

        If nothing else is to be done, the run waits and uses no memory. If the deadline passes first,
        the default is returned; without a default RequestExpired is raised.
        """
        return self._context.ask(question, response_type, request_id=request_id, deadline=deadline, default=default)

    @overload
    def ask_sync(
        self,
        question: object,
        response_type: type[R],
        *,
        request_id: str | None = ...,
        deadline: datetime | timedelta | None = ...,
        default: R = ...,
    ) -> R: ...
    @overload
    def ask_sync(
        self,
        question: object,
        response_type: Any,
        *,
        request_id: str | None = ...,
        deadline: datetime | timedelta | None = ...,
        default: Any = ...,
    ) -> Any: ...
    def ask_sync(
        self,
        question: object,
        response_type: Any,
        *,
        request_id: str | None = None,
        deadline: datetime | timedelta | None = None,
        default: Any = NO_DEFAULT,
    ) -> Any:
        """Ask like `ask`, from a durable function that is not async: blocks its thread."""
        return self._context.ask_sync(
            question, response_type, request_id=request_id, deadline=deadline, default=default
        )

    def request_info(
        self, request_data: object, response_type: Any, *, request_id: str | None = None
    ) -> Awaitable[Any]:
        """Ask like `ask`, under the name that Agent Framework has for it."""
        answer: Awaitable[Any] = self.ask(request_data, response_type, request_id=request_id)
        return answer

    def sleep(self, duration: float | timedelta) -> Awaitable[None]:
        """Wait for a duration in seconds, or a timedelta. A restart does not begin the wait again.

        If more than a minute is left and the run is stored, the run is parked and uses no memory.
        """
        return self._context.sleep(duration)

    def sleep_until(self, moment: datetime) -> Awaitable[None]:
        """Wait like `sleep` until a moment, which must have a time zone."""
        return self._context.sleep_until(moment)

    def run(self, workflow: Workflow[OutputT], message: Any = None) -> Awaitable[list[OutputT]]:
        """Run another workflow, a graph or a durable function, and return its outputs.

        It is a run of its own, stored where this one is, and a step of this one.
        """
        if threading.get_ident() != self._context.scope.thread:
            raise RuntimeError(
                f"{workflow!r} was called in a thread, by a plain function of run {self.run_id!r}: use ctx.run_sync "
                f"there, or `.sync(...)` of a durable function"
            )
        return run_child(self._context, workflow, message)

    def run_sync(self, workflow: Workflow[OutputT], message: Any = None) -> list[OutputT]:
        """Run another workflow like `run`, from a durable function that is not async: blocks its thread."""
        if threading.get_ident() == self._context.scope.thread:
            raise RuntimeError(
                "ctx.run_sync was called on the event loop, which it would block: write `await ctx.run(...)`"
            )
        with self._context.steps.branch().block():
            outputs: list[OutputT] = self._context.block(run_child(self._context, workflow, message))
        return outputs

    def patched(self, name: str) -> PatchDecision:
        """Return whether this run takes the new path of a changed function: `if await ctx.patched("limits"):`.

        False in runs that were past this point when the function was changed, so that they find the steps they
        have recorded; True in all others. The decision is stored. In a function that is not async, `await` is left out.
        """
        return PatchDecision(self._context, name)

    def add_event(self, event: WorkflowEvent) -> Awaitable[None]:
        """Emit a live event to those who are watching now; it is neither stored nor replayed."""
        return self._context.add_event(event)

    def get_state(self, key: str, default: Any = None) -> Any:
        """Return a copy of a value of the run's state."""
        return self._context.get_state(key, default)

    def set_state(self, key: str, value: Any) -> None:
        """Set a value of the run's state; stored when the function returns."""
        self._context.set_state(key, value)

    def set_tag(self, name: str, value: str | None) -> None:
        """Set a tag of this run, by which it is listed and searched, when the function returns; None removes it."""
        self._context.set_tag(name, value)

    @property
    def private(self) -> Mapping[str, Any]:
        """The values of `run(private={...})`, which are never stored. A missing one raises PrivateMissing."""
        return self._context.private

    def is_streaming(self) -> bool:
        """Return whether somebody is watching the events of this run as they happen."""
        return self._context.is_streaming()

    def __repr__(self) -> str:
        return f"<RunContext of run {self.run_id!r}>"


class PatchDecision:
    """Which path a changed function takes, to be awaited; in a function that is not async, a condition itself."""

    def __init__(self, context: InternalContext, name: str) -> None:
        self._context, self._name = context, name

    def __await__(self) -> Generator[Any, None, bool]:
        return self._context.steps.decide_patch(self._name).__await__()

    def __bool__(self) -> bool:
        if threading.get_ident() == self._context.scope.thread:
            raise TypeError(f"ctx.patched({self._name!r}) is not awaited: write `await ctx.patched({self._name!r})`")
        return bool(self._context.block(self._context.steps.decide_patch(self._name)))


def get_run_context() -> RunContext | None:
    """Return the context of the durable function or handler that calls; None outside of runs.

    Raises RuntimeError in a task or thread that outlives its function.
    """
    context = find_current()
    return None if context is None else RunContext(context)
