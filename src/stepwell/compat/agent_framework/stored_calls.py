"""Where the calls of Agent Framework's handlers and functions are stored: as steps, in the log of their run.

A workflow that runs inside a handler keeps no log of its own: it is a part of the checkpoints of the run that it
works for. Its calls, and the outcomes of its handlers, are steps of the handler that it runs in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from stepwell.engine.handler.internal_context import InternalContext, find_current
from stepwell.graph.step_options import StepOptions, StoredErrors


@dataclass(frozen=True)
class StoredCalls:
    """The calls of one handler."""

    handler: InternalContext
    # The handler whose run is stored: the same one, or the one that it works for.
    context: InternalContext
    # Says where the handler is in that one; empty if it is the same.
    path: str = ""

    async def step(self, name: str, function: Callable[[], Awaitable[Any]], *, remember: StoredErrors = ()) -> Any:
        """Make a call and store its result, or return the stored one."""
        key = None
        if self.path:
            branch = self.handler.steps.branch()
            key = f"{self.path}/{branch.id}/{branch.count(name)}"
        return await self.context.step(StepOptions(name, key=key, remember=remember), function)

    def is_recorded(self, name: str) -> bool:
        """Return whether `step_at` has stored a result under this name."""
        log_key, _ = self.context.steps.assign_key(self._at(name))
        return self.context.steps.is_recorded(log_key)

    async def step_at(self, name: str, function: Callable[[], Awaitable[Any]]) -> Any:
        """Make the only call of this name, or return the stored result."""
        return await self.context.step(self._at(name), function)

    def _at(self, name: str) -> StepOptions[Any]:
        return StepOptions(name, key=f"{self.path}/{name}")

    def enter_run(self, workflow: str) -> str:
        """Return the path of a workflow that the handler runs now."""
        branch = self.handler.steps.branch()
        return f"{self.path}/{branch.id}/{workflow}:{branch.count(f'run {workflow}')}"


_CALLS: ContextVar[StoredCalls | None] = ContextVar("stepwell_compat_calls", default=None)


def find_calls() -> StoredCalls | None:
    """Return where calls made here are stored; None outside of such a handler, and if its run is not stored."""
    calls = _CALLS.get()
    # Not in a native run that a handler of Agent Framework has started.
    return calls if calls is not None and find_current() is calls.handler else None


@contextmanager
def storing(calls: StoredCalls | None) -> Iterator[None]:
    """Store the calls that are made in this block there."""
    token = _CALLS.set(calls)
    try:
        yield
    finally:
        _CALLS.reset(token)


def calls_of(handler: InternalContext, caller: StoredCalls | None = None, path: str = "") -> StoredCalls | None:
    """Return where the calls of a handler are stored; `caller` runs the workflow that it belongs to, at that path."""
    if handler.scope.archive.is_durable:
        return StoredCalls(handler, handler)
    return None if caller is None else StoredCalls(handler, caller.context, f"{path}/{handler.delivery.id}")
