"""The leases of this process: acquired before a run is read, renewed from a thread, released at the end.

A lease only saves work. What protects a run is its fence: a store refuses writes of a driver whose
lease somebody else has acquired since.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

from stepwell.errors import DurabilityError, RunBusy
from stepwell.storage.archive import Archive, StoredRun
from stepwell.storage.cancellation_shield import finish
from stepwell.storage.ids import new_run_id
from stepwell.storage.lease import Owner, this_process
from stepwell.storage.posix import call_after_process_fork

# Seconds between two looks for signals, such as a cancel sent by another process.
_LOOK_EVERY = 1.0
_SHORTEST_PAUSE = 0.02  # seconds
# Two renewals may fail before a lease ends.
_RENEWALS_PER_LEASE = 3


@dataclass(frozen=True)
class HeldLease:
    """A lease of this process."""

    archive: Archive
    run_id: str
    owner: Owner
    on_signal: Callable[[], None]  # called from a thread
    # The number of the lease, higher than those of all leases of the run before it.
    fence: int = 0


class _Renewer:
    """Renews leases from a thread of its own: a handler that blocks the event loop must not cost a run its lease."""

    def __init__(self) -> None:
        self._leases: set[HeldLease] = set()
        # Those whose stores are in use by the thread right now.
        self._renewing: frozenset[HeldLease] = frozenset()
        # When the leases of each store were renewed last.
        self._renewed: dict[int, float] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, lease: HeldLease) -> None:
        with self._changed:
            self._leases.add(lease)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="stepwell-leases", daemon=True)
                self._thread.start()

    def drop(self, lease: HeldLease) -> bool:
        """Stop renewing a lease. False if its store is in use by the thread right now: then `wait` for that to end."""
        with self._changed:
            self._leases.discard(lease)
            return lease not in self._renewing

    def wait(self, lease: HeldLease) -> None:
        with self._changed:
            self._changed.wait_for(lambda: lease not in self._renewing)

    def _work(self) -> None:
        while True:
            with self._changed:
                # A process that drives nothing has an idle thread.
                self._changed.wait_for(lambda: self._leases)
                shortest = min(lease.archive.lease for lease in self._leases)
            time.sleep(min(_LOOK_EVERY, max(shortest / (2 * _RENEWALS_PER_LEASE), _SHORTEST_PAUSE)))
            with self._changed:
                self._renewing = frozenset(self._leases)
            try:
                _renew(self._renewing, self._due())
            finally:
                with self._changed:
                    # Keep no reference to the archive of a released run.
                    self._renewing = frozenset()
                    self._changed.notify_all()

    def _due(self) -> list[HeldLease]:
        """Return the leases that are due for renewal."""
        stores, now = {id(lease.archive.where) for lease in self._renewing}, time.monotonic()
        self._renewed = {store: self._renewed.get(store, now) for store in stores}
        due = [
            c
            for c in self._renewing
            if now - self._renewed[id(c.archive.where)] >= c.archive.lease / _RENEWALS_PER_LEASE
        ]
        self._renewed.update({id(lease.archive.where): now for lease in due})
        return due

    def forget(self) -> None:
        """Start anew in a forked child: the leases belong to the parent, and so does the thread."""
        self.__init__()  # type: ignore[misc]


def _renew(leases: Iterable[HeldLease], due: Sequence[HeldLease]) -> None:
    """Renew the leases that are due, and look for the signals of all runs."""
    for group in _by_store(leases):
        archive = group[0].archive
        # A failed renewal is tried again before the lease ends, and we look for signals again soon. If
        # another process acquires the run meanwhile, its fence refuses our next write.
        with suppress(DurabilityError):
            seconds = archive.lease if group[0] in due else None
            report = archive.renew({lease.run_id: lease.fence for lease in group}, seconds=seconds)
            for lease in group:
                if lease.run_id in report.signalled:
                    lease.on_signal()


def _by_store(leases: Iterable[HeldLease]) -> Iterable[list[HeldLease]]:
    """Group leases by store, so that one query serves all runs on it."""
    by_store: dict[int, list[HeldLease]] = {}
    for lease in leases:
        by_store.setdefault(id(lease.archive.where), []).append(lease)
    return by_store.values()


# One thread renews the leases of all runs of this process.
_RENEWER = _Renewer()
call_after_process_fork(_RENEWER.forget)


MayTakeOver = Callable[[], Awaitable[bool]]


async def acquire_and_read(
    archive: Archive, run_id: str, owner: Owner, on_signal: Callable[[], None], may_take_over: MayTakeOver | None = None
) -> tuple[HeldLease, StoredRun]:
    """Acquire the lease of a run, and read the run. Raises RunBusy, naming the owner, unless `may_take_over`
    allows replacing it.

    While it is held, `on_signal` is called from a thread as long as there are signals to apply.
    """
    lease = HeldLease(archive, run_id, owner, on_signal)
    # Before the lease is visible: without this entry another drive would take its owner for orphaned.
    _LOOPS_BY_DRIVE[owner.drive] = asyncio.get_running_loop()
    try:
        run = await finish(_open(lease, may_take_over))
    except RunBusy:
        del _LOOPS_BY_DRIVE[owner.drive]
        raise
    except BaseException:
        # It may have been granted before the cancellation arrived, or before a damaged record was read.
        await release(lease)
        raise
    lease = replace(lease, fence=run.fence)
    _RENEWER.add(lease)
    return lease, run


async def _open(lease: HeldLease, may_take_over: MayTakeOver | None) -> StoredRun:
    try:
        return await lease.archive.open(lease.run_id, lease.owner)
    except RunBusy as busy:
        if not isinstance(busy.holder, Owner):
            raise
        if not _is_orphaned(busy.holder) and (may_take_over is None or not await may_take_over()):
            raise
        await lease.archive.release(lease.run_id, busy.holder)
        return await lease.archive.open(lease.run_id, lease.owner)


async def renew_and_check(lease: HeldLease | None) -> bool:
    """Return whether no other process has acquired the run since: then its sub-workflow runs may be taken over too."""
    if lease is None:
        return False
    fences = {lease.run_id: lease.fence}
    return not (await finish(asyncio.to_thread(lease.archive.renew, fences, seconds=lease.archive.lease))).lost


# The drives of this process that hold a lease, and their event loops. A store knows only the process of an
# owner; whether the loop of a drive is still there can be answered only here.
_LOOPS_BY_DRIVE: dict[str, asyncio.AbstractEventLoop] = {}


def _is_orphaned(owner: Owner) -> bool:
    """Return True for a drive of this process whose event loop was closed: it will never release its lease."""
    loop = _LOOPS_BY_DRIVE.get(owner.drive)
    return owner.is_this_process() and (loop is None or loop.is_closed())


async def release(lease: HeldLease, *, is_over: bool = False, stalls: bool = False) -> None:
    """Release a lease, unless a commit has ended it (`is_over`). `stalls`: in the middle of the work."""
    try:
        # The caller may close the store next, so our thread must be done with it.
        if not _RENEWER.drop(lease):
            await finish(asyncio.to_thread(_RENEWER.wait, lease))
        # If that fails, the lease ends by itself, and a more important error may be under way.
        with suppress(DurabilityError):
            if not is_over:
                await finish(lease.archive.release(lease.run_id, lease.owner, stalls=stalls))
    finally:
        _LOOPS_BY_DRIVE.pop(lease.owner.drive, None)


@asynccontextmanager
async def hold_run(archive: Archive, run_id: str) -> AsyncIterator[StoredRun]:
    """Acquire a run for the length of a block, and yield what is stored of it. Raises RunBusy if somebody drives it.

    Signals that arrive meanwhile are applied when the run is driven.
    """
    await wait_for_releases(run_id)
    lease, stored = await acquire_and_read(archive, run_id, this_process(new_run_id()), lambda: None)
    try:
        yield stored
    finally:
        await release(lease)


@dataclass(frozen=True)
class PendingRelease:
    """A drive of this process that is about to release its run."""

    run_id: str
    done: asyncio.Future[None]


# Drives whose stream was abandoned and that are being closed. The next drive of the run in the same event loop
# waits for them instead of failing with RunBusy. By run id alone: it may use another storage object on the same store.
_RELEASES: dict[str, set[PendingRelease]] = {}


def announce_release(run_id: str, loop: asyncio.AbstractEventLoop) -> PendingRelease:
    """Announce that a drive is about to release its run; `finish_release` must follow."""
    pending = PendingRelease(run_id, loop.create_future())
    _RELEASES.setdefault(run_id, set()).add(pending)
    return pending


def finish_release(pending: PendingRelease) -> None:
    """Wake those who wait for an announced release."""
    others = _RELEASES.get(pending.run_id, set())
    others.discard(pending)
    if not others:
        _RELEASES.pop(pending.run_id, None)
    if not pending.done.done():
        pending.done.set_result(None)


async def wait_for_releases(run_id: str) -> None:
    """Wait for the drives of this event loop that are about to release the run."""
    here = asyncio.get_running_loop()
    for pending in list(_RELEASES.get(run_id, ())):
        # A future of another loop cannot be awaited here; if that drive still has its lease, we get RunBusy.
        if pending.done.get_loop() is here:
            await asyncio.wait([pending.done])
