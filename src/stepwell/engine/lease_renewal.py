"""The runs this process drives: claimed before anything is read, renewed from a thread, let go at the end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from stepwell.engine.completion import finish
from stepwell.errors import DurabilityError, RunBusy
from stepwell.storage.archive import Archive
from stepwell.storage.lease import Owner
from stepwell.storage.system import call_in_forked_child

_LOOK_EVERY = 1.0  # seconds; so soon a drive hears that somebody in another process wants it to stop
_SHORTEST_PAUSE = 0.02  # seconds
_SIGNS = 3  # a lease is renewed so often before it would end


@dataclass(frozen=True)
class HeldLease:
    archive: Archive
    run_id: str
    owner: Owner
    on_signal: Callable[[], None]  # called from a thread
    fence: int = 0  # the number of the claim


class _Renewer:
    """A thread of its own: a handler that blocks the event loop must not cost a run its claim."""

    def __init__(self) -> None:
        self._leases: set[HeldLease] = set()
        self._renewing: frozenset[HeldLease] = frozenset()  # those whose stores are being asked at this moment
        self._renewed: dict[int, float] = {}  # when the claims on each storage were renewed
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, lease: HeldLease) -> None:
        with self._changed:
            self._leases.add(lease)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="stepwell-claims", daemon=True)
                self._thread.start()

    def drop(self, lease: HeldLease) -> bool:
        """True if its store is not being asked at this moment; otherwise `wait` until that is over."""
        with self._changed:
            self._leases.discard(lease)
            return lease not in self._renewing

    def wait(self, lease: HeldLease) -> None:
        with self._changed:
            self._changed.wait_for(lambda: lease not in self._renewing)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._leases)  # a process that drives nothing is not kept awake
                shortest = min(lease.archive.lease for lease in self._leases)
            time.sleep(min(_LOOK_EVERY, max(shortest / (2 * _SIGNS), _SHORTEST_PAUSE)))
            with self._changed:
                self._renewing = frozenset(self._leases)
            try:
                _look_for_signals(self._renewing)
                _renew(self._due())
            finally:
                with self._changed:
                    self._renewing = frozenset()  # a run that was let go must not be held by us
                    self._changed.notify_all()

    def _due(self) -> list[HeldLease]:
        """The claims whose stores have not been asked to renew them for a while."""
        places, now = {id(lease.archive.where) for lease in self._renewing}, time.monotonic()
        self._renewed = {place: self._renewed.get(place, now) for place in places}
        due = [c for c in self._renewing if now - self._renewed[id(c.archive.where)] >= c.archive.lease / _SIGNS]
        self._renewed.update({id(lease.archive.where): now for lease in due})
        return due

    def forget(self) -> None:
        """In a forked child: the claims are the parent's, and must end with the parent."""
        self.__init__()  # type: ignore[misc]


def _renew(leases: Iterable[HeldLease]) -> None:
    for group in _by_place(leases):
        # Tried again before the lease is over. Claims only save work: if somebody takes a run over meanwhile,
        # its store refuses our next commit.
        with suppress(DurabilityError):
            group[0].archive.renew({lease.run_id: lease.fence for lease in group}, seconds=group[0].archive.lease)


def _by_place(leases: Iterable[HeldLease]) -> Iterable[list[HeldLease]]:
    """The claims on each storage, so that one look is enough for all the runs that are driven on it."""
    by_place: dict[int, list[HeldLease]] = {}
    for lease in leases:
        by_place.setdefault(id(lease.archive.where), []).append(lease)
    return by_place.values()


def _look_for_signals(leases: Iterable[HeldLease]) -> None:
    for group in _by_place(leases):
        with suppress(DurabilityError):  # whoever posted it tries to drive the run too; we look again soon
            run_ids = set(group[0].archive.runs_with_signals([lease.run_id for lease in group]))
            for lease in group:
                if lease.run_id in run_ids:
                    lease.on_signal()


_RENEWER = _Renewer()
call_in_forked_child(_RENEWER.forget)


MayTakeOver = Callable[[], Awaitable[bool]]


async def acquire(
    archive: Archive, run_id: str, owner: Owner, on_signal: Callable[[], None], by_right: MayTakeOver | None = None
) -> HeldLease:
    """Become the one who drives a run. Raises RunBusy, naming who does; who has a right to it takes it over.

    While it is held, `on_signal` is called, from a thread, as long as there is mail that is not taken in.
    """
    lease = HeldLease(archive, run_id, owner, on_signal)
    _DRIVES[owner.drive] = asyncio.get_running_loop()  # before anybody can see the claim and take it for left over
    try:
        fence = await finish(_acquire(lease, by_right))
    except asyncio.CancelledError:
        await release(lease)  # the claim may have been granted all the same
        raise
    except BaseException:
        del _DRIVES[owner.drive]
        raise
    lease = replace(lease, fence=fence)
    _RENEWER.add(lease)
    return lease


async def _acquire(lease: HeldLease, by_right: MayTakeOver | None) -> int:
    try:
        return await lease.archive.acquire(lease.run_id, lease.owner, seconds=lease.archive.lease)
    except RunBusy as busy:
        if not isinstance(busy.holder, Owner):
            raise
        if not _is_orphaned(busy.holder) and (by_right is None or not await by_right()):
            raise
        await lease.archive.release(lease.run_id, busy.holder)
        return await lease.archive.acquire(lease.run_id, lease.owner, seconds=lease.archive.lease)


async def is_still_held(lease: HeldLease | None) -> bool:
    """Whether nobody else has claimed the run since: whoever drives a run has a right to those inside it."""
    if lease is None:
        return False
    fences = {lease.run_id: lease.fence}
    return not await finish(asyncio.to_thread(lease.archive.renew, fences, seconds=lease.archive.lease))


_DRIVES: dict[str, asyncio.AbstractEventLoop] = {}
"""The drives of this process that hold a claim, and the loops they run on."""


def _is_orphaned(owner: Owner) -> bool:
    """True for a drive of this process whose event loop was closed over its head: it will never let go."""
    loop = _DRIVES.get(owner.drive)
    return owner.is_this_process() and (loop is None or loop.is_closed())


async def release(lease: HeldLease) -> None:
    """Stop driving the run."""
    try:
        if not _RENEWER.drop(lease):  # nobody may find us at a store that he has closed
            await finish(asyncio.to_thread(_RENEWER.wait, lease))
        with suppress(DurabilityError):  # then it ends by itself, and whatever else went wrong is the news
            await finish(lease.archive.release(lease.run_id, lease.owner))
    finally:
        _DRIVES.pop(lease.owner.drive, None)


@dataclass(frozen=True)
class PendingRelease:
    """A drive of this process that is about to let a run go."""

    run_id: str
    done: asyncio.Future[None]


_RELEASES: dict[str, set[PendingRelease]] = {}


def announce_release(run_id: str, loop: asyncio.AbstractEventLoop) -> PendingRelease:
    """Note that a drive is about to let a run go; `finish_release` says when it has."""
    leaving = PendingRelease(run_id, loop.create_future())
    _RELEASES.setdefault(run_id, set()).add(leaving)
    return leaving


def finish_release(leaving: PendingRelease) -> None:
    """The drive has let the run go."""
    others = _RELEASES.get(leaving.run_id, set())
    others.discard(leaving)
    if not others:
        _RELEASES.pop(leaving.run_id, None)
    if not leaving.done.done():
        leaving.done.set_result(None)


async def wait_for_releases(run_id: str) -> None:
    """Wait for the drives of this loop that are about to let the run go."""
    here = asyncio.get_running_loop()
    for leaving in list(_RELEASES.get(run_id, ())):
        if leaving.done.get_loop() is here:  # another loop's is gone with its loop, or the claim will say busy
            await asyncio.wait([leaving.done])
