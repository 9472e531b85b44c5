"""The steps of one handler call: gives each its key, and executes it once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from stepwell.engine import branches
from stepwell.engine.attempts import OnRetry
from stepwell.engine.branches import Branch, UnidentifiedBranch
from stepwell.engine.drive_scope import DriveScope
from stepwell.engine.steps import Step, StepContext, do_once
from stepwell.engine.superstep_log import SuperstepLog
from stepwell.graph.retry import limits
from stepwell.model.log_keys import explicit_step_key, step_key
from stepwell.model.message import Delivery
from stepwell.storage.cancellation_shield import finish
from stepwell.storage.step_calls import describe_call, name_of

_UNLIMITED = limits(None, None, None)


class HandlerSteps:
    """The steps of one handler call."""

    def __init__(
        self, scope: DriveScope, delivery: Delivery, log: SuperstepLog, handler: Branch, on_retry: OnRetry
    ) -> None:
        self._scope, self._delivery, self._log, self._on_retry = scope, delivery, log, on_retry
        self._handler = handler
        # For steps with a key: two branches may ask for the same one at once.
        self._locks: dict[str, asyncio.Lock] = {}

    def branch(self) -> Branch:
        """Return the branch that calls; the handler itself if it cannot be identified."""
        return branches.find_current(self._handler) or self._handler

    def assign_key(self, name: str, key: str | None) -> tuple[str, Branch]:
        """Return the key and the branch of a step that is called now. Raises UnidentifiedBranch if there is none."""
        if key is not None:
            digest = blake2b(key.encode(), digest_size=8).hexdigest()
            # No branch in the key: the caller guarantees that it identifies the step wherever it is called.
            return explicit_step_key(self._delivery.id, name, digest), self._handler
        branch = branches.find_current(self._handler)
        if branch is None or branch.is_run_by_another():
            raise UnidentifiedBranch(
                f"step {name!r} of {self._delivery.executor!r} in run {self._scope.run_id!r} is called in a thread or "
                f"task that cannot be identified when the handler runs again: start it with asyncio.to_thread, "
                f"asyncio.gather, asyncio.create_task or a task group, or identify the step: step(..., key=...)"
            )
        return step_key(self._delivery.id, name, branch.count(f"step {name}"), branch.id), branch

    def do(self, step: Step, key: str | None) -> Coroutine[Any, Any, Any]:
        """Return a coroutine for the result of a step, identified by its key if there is one."""
        return self._do(step) if key is None else self._do_with_key(step, key)

    async def _do(self, step: Step) -> Any:
        call = describe_call(step.function, step.args, step.kwargs, self._scope.codec)
        return await self._do_once(replace(step, call=call))

    async def _do_with_key(self, step: Step, key: str) -> Any:
        """Execute a step once, even if two branches call it with the same key. Its arguments are not compared."""
        async with self._locks.setdefault(step.key, asyncio.Lock()):
            return await self._do_once(replace(step, call=f"{name_of(step.function)}(key={key!r})"))

    async def do_by_name(self, name: str, function: Callable[[], Awaitable[Any]], call: str | None) -> Any:
        """Execute a step identified by its name alone: every call of that name is the same step."""
        log_key = step_key(self._delivery.id, name, 0)
        branch = self.branch()
        step = Step(
            name, log_key, function, args=(), kwargs={}, limits=_UNLIMITED, remember=(), branch=branch, call=call
        )
        return await self._do_once(step)

    async def _do_once(self, step: Step) -> Any:
        scope = self._scope
        context = StepContext(
            scope.run_id,
            scope.epoch,
            executor=self._delivery.executor,
            log=self._log,
            pack=scope.pack,
            on_retry=self._on_retry,
            recall_changed=scope.options.recall_changed,
        )
        if step.transaction:
            # What the step writes must not be durable before the commits that led to it.
            await finish(scope.archive.flush())
        return await do_once(step, context)

    def has_result(self, name: str) -> bool:
        """Return whether a `do_by_name` of that name has a stored result."""
        return self._log[step_key(self._delivery.id, name, 0)] is not None

    def list_names(self) -> list[str]:
        """Return the names of the steps done for this delivery, in earlier attempts too."""
        return self._log.keys_under(step_key(self._delivery.id, "", 0))

    def get_result(self, name: str) -> Any:
        """Return the result of a `do_by_name`, as a fresh copy; None if there is none."""
        entry = self._log[step_key(self._delivery.id, name, 0)]
        return None if entry is None or entry.value is None else entry.value.open()
