"""The worker itself: it looks at the store, starts drives, waits, and leaves in good order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from typing import Any

import stepwell
from stepwell.admin.retention.policy import Keep
from stepwell.engine.opening.open_run import ResumeRun, Stopped
from stepwell.errors import (
    CommitConflict,
    DefinitionError,
    DurabilityError,
    ResponseRejected,
    RunBusy,
    RunError,
    StoreUnavailable,
)
from stepwell.model.status_words import SIGNALLED
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import ReadyFilter
from stepwell.storage.lease import validate_lease
from stepwell.storage.stored_values import RunEntry
from stepwell.webhooks.deliverer import WebhookDeliverer
from stepwell.worker.dispatch.polling import Polling
from stepwell.worker.dispatch.protocol import WorkerDispatcher
from stepwell.worker.housekeeping import keep_clean
from stepwell.worker.live_relay import relay_live
from stepwell.worker.metrics import Counters, Metric, MetricsReporter
from stepwell.worker.ready_runs import find_ready, find_unserved
from stepwell.worker.registration import WorkerRegistration, default_name
from stepwell.worker.shortlist import HINTED, HINTED_IN_BACKLOG, OFFERED, Shortlist
from stepwell.worker.shutdown import exit_soon, stopping_on_signals
from stepwell.worker.slices import Served, check_code, drive_slice, workflow_of
from stepwell.worker.validation import find_bad_settings, find_problems

_LOG = logging.getLogger("stepwell")

# Seconds between two looks at the store, whatever the dispatcher says: dead owners on this machine,
# and what hints were lost for, are found by it.
LOOK_EVERY = 1.0
_SHORTEST_PAUSE = 0.01  # seconds between two looks; drives that end together share one
_UNSERVED_EVERY = 30.0  # seconds between two looks for runs of workflows that this worker does not have
_CLEAN_UP = 5.0  # seconds that cancelled handlers have
_READY_FOR = 10.0  # seconds after a look at the store


class Worker:
    """Drives the runs of its workflows that are ready, up to `slots` at a time.

    Any number of workers may share a storage. `lease` is for how many seconds a silent worker keeps
    its runs (default: as the storage says). A run that would keep others waiting is let go after
    `slice` seconds, at its next commit. `grace` is how many seconds a superstep under way has to end
    when the worker stops. A run whose drivers died `most_takeovers` times in a row, with no commit
    between, fails. `private` values are passed to the handlers of every run. What the policy `prune`
    does not keep is deleted every hour, by one of the workers that share the storage.

    Raises DefinitionError if the workflows, the storage or the numbers cannot work.
    """

    def __init__(
        self,
        storage: BuiltInStorage,
        workflows: Sequence[Served],
        *,
        slots: int = 50,
        lease: float | None = None,
        name: str | None = None,
        grace: float = 10.0,
        slice: float = 60.0,
        most_takeovers: int = 10,
        private: Mapping[str, Any] | None = None,
        dispatcher: WorkerDispatcher | None = None,
        prune: Keep | None = None,
    ) -> None:
        settings = find_bad_settings(name, slots=slots, grace=grace, slice=slice, most_takeovers=most_takeovers)
        problems = [*find_problems(storage, workflows), *settings]
        if problems:
            raise DefinitionError(problems)
        self.slots = slots
        self._storage = copy(storage)  # on the same store, with a lease of its own
        if lease is not None:
            self._storage._lease = validate_lease(lease)
        self._served = {workflow_of(served).name: served for served in workflows}
        self._policy = prune
        self._grace, self._slice, self._most_takeovers = grace, slice, most_takeovers
        self._private = dict(private or {})
        self._dispatcher: WorkerDispatcher = dispatcher or Polling()
        self.name = default_name() if name is None else name
        self._shortlist = Shortlist(self.name)
        self._driving: dict[str, asyncio.Task[None]] = {}
        self._registration = WorkerRegistration(
            storage._registry,
            self.name,
            version=stepwell.__version__,
            slots=slots,
            workflows={name: workflow_of(served).version for name, served in self._served.items()},
            runs=self._driving.keys,
            takeovers=lambda: self._counters.takeovers,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._counters = Counters()
        self._metrics = MetricsReporter(self._storage, self._counters, slots, self._driving)
        self._looked_at: float | None = None  # when it last reached the store; monotonic
        self._orphans_at = 0.0  # when it last looked for runs whose driver on this machine died; monotonic
        self._woken, self._hurried, self._slot_freed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._is_assigned, self._hinted_at = False, 0.0  # runs come from the dispatcher; when one last came
        self._stopping = False
        self._is_store_away = False
        self._named: set[str] = set()  # workflows that were named in the log because they are not served

    # ---------------------------------------------------------------- from outside

    async def serve(self) -> None:
        """Drive what is ready until `stop` is called, or the task is cancelled; then leave in good order."""
        self._loop = asyncio.get_running_loop()
        with suppress(StoreUnavailable):  # `_listen` will say so
            await self._dispatcher.check(self._storage)
        await self._registration.begin()
        _LOG.info("worker %r drives %s, %d at a time", self.name, ", ".join(map(repr, self._served)), self.slots)
        works: list[Coroutine[Any, Any, None]] = [
            self._listen(),
            self._name_unserved(),
            self._registration.keep_up(self._learn),
            self._metrics.report(),
            relay_live(self._storage),
            WebhookDeliverer(self._storage).serve(),
        ]
        if self._policy is not None:
            works.append(keep_clean(self._storage, self._policy, self._is_first))
        aside = [asyncio.create_task(work) for work in works]
        try:
            while not self._stopping:
                self._woken.clear()
                looked_at = time.monotonic()
                pause = await self._look()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._woken.wait()
                await asyncio.sleep(max(0.0, looked_at + _SHORTEST_PAUSE - time.monotonic()))
        finally:
            for task in aside:
                task.cancel()
            await self._leave()
            # A dispatcher puts its own things in order.
            await asyncio.wait(aside, timeout=_CLEAN_UP)
            await self._registration.end()
            _LOG.info("worker %r has left", self.name)

    def run(self) -> None:
        """Serve in an event loop of its own until SIGTERM or SIGINT. Must be called in the main thread.

        The first signal stops in good order, a second one at once.
        """

        async def serve() -> None:
            with stopping_on_signals(self.stop):
                await self.serve()

        asyncio.run(serve())
        # A plain function cannot be stopped: its thread must not keep the process.
        exit_soon(0)

    def stop(self, *, at_once: bool = False) -> None:
        """Stop acquiring runs, and return at once; `serve` returns when those under way are left.

        Supersteps under way may end within the grace. Then, or with `at_once` now, runs are left at
        their last commit. Their leases are free afterwards. From any thread, and from a signal
        handler.
        """
        if self._loop is None:
            self._stop(at_once)
        else:
            with suppress(RuntimeError):  # the loop is closed: it has stopped
                self._loop.call_soon_threadsafe(self._stop, at_once)

    def _stop(self, at_once: bool) -> None:
        self._stopping = True
        self._woken.set()
        if at_once:
            self._hurried.set()

    def is_ready(self) -> bool:
        """Return whether it looks for runs, and has reached the store in the last ten seconds."""
        looked_at = self._looked_at
        # With all slots taken there is no reason to look.
        is_full = len(self._driving) >= self.slots and not self._is_store_away
        return not self._stopping and looked_at is not None and (is_full or time.monotonic() - looked_at < _READY_FOR)

    async def metrics(self) -> list[Metric]:
        """Return what it has done, what it does now, and how much its store holds. Raises StoreUnavailable."""
        return await self._metrics.all()

    # ---------------------------------------------------------------- looking

    async def _look(self) -> float:
        """Start drives in the free slots; return for how many seconds there is nothing more to do."""
        free = self.slots - len(self._driving)
        if free == 0:
            return LOOK_EVERY
        try:
            orphans = time.monotonic() - self._orphans_at >= LOOK_EVERY
            self._orphans_at = time.monotonic() if orphans else self._orphans_at
            limit = self._shortlist.limit(free)
            ready = await find_ready(self._storage._store, self._served, limit, LOOK_EVERY, orphans=orphans)
        except StoreUnavailable as error:
            self._note_outage(error)
            return LOOK_EVERY
        self._note_outage(None)
        self._looked_at = time.monotonic()
        # Slots may have been taken meanwhile, by runs that were assigned.
        free = self.slots - len(self._driving)
        is_backlog = time.monotonic() - self._hinted_at < LOOK_EVERY
        hinted = 0.0 if not self._is_assigned else HINTED_IN_BACKLOG if is_backlog else HINTED
        chosen = self._shortlist.choose(ready.now, free, self._driving, time.monotonic(), hinted=hinted)
        for run in chosen:
            self._start(run)
        # Those that are offered to others first may be ours in a moment.
        has_more = not self._is_assigned and len(chosen) < min(free, len(ready.now))
        return min(ready.seconds_to_next, OFFERED) if has_more else ready.seconds_to_next

    def _learn(self, peers: Mapping[str, Collection[str]]) -> None:
        self._shortlist.peers = peers

    def _is_first(self) -> bool:
        """Return whether this is the first, by name, of the workers that share its workflows."""
        return all(self.name <= peer for peers in self._shortlist.peers.values() for peer in peers)

    # ---------------------------------------------------------------- hints

    async def _listen(self) -> None:
        """Let the dispatcher wake us, for as long as it can."""
        while True:
            try:
                await self._dispatcher.listen(self._storage, self)
            except (StoreUnavailable, DefinitionError) as error:
                _LOG.warning("the dispatcher is away, and the store is looked at every second instead: %s", error)
                await asyncio.sleep(LOOK_EVERY)

    @property
    def workflows(self) -> Collection[str]:
        """The names of the workflows whose runs it drives."""
        return self._served.keys()

    def wake(self) -> None:
        """Look at the store soon. For dispatchers; must be called in the event loop of `serve`."""
        self._woken.set()

    @contextmanager
    def assigning(self) -> Iterator[None]:
        """Inside the block, leave new and answered runs to `drive_run` for a moment. For dispatchers."""
        self._is_assigned = True
        try:
            yield
        finally:
            self._is_assigned = False
            self._woken.set()

    async def drive_run(self, run_id: str) -> None:
        """Drive a run, if it is ready and nobody drives it; return when it was let go. For dispatchers.

        Waits for a free slot first. What goes wrong in the run is logged, not raised.
        """
        self._hinted_at = time.monotonic()
        while len(self._driving) >= self.slots:
            self._slot_freed.clear()
            await self._slot_freed.wait()
        try:
            run = await self._storage._store.run(run_id)
        except StoreUnavailable as error:
            self._note_outage(error)
            return
        if run is None or run.workflow not in self._served or self._stopping or len(self._driving) >= self.slots:
            return
        is_ready = ReadyFilter(clock.stamp(), resting=SIGNALLED).matches(run)
        if is_ready and self._shortlist.is_due(run, time.monotonic()) and run_id not in self._driving:
            await asyncio.wait([self._start(run)])

    async def _name_unserved(self) -> None:
        """Name workflows in the log, once each, whose runs are ready and left to others."""
        while True:
            with suppress(StoreUnavailable):  # `_look` has logged it
                for run in await find_unserved(self._storage._store, self._served.keys() | self._named):
                    if run.workflow not in self._named:
                        self._named.add(run.workflow)
                        _LOG.warning(
                            "run %r is ready, and this worker does not have its workflow %r: such runs are left "
                            "to others",
                            run.run_id,
                            run.workflow,
                        )
            await asyncio.sleep(_UNSERVED_EVERY)

    def _note_outage(self, error: StoreUnavailable | None) -> None:
        """Log that the store is away, and that it is back, once each."""
        if error is not None and not self._is_store_away:
            _LOG.warning("the store is away, and is tried again every second: %s", error)
        if error is None and self._is_store_away:
            _LOG.info("the store is back")
        self._is_store_away = error is not None

    # ---------------------------------------------------------------- driving

    def _start(self, run: RunEntry) -> asyncio.Task[None]:
        task = asyncio.create_task(self._drive(run))
        self._driving[run.run_id] = task
        task.add_done_callback(partial(self._finish, run))
        return task

    async def _drive(self, run: RunEntry) -> None:
        served, started = self._served[run.workflow], time.monotonic()

        def is_over() -> bool:
            is_long = time.monotonic() - started >= self._slice
            return self._stopping or (is_long and len(self._driving) >= self.slots)

        await check_code(self._storage, served, run.run_id)
        drive = workflow_of(served)._drive(
            ResumeRun(run.run_id, unless_stopped=True),
            self._storage,
            streaming=False,
            private=self._private,
            most_takeovers=self._most_takeovers,
        )
        if await drive_slice(drive, is_over, self._counters, was_left=run.lease is not None):
            self._shortlist.end_turn(run, time.monotonic())
        elif drive.at is not None and drive.at.number == run.number:
            # It was ready and did not move, because somebody else was faster.
            self._shortlist.set_back(run, time.monotonic())

    def _finish(self, run: RunEntry, task: asyncio.Task[None]) -> None:
        del self._driving[run.run_id]
        self._slot_freed.set()
        if not self._is_assigned:  # otherwise there is a hint for what comes next
            self._woken.set()
        error = None if task.cancelled() else task.exception()
        match error:
            case None | Stopped():
                return
            case RunBusy():  # somebody else was first
                self._counters.refused_acquisitions += 1
                return
            case CommitConflict():
                self._counters.refused_commits += 1
                _LOG.info("run %r of %r was acquired by another process: %s", run.run_id, run.workflow, error)
            case StoreUnavailable():
                self._note_outage(error)
            case ResponseRejected():  # its request is free again
                _LOG.warning("run %r of %r waits for another response: %s", run.run_id, run.workflow, error)
                return
            case RunError():
                self._counters.failed_runs += 1
                _LOG.error("run %r of %r failed: %s", run.run_id, run.workflow, error)
            case DurabilityError():
                self._shortlist.leave(run)
                _LOG.warning("run %r of %r is left to others: %s", run.run_id, run.workflow, error)
                return
            case _:
                _LOG.error("run %r of %r could not be driven", run.run_id, run.workflow, exc_info=error)
        # Usually it is not ready any more; if it is, the next attempt would end in the same way.
        self._shortlist.set_back(run, time.monotonic())

    # ---------------------------------------------------------------- leaving

    async def _leave(self) -> None:
        """Let supersteps end within the grace, then cancel them; on return the leases are free."""
        self._stopping = True
        if self._driving and not self._hurried.is_set():
            _LOG.info("leaving %d runs, at the latest in %g s", len(self._driving), self._grace)
            hurried = asyncio.create_task(self._hurried.wait())
            ended = asyncio.create_task(asyncio.wait(self._driving.values()))
            await asyncio.wait((ended, hurried), timeout=self._grace, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            hurried.cancel()
        tasks = list(self._driving.values())
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=_CLEAN_UP)
            if left:
                _LOG.warning("%d runs ignore that they are cancelled; their leases end by themselves", len(left))
