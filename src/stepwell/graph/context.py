"""The interface through which a handler acts. Declared here, where handlers need its type; implemented
in `engine`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, Never, ParamSpec, TypeAlias, overload
from typing import TypeVar as PlainTypeVar

from stepwell.graph.step_options import StepOptions
from stepwell.model.event import WorkflowEvent

if TYPE_CHECKING:
    from psycopg import Connection
    from typing_extensions import TypeVar

    OutT = TypeVar("OutT", contravariant=True, default=Never)
    WorkflowOutT = TypeVar("WorkflowOutT", contravariant=True, default=Never)
else:
    # At run time the parameters are only read from annotations. `WorkflowContext[int]` must be as
    # valid as `WorkflowContext[int, str]`, but `typing` has defaults only since Python 3.13.
    from typing import TypeVar

    OutT = TypeVar("OutT")
    WorkflowOutT = TypeVar("WorkflowOutT")


P = ParamSpec("P")
R = PlainTypeVar("R")
StepName: TypeAlias = str | StepOptions[Literal[False]]
TransactionName: TypeAlias = StepOptions[Literal[True]]


class _NoDefault:
    def __repr__(self) -> str:
        return "<no default>"


NO_DEFAULT: Any = _NoDefault()
"""Marks a request without a default, because None may be one."""


class WorkflowContext(ABC, Generic[OutT, WorkflowOutT]):
    """What a handler uses to act. `WorkflowContext[Out, WorkflowOut]` declares what it sends and yields.

    Messages, outputs, requests and state writes are staged, and take effect together when the superstep
    commits. `send_message`, `yield_output`, `request_info` and `add_event` act when they are called, so
    a plain function that runs in a thread calls them without `await`.
    """

    # `Generic` would insist on exactly two parameters; an alias takes one as well
    if not TYPE_CHECKING:

        def __class_getitem__(cls, params):
            return GenericAlias(cls, params)

    @property
    def _internal(self) -> Any:
        """The side of the context that the engine's own executors use."""
        raise TypeError(f"{type(self).__name__} was not made by the engine: agents and sub-workflows cannot use it")

    @property
    @abstractmethod
    def run_id(self) -> str:
        """The id of the run."""

    @property
    @abstractmethod
    def root_run_id(self) -> str:
        """The id of the outermost run: inside a sub-workflow, that of the run which people started."""

    @property
    @abstractmethod
    def executor_id(self) -> str:
        """The id of the executor whose handler is being called."""

    @property
    @abstractmethod
    def idempotency_key(self) -> str:
        """A key that every attempt at this delivery shares, and no other delivery of any run."""

    @property
    @abstractmethod
    def source_executor_ids(self) -> list[str]:
        """The executors that sent the message: several for a fan-in, none if it came from outside."""

    @abstractmethod
    def get_source_executor_id(self) -> str | None:
        """Return the executor that sent the message; None if it came from outside.

        Raises RuntimeError if there are several.
        """

    @abstractmethod
    def send_message(self, message: OutT, target_id: str | None = None) -> Awaitable[None]:
        """Send a message along the outgoing edges, or only along the one to `target_id`.

        It is delivered in the next superstep. Raises CodecError, with the path in the value, if the run
        is stored and the value cannot be.
        """

    @abstractmethod
    def yield_output(self, output: WorkflowOutT) -> Awaitable[None]:
        """Yield an output of the workflow, which is emitted when the superstep commits."""

    @property
    @abstractmethod
    def request_id(self) -> str | None:
        """Inside a response handler: the id of the request; None elsewhere."""

    @abstractmethod
    def request_info(
        self,
        request_data: object,
        response_type: Any,
        *,
        request_id: str | None = None,
        deadline: datetime | timedelta | None = None,
        default: Any = NO_DEFAULT,
    ) -> Awaitable[str]:
        """Make a request to somebody outside the run, and return its id. The handler continues at once.

        The response goes to the `@response_handler` for these types of request and response. If the
        deadline passes first, that handler gets the default; without a default the run fails with
        RequestExpired. Raises DefinitionError if no response handler could take the response.
        """

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
    @abstractmethod
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

        While other handlers of the superstep work, the handler waits here. If nothing else is to be
        done, the run waits and uses no memory: the handler ends here, and is called again from its
        beginning when there is a response. Steps, sleeps and questions before this one return at once
        then; other code before it is executed again. A question is identified by the branch that asks
        and how many it asked before. If the deadline passes first, the default is returned; without a
        default RequestExpired is raised. A plain function that is a handler calls `ask_sync`.
        """

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
    @abstractmethod
    def ask_sync(
        self,
        question: object,
        response_type: Any,
        *,
        request_id: str | None = None,
        deadline: datetime | timedelta | None = None,
        default: Any = NO_DEFAULT,
    ) -> Any:
        """Ask like `ask`, from a handler that is a plain function: blocks its thread."""

    @abstractmethod
    def withdraw(self, request_id: str) -> None:
        """Take an open request of this run back, at the commit: it is not listed and cannot be answered any more.

        A run that has nothing else open is then completed. Raises UnknownRequest if it is not open, and
        RequestError if a handler waits for it.
        """

    @abstractmethod
    def sleep(self, duration: float | timedelta) -> Awaitable[None]:
        """Wait for a duration in seconds, or a timedelta. A restart does not begin the wait again.

        If more than a minute is left and the run is stored, the run is parked and uses no memory: the
        handler ends here, and is called again from its beginning when the time has come. Waits that
        are over then return at once. In a plain function this blocks the function's thread.
        """

    @abstractmethod
    def sleep_until(self, moment: datetime) -> Awaitable[None]:
        """Wait like `sleep` until a moment, which must have a time zone."""

    @abstractmethod
    def set_timer(self, name: str, delay: float | timedelta) -> None:
        """Set a timer of this executor: after the delay, in seconds or as a timedelta, its `@timer_handler` is called.

        It is set when the superstep commits and counts from this call. The run does not wait for it: it
        goes on, rests or is answered meanwhile. If the executor has a timer of that name, this one replaces
        it. Timers of a run that fails or is cancelled are suspended until it is resumed. Raises
        DefinitionError if no timer handler of the executor accepts the name.
        """

    @abstractmethod
    def cancel_timer(self, name: str) -> None:
        """Cancel a timer of this executor, at the commit; nothing happens if it is not set, or was due before."""

    @overload
    def step(
        self, name: StepName, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[R]: ...
    @overload
    def step(self, name: StepName, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]: ...
    @overload
    def step(
        self,
        name: TransactionName,
        function: Callable[Concatenate[Connection[Any], P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Awaitable[R]: ...
    @abstractmethod
    def step(self, name: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function once: `result = await ctx.step("charge card", charge, order)`.

        The result is stored before this returns. If the handler is called again, after a crash, a
        failure or a sleep, the function is not: the stored result is returned. It is found by the branch
        that calls the step (the tasks of a handler are branches, in the order of their creation), the
        name, and the number of steps of that name the branch made before. If the stored result belongs
        to another function or other arguments, StepChanged is raised.

        An async function runs on the event loop, a plain one in a thread. A function with a parameter
        `idempotency_key` gets one that is the same for every attempt. An error is raised, and the
        function is called again when the handler is. `StepOptions` instead of the name sets retries, a
        time limit, a key, errors to store, or a transaction; all keywords are those of the function.
        A plain function that is a handler calls `step_sync`.
        """

    @overload
    def step_sync(
        self, name: StepName, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    def step_sync(self, name: StepName, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def step_sync(
        self,
        name: TransactionName,
        function: Callable[Concatenate[Connection[Any], P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @abstractmethod
    def step_sync(self, name: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function once, like `step`, from a handler that is a plain function: blocks its thread."""

    @abstractmethod
    def add_event(self, event: WorkflowEvent) -> Awaitable[None]:
        """Emit a live event to those who are watching now; it is neither stored nor replayed.

        Raises ValueError for the types that only the engine may emit.
        """

    @abstractmethod
    def get_state(self, key: str, default: Any = None) -> Any:
        """Return a copy of the value as of the last commit, or as this executor wrote it since."""

    @abstractmethod
    def set_tag(self, name: str, value: str | None) -> None:
        """Set a tag of this run, by which it is listed and searched; None removes it.

        It changes with the commit of the superstep. If two handlers set one tag in one superstep, the one
        whose delivery was planned later wins.
        """

    @abstractmethod
    def set_state(self, key: str, value: Any) -> None:
        """Set a value. If two executors set one key in one superstep, a reducer combines them, or the run fails."""

    @abstractmethod
    def delete_state(self, key: str) -> None:
        """Remove a value. Raises KeyError if it does not exist."""

    @abstractmethod
    def append_state(self, key: str, *items: Any) -> None:
        """Append to a list, creating it if necessary. Several executors may append to one list.

        The cost is that of the items, whatever the length of the list.
        """

    @property
    @abstractmethod
    def private(self) -> Mapping[str, Any]:
        """The values of `run(private={...})`, which are never stored. A missing one raises PrivateMissing."""

    @abstractmethod
    def is_streaming(self) -> bool:
        """Return whether somebody is watching the events of this run as they happen."""

    @abstractmethod
    def get_sent_messages(self) -> list[Any]:
        """Return the messages that this call has sent so far."""

    @abstractmethod
    def get_yielded_outputs(self) -> list[Any]:
        """Return the outputs that this call has yielded so far."""
