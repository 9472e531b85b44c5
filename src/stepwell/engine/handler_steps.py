"""The steps of one handler call: where each stands, and that it is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from stepwell.engine import branches
from stepwell.engine.attempts import OnRetry
from stepwell.engine.branches import Branch, Unplaced
from stepwell.engine.drive_scope import DriveScope
from stepwell.engine.steps import Step, StepContext, do_once
from stepwell.engine.superstep_log import SuperstepLog
from stepwell.graph.retry import limits
from stepwell.model.superstep import Delivery, explicit_step_key, step_key
from stepwell.storage.step_calls import describe_call, name_of

_UNLIMITED = limits(None, None, None)


class HandlerSteps:
    """The steps of one handler call."""

    def __init__(
        self, scope: DriveScope, delivery: Delivery, log: SuperstepLog, handler: Branch, on_retry: OnRetry
    ) -> None:
        self._scope, self._delivery, self._log, self._on_retry = scope, delivery, log, on_retry
        self._handler = handler
        self._locks: dict[str, asyncio.Lock] = {}  # of steps that the handler itself tells apart

    def branch(self) -> Branch:
        """The branch of the handler that is asking; the handler itself where there is no telling."""
        return branches.find_current(self._handler) or self._handler

    def place(self, name: str, key: str | None) -> tuple[str, Branch]:
        """Where a step stands that is asked for now, and in which branch. Raises Unplaced if nobody can say."""
        if key is not None:
            digest = blake2b(key.encode(), digest_size=8).hexdigest()
            return explicit_step_key(self._delivery.id, name, digest), self._handler  # whichever branch asks
        branch = branches.find_current(self._handler)
        if branch is None or branch.is_run_by_another():
            raise Unplaced(
                f"the step {name!r} of {self._delivery.executor!r} in run {self._scope.run_id!r} is asked for in a "
                f"thread or a task that cannot be told from others when the handler runs again: start it with "
                f"asyncio.to_thread, asyncio.gather, asyncio.create_task or a task group, or state which step it is: "
                f"step(..., key=...)"
            )
        return step_key(self._delivery.id, name, branch.count(f"step {name}"), branch.id), branch

    def do(self, step: Step, key: str | None) -> Coroutine[Any, Any, Any]:
        """The result of a step, whose identity the handler states if there is a key."""
        return self._do(step) if key is None else self._do_with_key(step, key)

    async def _do(self, step: Step) -> Any:
        call = describe_call(step.function, step.args, step.kwargs, self._scope.codec)
        return await self._do_once(replace(step, call=call))

    async def _do_with_key(self, step: Step, key: str) -> Any:
        """If two branches ask for the same one, it is done once. Its arguments are not compared."""
        async with self._locks.setdefault(step.key, asyncio.Lock()):
            return await self._do_once(replace(step, call=f"{name_of(step.function)}(key={key!r})"))

    async def do_by_name(self, name: str, function: Callable[[], Awaitable[Any]], call: str | None) -> Any:
        """A step known by its name alone: however often it is asked for, it is the same one."""
        place = step_key(self._delivery.id, name, 0)
        return await self._do_once(Step(name, place, function, (), {}, _UNLIMITED, (), self.branch(), call=call))

    async def _do_once(self, step: Step) -> Any:
        scope = self._scope
        place = StepContext(
            scope.run_id,
            scope.epoch,
            self._delivery.executor,
            self._log,
            scope.pack,
            self._on_retry,
            scope.recall_changed,
        )
        if step.transaction:
            await scope.settle()  # what it writes must not be there before what led to it
        return await do_once(step, place)

    def has_result(self, name: str) -> bool:
        """Whether a `do_by_name` of that name was done before."""
        return self._log[step_key(self._delivery.id, name, 0)] is not None

    def list_names(self) -> list[str]:
        """The names of those that were done for this delivery, by attempts before this one too."""
        return self._log.keys_under(step_key(self._delivery.id, "", 0))

    def get_result(self, name: str) -> Any:
        """What a `do_by_name` gave, as a copy of the reader's own."""
        entry = self._log[step_key(self._delivery.id, name, 0)]
        return None if entry is None or entry.value is None else entry.value.open()
