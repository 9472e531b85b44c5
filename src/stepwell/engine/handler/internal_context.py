"""What agents, teams and sub-workflows use of a handler's context, beyond what users see."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from stepwell.engine.handler import branches
from stepwell.engine.handler.call_steps import HandlerSteps
from stepwell.engine.handler.drive_scope import DriveScope
from stepwell.graph.context import WorkflowContext
from stepwell.graph.graph import OutputKind
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.child import Child
from stepwell.model.message import Delivery
from stepwell.model.request import Request


class InternalContext(WorkflowContext[Any, Any]):
    """The context of one delivery, as the parts of this package see it that are executors themselves."""

    __slots__ = ()

    scope: DriveScope  # what all handler calls of the drive share
    delivery: Delivery

    @property
    @abstractmethod
    def steps(self) -> HandlerSteps:
        """The steps of this call."""

    @property
    @abstractmethod
    def at(self) -> Checkpoint:
        """The checkpoint at which the superstep started."""

    @property
    @abstractmethod
    def children(self) -> Mapping[str, Child]:
        """The sub-workflow runs that wait for responses, as of the last commit."""

    @abstractmethod
    def keep_child(self, key: str, child: Child | None) -> None:
        """Record in the outcome where a sub-workflow run was left; None if it no longer waits."""

    @abstractmethod
    def forward_request(self, request: Request) -> None:
        """Ask a request of a sub-workflow run."""

    @abstractmethod
    async def list_request(self, request: Request, *, is_open: bool) -> None:
        """List a request of a sub-workflow run that is still at work, or take it off the list.

        What is open when the call returns is asked then.
        """

    @abstractmethod
    def ask_for_child(self, request: Request) -> Awaitable[Any]:
        """Ask a request of a run that this call drives, under the same id, and return the response."""

    @abstractmethod
    async def await_or_park(self, running: Awaitable[Any]) -> Any:
        """Wait for work of this call; if that is parked, the call is left, even if the handler catches it."""

    @abstractmethod
    async def wait_until(self, due: str) -> None:
        """Wait until a time that is on record elsewhere. If it is far away and the run is stored, the call is left."""

    @abstractmethod
    def block(self, waiting: Coroutine[Any, Any, Any]) -> Any:
        """Block the thread of a plain function until a coroutine is done, or until nobody waits for the function."""

    @abstractmethod
    async def named_step(self, name: str, function: Callable[[], Awaitable[Any]], call: str | None = None) -> Any:
        """Execute a step identified by its name alone; `call` describes the call, compared when it is recalled."""

    @abstractmethod
    def yield_as(self, kind: OutputKind, output: Any) -> None:
        """Yield a value as this kind of output, whatever the graph says of this executor's outputs."""

    @abstractmethod
    def emit_update(self, data: Any) -> None:
        """Emit an `update` event. If this attempt fails, it is withdrawn."""

    @abstractmethod
    def emit_withdrawal(self, data: Any) -> None:
        """Withdraw a part of what this attempt emitted: the data says which."""

    @abstractmethod
    def state_keys(self) -> list[str]:
        """Return the keys of the state as this handler sees it."""

    @abstractmethod
    def state_length(self, key: str) -> int:
        """Return the length of a list in the state, 0 if there is none; cheaper than reading it."""

    @abstractmethod
    def keep_alive(self) -> None:
        """Record a sign of life of the handler."""


def find_current() -> InternalContext | None:
    """Return the context of the handler that calls; None outside of handlers.

    Raises RuntimeError in a task or thread that outlives its handler.
    """
    context: InternalContext | None = branches.find_context()
    return context


def internal(ctx: WorkflowContext[Any, Any]) -> InternalContext:
    """Return the internal side of a context."""
    context: InternalContext = ctx._internal
    return context
