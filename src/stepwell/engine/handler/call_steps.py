"""The steps of one handler call: gives each its key, and executes it once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from stepwell.engine.durability.attempts import OnRetry
from stepwell.engine.durability.superstep_log import Parked, SuperstepLog
from stepwell.engine.handler import branches
from stepwell.engine.handler.branches import Branch, UnidentifiedBranch
from stepwell.engine.handler.drive_scope import DriveScope
from stepwell.engine.handler.replay import PATCH, Replay
from stepwell.engine.handler.steps import Step, StepContext, do_once
from stepwell.errors import DurabilityError
from stepwell.graph.step_options import StepOptions
from stepwell.model.log_keys import explicit_step_key, step_key
from stepwell.model.message import Delivery
from stepwell.model.timing import CallSummary, StepRecord
from stepwell.storage.cancellation_shield import finish
from stepwell.storage.step_calls import describe_call, describe_value, name_of


class HandlerSteps:
    """The steps of one handler call."""

    def __init__(
        self,
        scope: DriveScope,
        delivery: Delivery,
        log: SuperstepLog,
        handler: Branch,
        *,
        on_retry: OnRetry,
        on_completed: Callable[[StepRecord], None],
    ) -> None:
        self._scope, self._delivery, self._log, self._handler = scope, delivery, log, handler
        self._on_completed = on_completed
        self._context = StepContext(
            scope.run_id,
            scope.epoch,
            executor=delivery.executor,
            log=log,
            pack=scope.pack,
            on_retry=on_retry,
            find_stop=self.find_stop,
            recall_changed=scope.options.recall_changed,
        )
        # For steps with a key: two branches may ask for the same one at once.
        self._locks: dict[str, asyncio.Lock] = {}
        self.made: list[StepRecord] = []
        # The tasks that execute steps now, and what waits for the last of them.
        self.under_way: dict[_UnderWay, asyncio.Task[Any] | None] = {}
        self._settled: asyncio.Future[None] | None = None
        # The handler waits for answers and nothing else: it is left.
        self.is_left = False
        # It will be left and called again, whatever it makes of that.
        self.is_parked = False
        # What those who drive the run are handling: no concern of the handler.
        self._handled_outside = sys.exc_info()[1]
        # The first that could not be stored: its error may reach nobody if the handler is left meanwhile.
        self.lost: DurabilityError | None = None
        is_durable = scope.graph.executors[delivery.executor]._is_durable_function
        self.replay = Replay(delivery.id, log.entries, handler) if is_durable else None
        # Whether a branch has come to a new step, if only recorded ones are made.
        self._is_held = False

    def branch(self) -> Branch:
        """Return the branch that calls; the handler itself if it cannot be identified."""
        return branches.find_current(self._handler) or self._handler

    def count(self, name: str) -> int:
        """Return how often this name was counted in the handler before, in any of its branches."""
        return self._handler.count(name)

    def assign_key(self, options: StepOptions[bool]) -> tuple[str, Branch]:
        """Return the key and the branch of a step that is called now. Raises UnidentifiedBranch if there is none."""
        self.check_stays()
        name = options.name
        if options.key is not None:
            digest = blake2b(options.key.encode(), digest_size=8).hexdigest()
            # No branch in the key: the caller guarantees that it identifies the step wherever it is called.
            return explicit_step_key(self._delivery.id, name, digest), self._handler
        branch = branches.find_current(self._handler)
        if branch is None or branch.is_run_by_another():
            raise UnidentifiedBranch(
                f"step {name!r} of {self._delivery.executor!r} in run {self._scope.run_id!r} is called in a thread or "
                f"task that cannot be identified when the handler runs again: start it with asyncio.to_thread, "
                f"asyncio.gather, asyncio.create_task or a task group, or identify it: StepOptions({name!r}, key=...)"
            )
        log_key = step_key(self._delivery.id, name, branch.count(f"step {name}"), branch.id)
        if self.replay is not None:
            self.replay.reach(log_key, branch.id)
        return log_key, branch

    def check_stays(self) -> None:
        """Raise again what the handler is left by, such as Parked: it is called again, and comes here again.

        Otherwise the steps of a `finally` block would be made at the first wait, and recalled at the end. Errors and
        cancellations may be the handler's own, and have their clean-up.
        """
        error = sys.exc_info()[1]
        if error is not None and error is not self._handled_outside:
            if not isinstance(error, Exception | asyncio.CancelledError | BaseExceptionGroup):
                raise error
            # A task group cancels its other tasks when one of them sleeps, and raises a group.
            if self.is_parked and (isinstance(error, asyncio.CancelledError) or _holds_parked(error)):
                raise Parked(None)
        if self.is_left:
            raise Parked(None)

    def find_stop(self) -> BaseException | None:
        """Return why nothing new begins: the run is left where it is, or what was done could not be stored."""
        lost = self.lost or self._log.crash
        if lost is None and self._scope.is_left():
            return asyncio.CancelledError(f"run {self._scope.run_id!r} is left: no step begins now")
        return lost

    async def do(self, step: Step) -> Any:
        """Return the result of a step, executed once, even if two branches call it with the same explicit key."""
        key = step.options.key
        if key is None:
            step.call = describe_call(step.function, step.args, step.kwargs, self._scope.codec)
            return await self._do_once(step)
        # The arguments of a step that is identified by an explicit key are not compared.
        step.call = f"{name_of(step.function)}(key={key!r})"
        async with self._locks.setdefault(step.key, asyncio.Lock()):
            return await self._do_once(step)

    async def do_by_name(self, name: str, function: Callable[[], Awaitable[Any]], call: str | None) -> Any:
        """Execute a step identified by its name alone: every call of that name is the same step."""
        log_key = step_key(self._delivery.id, name, 0)
        options = StepOptions(name)
        return await self._do_once(
            Step(options, log_key, function, args=(), kwargs={}, branch=self.branch(), call=call)
        )

    def is_recorded(self, log_key: str) -> bool:
        """Return whether the step with this key has a stored result."""
        return log_key in self._log.entries

    async def begin(self, step: Step) -> None:
        """Check that a step may be made now. Raises StepChanged if a durable function made another one here before."""
        if self.replay is None or (self.replay.is_caught_up and not self._scope.options.only_replay):
            return
        context = self._context
        if step.options.key is None and (step.branch.is_blocked or self.branch() is step.branch):
            self.replay.check_order(step, context)
        if not self.replay.is_over:
            await self.replay.check_branch(step, context)
        await self.replay.record_failures(context)
        if self._scope.options.only_replay and not step.name.startswith(PATCH):
            # It is never made: `dry_replay` cancels the function when nothing else happens.
            self._is_held = True
            await asyncio.get_running_loop().create_future()

    @property
    def expects_recorded(self) -> bool:
        """Whether recorded steps are still ahead, and no branch has come to a new one."""
        return self.replay is not None and not self.replay.is_over and not self._is_held

    async def _do_once(self, step: Step) -> Any:
        scope, context = self._scope, self._context
        if step.options.transaction:
            # What the step writes must not be durable before the commits that led to it.
            await finish(scope.archive.flush())
        recalled = step.key in self._log.entries
        if not recalled:
            await self.begin(step)
        try:
            with self.execute():
                return await do_once(step, context)
        except (Exception, asyncio.CancelledError) as error:
            if self.replay is not None and step.key not in self._log.entries:
                self.replay.note_failure(step, context, error)
            raise
        finally:
            # An error that was stored counts too; one that was not is part of the handler's failure.
            if (entry := self._log[step.key]) is not None:
                self.made.append(StepRecord(step.name, entry.time, entry.attempts, recalled))
                if scope.streaming:
                    self._on_completed(self.made[-1])

    def execute(self) -> _UnderWay:
        """Return a context manager: a handler that fails, or is left, waits for what is done inside."""
        if self._settled is not None and not self.branch().is_in_step:
            raise RuntimeError(
                f"{self._delivery.executor!r} of run {self._scope.run_id!r} has failed or is left: no step begins now"
            )
        return _UnderWay(self)

    def end(self, call: _UnderWay, error: BaseException | None) -> None:
        """Note that what was under way is done."""
        del self.under_way[call]
        if isinstance(error, DurabilityError):
            self.lost = self.lost or error
        if not self.under_way and self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    async def settle(self) -> None:
        """Wait until no step is under way; new ones are refused, except inside of those."""
        self._settled = self._scope.loop.create_future()
        if self.under_way:
            try:
                await self._settled
            except asyncio.CancelledError:
                self.cancel()
                raise

    def cancel(self) -> None:
        """Cancel the steps that are under way."""
        for task in set(self.under_way.values()) - {None, asyncio.current_task()}:
            assert task is not None
            task.cancel()

    async def decide_patch(self, name: str) -> bool:
        """Return whether a durable function takes its new path: stored, and False if it has been past here before."""
        if self.replay is None:
            raise RuntimeError(
                f"ctx.patched({name!r}) was called in {self._delivery.executor!r}: only durable functions have it"
            )
        is_over = self.replay.is_over

        async def decide() -> bool:
            return is_over

        options = StepOptions(f"{PATCH}{name}", key=name)
        log_key, branch = self.assign_key(options)
        return bool(await self.do(Step(options, log_key, decide, args=(), kwargs={}, branch=branch)))

    def check_question(self, log_key: str, question: object) -> None:
        """Raise StepChanged if a durable function asked another question here before."""
        entry = self._log[log_key]
        if self.replay is not None and entry is not None and entry.request is not None:
            stored = describe_value(entry.request.payload.open(), self._scope.codec)
            self.replay.check_question(stored, describe_value(question, self._scope.codec), self._context)

    def check_replay(self) -> None:
        """Raise StepChanged if a durable function returns without having reached all its recorded steps."""
        if self.replay is not None:
            self.replay.check_complete(self._context)

    def summarise(self, name: str, summary: CallSummary) -> None:
        """Add to the record of a `do_by_name` what an agent's call came to."""
        for n in reversed(range(len(self.made))):
            if self.made[n].name == name:
                self.made[n] = replace(self.made[n], summary=summary)
                return

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


def _holds_parked(error: BaseException) -> bool:
    return isinstance(error, BaseExceptionGroup) and error.subgroup(Parked) is not None


class _UnderWay:
    """Something that a handler is doing, with the task that does it."""

    __slots__ = ("_steps",)

    def __init__(self, steps: HandlerSteps) -> None:
        self._steps = steps

    def __enter__(self) -> None:
        self._steps.under_way[self] = asyncio.current_task()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._steps.end(self, error)
