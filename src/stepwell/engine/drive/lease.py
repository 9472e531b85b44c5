"""The lease of a drive: acquired before the run is read, released when the drive ends.

While a drive holds it, those in this process who watch the run find the drive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stepwell.engine.durability import lease_renewal
from stepwell.engine.events import watchers
from stepwell.errors import RunBusy
from stepwell.model.checkpoint import Checkpoint
from stepwell.storage.archive import Archive, StoredRun
from stepwell.storage.ids import new_run_id
from stepwell.storage.lease import this_process


class DriveLease:
    """The lease of one drive. `on_signal` is called from a thread as long as there are signals to apply."""

    def __init__(
        self,
        drive: watchers.Driver,
        archive: Archive,
        on_signal: Callable[[], None],
        may_take_over: lease_renewal.MayTakeOver | None,
    ) -> None:
        self._drive, self._archive, self._on_signal, self._may_take_over = drive, archive, on_signal, may_take_over
        self.held: lease_renewal.HeldLease | None = None
        self.is_over = False  # a commit has ended it
        self.takeovers = 0  # drivers in a row that were lost since the newest commit
        self._key: watchers.Key | None = None  # under which those who watch the run find the drive
        self._announced: lease_renewal.PendingRelease | None = None

    async def acquire_and_read(self, run_id: str) -> StoredRun:
        """Acquire a run and read it. The lease of a run that was acquired before is released."""
        if self._key is not None and self._key != watchers.key_of(self._archive, run_id):
            await self.leave_run()
        await self._release()
        owner = this_process(new_run_id())
        if not self._archive.is_durable:
            self.is_over = False
            return await self._archive.open(run_id, owner)
        await lease_renewal.wait_for_releases(run_id)
        self.held, stored = await lease_renewal.acquire_and_read(
            self._archive, run_id, owner, on_signal=self._on_signal, may_take_over=self._may_take_over
        )
        self.is_over, self.takeovers = False, stored.takeovers
        self._key = watchers.key_of(self._archive, run_id)
        watchers.register_drive(self._key, self._drive)
        return stored

    async def reacquire(self, at: Checkpoint) -> bool:
        """Acquire a run that was released when it came to rest; False if another process was first and moves it."""
        try:
            stored = await self.acquire_and_read(at.run_id)
        except RunBusy:
            return False
        return stored.head is not None and stored.head.number == at.number

    def announce_release(self, loop: asyncio.AbstractEventLoop) -> None:
        """Announce that the drive is about to end: the next drive of the run waits until it has."""
        if self.held is not None and self._announced is None:
            self._announced = lease_renewal.announce_release(self.held.run_id, loop)

    async def leave_run(self, *, stalls: bool = False) -> None:
        """Release the lease, and let those who wait for the drive to disappear look at the run again.

        `stalls`: the run is left in the middle of its work.
        """
        try:
            await self._release(stalls=stalls)
        finally:
            # Not before: a drive that waits for this one may acquire the run next.
            key, self._key = self._key, None
            if key is not None:
                watchers.unregister_drive(key, self._drive)
                watchers.publish(key, watchers.LOOK_AGAIN)

    def finish(self) -> None:
        """Wake those who wait for an announced release."""
        if self._announced is not None:
            lease_renewal.finish_release(self._announced)

    async def _release(self, *, stalls: bool = False) -> None:
        if self.held is not None:
            lease, self.held = self.held, None
            await lease_renewal.release(lease, is_over=self.is_over, stalls=stalls)
