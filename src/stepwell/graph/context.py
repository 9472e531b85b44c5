"""What a handler may do to the world. Declared here, where handlers need its type; done in `engine`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, Never

from stepwell.graph.retry import RetryPolicy
from stepwell.model.event import WorkflowEvent

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    OutT = TypeVar("OutT", contravariant=True, default=Never)
    WorkflowOutT = TypeVar("WorkflowOutT", contravariant=True, default=Never)
else:
    # At run time the parameters are only read from annotations; `WorkflowContext[int]` must be as
    # good as `WorkflowContext[int, str]`, which `typing` learnt only in Python 3.13.
    from typing import TypeVar

    OutT = TypeVar("OutT")
    WorkflowOutT = TypeVar("WorkflowOutT")


class _NoDefault:
    def __repr__(self) -> str:
        return "<no default>"


NO_DEFAULT: Any = _NoDefault()


class WorkflowContext(ABC, Generic[OutT, WorkflowOutT]):
    """The handler's hands: `WorkflowContext[Out, WorkflowOut]` says what it sends and what it yields.

    Everything done through it is staged and happens all at once, when the superstep commits. The
    methods that return an awaitable take effect when they are called: a plain function that runs in a
    thread calls them without `await`.
    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, params):
            return GenericAlias(cls, params)

    @property
    @abstractmethod
    def run_id(self) -> str:
        """The run this call belongs to."""

    @property
    @abstractmethod
    def executor_id(self) -> str:
        """The executor that is being called."""

    @property
    @abstractmethod
    def idempotency_key(self) -> str:
        """The same for every attempt at this delivery, and for no other delivery anywhere."""

    @property
    @abstractmethod
    def source_executor_ids(self) -> list[str]:
        """Who sent the message: several for a fan-in, none if it came from outside."""

    @abstractmethod
    def get_source_executor_id(self) -> str | None:
        """Who sent the message; None if it came from outside. Raises RuntimeError if there are several."""

    @abstractmethod
    def send_message(self, message: OutT, target_id: str | None = None) -> Awaitable[None]:
        """Send along the outgoing edges, or only along the one to `target_id`; delivered in the next superstep.

        Raises CodecError, naming the place in the value, if the run is stored and the value cannot be.
        """

    @abstractmethod
    def yield_output(self, output: WorkflowOutT) -> Awaitable[None]:
        """Yield an output of the workflow; told when the superstep commits."""

    @property
    @abstractmethod
    def request_id(self) -> str | None:
        """Inside a response handler: the request that was answered."""

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
        """Ask somebody outside; gives the id of the request. The handler goes on and returns.

        The answer goes to the `@response_handler` for this kind of question and answer. If the deadline
        passes first, it gets the default; without a default the run fails with RequestExpired. Raises
        DefinitionError if no response handler could take the answer.
        """

    @abstractmethod
    def sleep(self, duration: float | timedelta) -> Awaitable[None]:
        """Wait so long (seconds, or a timedelta), also across restarts: only what is left of it is waited for.

        If that is more than a minute and the run is stored, the run is put aside and holds nothing: the
        handler is left here and called again from its beginning when the time has come; a wait that is over is
        passed at once then. In a plain function it blocks the function's thread.
        """

    @abstractmethod
    def sleep_until(self, moment: datetime) -> Awaitable[None]:
        """`sleep` until a moment, which must have a time zone."""

    @abstractmethod
    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        retry: RetryPolicy | None = None,
        timeout: float | timedelta | None = None,
        remember: type[Exception] | tuple[type[Exception], ...] = (),
        transaction: bool = False,
        key: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call a function once: `result = await ctx.step("charge card", charge, order)`.

        The result is remembered before this returns. If the handler is called again, after a crash, a failure or
        a sleep, the function is not: its result is recalled by the place of the step: the branch that asks for it
        (tasks of a handler are branches, in the order in which they were created), its name, and how many steps of
        that name the branch asked for before. If the stored result came of another function or of other arguments,
        StepChanged is raised. `key` states the identity of a step instead: in this handler call, name and key make
        the place, and arguments are not compared. An async function runs on the event loop, a plain one
        in a thread. A function with a parameter `idempotency_key` gets one that is the same for every attempt.

        An error is raised, and the function called again with the handler; errors of the classes in `remember` are
        remembered and raised again instead. In a plain handler this waits and gives the result itself.

        With `transaction=True`, on a storage in PostgreSQL, a plain function is called with a `psycopg.Connection` to
        that database as its first argument: what it writes is committed together with its result, or not at all.
        """

    @abstractmethod
    def add_event(self, event: WorkflowEvent) -> Awaitable[None]:
        """Tell those who watch right now; it is not stored and not told again.

        Raises ValueError for the types that only the engine may tell.
        """

    @abstractmethod
    def get_state(self, key: str, default: Any = None) -> Any:
        """A copy of the value as of the last commit, or as this executor wrote it since."""

    @abstractmethod
    def set_state(self, key: str, value: Any) -> None:
        """Write a value. Two executors writing one key in one superstep is an error unless a reducer joins them."""

    @abstractmethod
    def delete_state(self, key: str) -> None:
        """Remove a value. Raises KeyError if it is not there."""

    @abstractmethod
    def append_state(self, key: str, *items: Any) -> None:
        """Append to a list, begun if it is not there; costs what is appended. Several executors may."""

    @property
    @abstractmethod
    def private(self) -> Mapping[str, Any]:
        """What `run(private={...})` was given. Never written; reading what is not there raises PrivateMissing."""

    @abstractmethod
    def is_streaming(self) -> bool:
        """True if somebody watches the events of this run as they happen."""

    @abstractmethod
    def get_sent_messages(self) -> list[Any]:
        """What this call has sent so far."""

    @abstractmethod
    def get_yielded_outputs(self) -> list[Any]:
        """What this call has yielded so far."""
